//! What the runs exercised: a run that decided nothing proves nothing.

use crate::invariants::views::Kind;
use std::fmt;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident: $label:literal,)+) => {
        /// Counters of one run, or the sums over many.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Stats {
            /// Adds another run's counters.
            pub fn add(&mut self, other: &Stats) {
                $(self.$name += other.$name;)+
            }

            fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$(($label, self.$name),)+]
            }
        }
    };
}

counters! {
    /// Runs.
    runs: "runs",
    /// Events.
    events: "events",
    /// Seconds of virtual time.
    virtual_seconds: "virtual seconds",
    /// Chosen slots.
    decided: "decided slots",
    /// Runs without any.
    nothing_decided: "runs in which nothing was decided",
    /// Adopted ballots.
    elections: "elections (adopted ballots)",
    /// Accepted transfers.
    transfers: "transfers of mastership",
    /// Views.
    adds: "members added",
    /// Views.
    promotes: "learners promoted",
    /// Views.
    removes: "members removed",
    /// Views.
    leases: "lease changes",
    /// Views.
    downs: "moved to down",
    /// Views.
    comebacks: "come back from down",
    /// Disks lost.
    wipes: "disks lost and replaced",
    /// Crashes.
    crashes: "crashes",
    /// Of those: between a sync and what waited for it.
    crashes_after_sync: "crashes between sync and send",
    /// Restarts.
    restarts: "restarts",
    /// Pauses.
    pauses: "pauses",
    /// Cuts and clogs.
    cuts: "partitions and clogs",
    /// Snapshots.
    snapshots: "snapshots taken",
    /// Snapshots.
    installs: "snapshots installed",
    /// Logs.
    catch_ups: "log pages sent to catch up",
    /// Operations.
    writes: "writes acknowledged",
    /// Operations.
    lease_reads: "lease reads",
    /// Operations.
    index_reads: "read-index reads",
    /// Operations.
    local_reads: "local reads of bounded age",
    /// Operations.
    local_refused: "local reads refused",
    /// Operations.
    locks: "locks granted",
    /// Operations.
    waits_ended: "waits for a lock ended",
    /// Operations.
    sessions_ended: "sessions ended",
    /// Operations.
    undone: "grants undone that nobody could be told",
    /// Operations.
    unknown: "operations with unknown outcome",
    /// Operations.
    never: "operations that certainly did not run",
    /// Registers.
    orders_given_up: "registers with too many orders to check",
    /// Runs whose last view lost its quorum for ever.
    quorum_lost: "runs without a quorum left (liveness skipped)",
}

impl Stats {
    /// Counts a view's kind.
    pub fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Add => self.adds += 1,
            Kind::Promote => self.promotes += 1,
            Kind::Comeback => self.comebacks += 1,
            Kind::Down => self.downs += 1,
            Kind::Remove => self.removes += 1,
            Kind::Lease => self.leases += 1,
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, count) in self.rows() {
            writeln!(f, "  {count:>12}  {label}")?;
        }
        Ok(())
    }
}
