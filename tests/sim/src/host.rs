//! One simulated machine: clock, disk, and the process that runs a node's roles on it.

use crate::clock::Clock;
use crate::disk::{Disk, Stored};
use crate::machine::Registers;
use consensus::{Ledger, Message, Node, NodeId, ViewState};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// What a snapshot holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Consensus' part of the state.
    pub ledger: Ledger,
    /// The machine's part.
    pub machine: Registers,
}

impl Snapshot {
    /// The configuration as of the snapshot's slot.
    #[must_use]
    pub fn view(&self) -> Option<ViewState> {
        let current = self.ledger.view()?.clone();
        Some(ViewState { current, established: true, previous: None })
    }
}

/// What became of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs, or will be started again.
    Fine,
    /// Its disk is lost: this member never comes back.
    Wiped,
    /// It was removed and then told that it may stop.
    Stopped,
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    /// The roles.
    pub node: Node,
    /// Consensus' part of the replicated state.
    pub ledger: Ledger,
    /// The machine.
    pub machine: Registers,
    /// The incarnation is not durable yet: nothing is asked of the node.
    pub is_booting: bool,
    /// Not a member any more: no clients.
    pub is_removed: bool,
    /// What the host wants to tell its replica, in order, each not before its time.
    pub mail: VecDeque<(u64, Message)>,
    /// True time of the next timer event.
    pub timer: u64,
    /// The number of the next own command.
    pub next_seq: u64,
    /// Who waits for which own command.
    pub waiting: BTreeMap<u64, usize>,
    /// Who waits for which read.
    pub reads: BTreeMap<u64, usize>,
    /// The next read's name.
    pub next_read: u64,
    /// Abandoned commands whose fate is not known yet.
    pub abandoned: BTreeMap<u64, usize>,
    /// Own commands that wait in the machine, and for whom; nobody: the client is gone.
    pub parked: BTreeMap<u64, Option<usize>>,
    /// The snapshot that is being written.
    pub writing: Option<Stored>,
    /// The pieces of a fetched snapshot.
    pub fetched: (u64, Vec<u8>),
    /// The last slot for which a snapshot was begun.
    pub snapshot_slot: u64,
}

/// One machine.
#[derive(Debug)]
pub struct Host {
    /// Its member id.
    pub id: NodeId,
    /// Its clocks.
    pub clock: Clock,
    /// Its disk.
    pub disk: Disk,
    /// The snapshot before the newest, for peers that are still fetching it.
    pub older: Option<Stored>,
    /// Counts its processes.
    pub life: u64,
    /// The process, while it runs.
    pub process: Option<Process>,
    /// Nothing is handled before this instant of true time.
    pub paused_until: u64,
    /// No sync ends before this instant of true time.
    pub stalled_until: u64,
    /// What became of it.
    pub fate: Fate,
}

impl Host {
    /// A machine whose process was never started.
    #[must_use]
    pub fn new(id: NodeId, clock: Clock, disk: Disk) -> Host {
        Host {
            id,
            clock,
            disk,
            older: None,
            life: 0,
            process: None,
            paused_until: 0,
            stalled_until: 0,
            fate: Fate::Fine,
        }
    }

    /// The process, if it runs and is ready.
    #[must_use]
    pub fn ready(&self) -> Option<&Process> {
        self.process.as_ref().filter(|process| !process.is_booting)
    }

    /// Whether clients may come.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.ready().is_some_and(|process| {
            !process.is_removed && process.node.replica().view().current.is_member(self.id)
        })
    }

    /// The slot of the newest durable snapshot.
    #[must_use]
    pub fn snapshot_slot(&self) -> u64 {
        self.disk.snapshot.as_ref().map_or(0, |stored| stored.slot)
    }

    /// Keeps a durable snapshot, and the one before it.
    pub fn store(&mut self, snapshot: Stored) {
        if self.snapshot_slot() < snapshot.slot {
            self.older = self.disk.snapshot.take();
            self.disk.store(snapshot);
        }
    }
}
