//! The replica: keeps the decided sequence, feeds it to the machine, carries this node's commands and reads to the master, and catches up.
//!
//! Invariants:
//! * R1: a slot is decided once.
//! * R3: the machine gets slots without gaps and in order.
//! * R4: `floor ≤ durable ≤ decided` and `applied ≤ decided`; only what is durable here is reported to the acceptor as such.
//! * R5: a peer is told only decisions that this node's machine has applied, so that no client learns of a write from elsewhere
//!   before a lease read on the master sees it.

mod catchup;
mod decided;
mod fetching;
mod freshness;
mod reads;
mod requests;

use crate::config::Config;
use crate::message::{Address, MasterAlive, Message, RoleId};
use crate::node::Standing;
use crate::planted::Bug;
use crate::record::{Durable, Record};
use crate::role::{HostCall, Outputs, Role};
use crate::types::{Ballot, NodeId, Now, Time};
use crate::value::{Origin, Value};
use crate::view::ViewState;
use bytes::Bytes;
use catchup::CatchUp;
use freshness::Freshness;
use reads::Reads;
use requests::Requests;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One node's replica.
#[derive(Clone, Debug)]
pub struct Replica {
    me: Address,
    config: Arc<Config>,
    view: ViewState,
    /// Decided values above the floor; beyond `decided` there may be gaps.
    log: BTreeMap<u64, Entry>,
    floor: u64,
    decided: u64,
    /// Given to the host to apply.
    handed: u64,
    applied: u64,
    /// Every value up to here is in the journal or in a durable snapshot.
    journaled: u64,
    /// The journal says that everything up to here is decided.
    durable: u64,
    snapshot: u64,
    /// When the decided watermark must be written down.
    write_down_at: Option<Time>,
    /// Somebody waits until this much is durable.
    durable_wanted: u64,
    /// What was decided when the watermark was last due: values up to here that are still not in the journal were lost on their way.
    overdue: u64,
    /// A master or a leader beside us said that this much is decided.
    commit_seen: u64,
    master: Option<Master>,
    requests: Requests,
    retry_at: Option<Time>,
    reads: Reads,
    freshness: Freshness,
    /// The master was told of less than it announced: it hears again when the machine has got there.
    owes_progress: Option<(Ballot, u64)>,
    catch_up: CatchUp,
    was_removed: bool,
    /// A removed node asks until it is told that it may stop.
    ask_to_stop_at: Option<Time>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Arc<Value>,
    /// Whether the journal holds it as the decided value: accepted here in exactly the ballot of the commit, or learned.
    journaled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Master {
    ballot: Ballot,
    heard_at: Time,
}

impl Replica {
    /// Puts a replica together from what is durable; the outputs hand the decided values above the snapshot to the host.
    pub fn recover(
        id: NodeId,
        config: Arc<Config>,
        durable: &Durable,
        standing: &Standing,
        now: Now,
    ) -> (Replica, Outputs) {
        let decided = durable.decided_through(standing.slot);
        let log = (standing.slot + 1..=decided)
            .filter_map(|slot| durable.decided_value(slot).map(|value| (slot, value.clone())))
            .map(|(slot, value)| (slot, Entry { value, journaled: true }))
            .collect();
        let mut replica = Replica {
            me: Address { node: id, role: RoleId::Replica },
            view: durable.view.clone().unwrap_or_else(ViewState::unknown),
            log,
            floor: standing.slot,
            decided,
            handed: standing.slot,
            applied: standing.slot,
            journaled: decided,
            durable: decided,
            snapshot: standing.slot,
            write_down_at: None,
            durable_wanted: 0,
            overdue: 0,
            commit_seen: 0,
            master: None,
            requests: Requests::new(id, durable.incarnation),
            retry_at: None,
            reads: Reads::default(),
            freshness: Freshness::default(),
            owes_progress: None,
            catch_up: CatchUp::default(),
            was_removed: false,
            ask_to_stop_at: None,
            config,
        };
        let mut out = Outputs::default();
        replica.hand_over(now, &mut out);
        // The leader beside us starts with nothing applied.
        out.send(replica.me, replica.sibling(RoleId::Leader), replica.applied_message(standing.stamp_ms));
        (replica, out)
    }

    /// This life of this node, as the origin of command ids.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.requests.origin()
    }

    /// The machine has applied up to here.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Known to be decided without a gap.
    #[must_use]
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// Durable on this node.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The newest durable snapshot that it has heard of.
    #[must_use]
    pub fn snapshot(&self) -> u64 {
        self.snapshot
    }

    /// How many decided values it keeps.
    #[must_use]
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// How many of this node's commands are on their way.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.requests.len()
    }

    /// The configuration that it knows.
    #[must_use]
    pub fn view(&self) -> &ViewState {
        &self.view
    }

    /// The master's node, if it was heard lately.
    #[must_use]
    pub fn master(&self) -> Option<NodeId> {
        self.master.map(|master| master.ballot.leader)
    }

    /// Its ballot.
    #[must_use]
    pub fn master_ballot(&self) -> Option<Ballot> {
        self.master.map(|master| master.ballot)
    }

    /// How old the machine's state is at most; nothing, when no live master vouches for it within a lease.
    #[must_use]
    pub fn age(&self, now: Now) -> Option<Duration> {
        if self.config.has_bug(Bug::StaleReadUnbounded) {
            return Some(Duration::ZERO);
        }
        let age = now.at.since(self.freshness.as_of()?);
        (age <= self.view.current.lease && !self.was_removed).then_some(age)
    }

    // ---- the master, commands, reads ----

    fn on_master_alive(&mut self, alive: &MasterAlive, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.learn_view(&alive.view, &mut out);
        if alive.view.clone().learn(&self.view) {
            self.tell_siblings(&mut out); // the master beside us may have missed it
        }
        let known = self.master.map_or(Ballot::ZERO, |master| master.ballot);
        if alive.ballot < known {
            return out;
        }
        self.master = Some(Master { ballot: alive.ballot, heard_at: alive.answered_at });
        self.commit_seen = self.commit_seen.max(alive.commit.slot);
        let echo = alive.echo.filter(|echo| echo.life == self.origin().incarnation).map(|echo| echo.seq);
        self.freshness.heard(alive.ballot, alive.seq, echo, alive.read_index, alive.answered_at);
        self.freshness.applied(self.applied);
        self.tell_progress(alive.ballot, &mut out);
        let lags = self.applied < alive.commit.slot;
        self.owes_progress = lags.then_some((alive.ballot, alive.commit.slot));
        if alive.ballot > known {
            self.send_requests(0, usize::MAX, now, &mut out);
        } else if let Some(seq) = self.requests.first_unsent() {
            self.send_requests(seq, usize::MAX, now, &mut out);
        }
        self.ask_again(&mut out);
        self.ask_reads(&mut out);
        self.advance(now, &mut out);
        out
    }

    fn on_submit(&mut self, first_seq: u64, payloads: Vec<Bytes>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if first_seq != self.requests.next() {
            return out; // the host numbers without gaps; anything else is a repeat
        }
        for payload in payloads {
            let seq = self.requests.next();
            let is_full = self.requests.len() >= self.config.pending_max;
            self.requests.push(payload);
            if is_full || self.was_removed {
                let certain = self.requests.give_up(seq).unwrap_or(true);
                out.calls.push(HostCall::Abandoned { seq, certain });
            }
        }
        self.send_requests(first_seq, usize::MAX, now, &mut out);
        out
    }

    fn on_abandon(&mut self, seq: u64) -> Outputs {
        let mut out = Outputs::default();
        if let Some(certain) = self.requests.give_up(seq) {
            out.calls.push(HostCall::Abandoned { seq, certain });
        }
        out
    }

    fn on_out_of_order(&mut self, origin: Origin, expected: u64, ballot: Ballot, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if origin == self.origin() && self.master.is_some_and(|master| master.ballot == ballot) {
            self.send_requests(expected, usize::MAX, now, &mut out);
        }
        out
    }

    fn on_read(&mut self, read: u64) -> Outputs {
        let mut out = Outputs::default();
        self.reads.push(read, &self.config);
        self.ask_reads(&mut out);
        out
    }

    fn on_read_index_at(&mut self, reader: Origin, seq: u64, slot: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if reader == self.origin() {
            self.reads.answered(seq, slot);
            self.commit_seen = self.commit_seen.max(slot);
            self.answer_reads(&mut out);
            self.ask_reads(&mut out);
            self.advance(now, &mut out);
        }
        out
    }

    // ---- helpers ----

    fn sibling(&self, role: RoleId) -> Address {
        Address { node: self.me.node, role }
    }

    fn applied_message(&self, stamp_ms: u64) -> Message {
        Message::Applied { slot: self.applied, stamp_ms, executed_below: 0 }
    }

    fn learn_view(&mut self, view: &ViewState, out: &mut Outputs) {
        if !self.view.learn(view) {
            return;
        }
        out.persist.push(Record::View(self.view.clone()));
        self.tell_siblings(out);
        out.calls.push(HostCall::ViewChanged(self.view.clone()));
        let current = &self.view.current;
        let gone = !current.is_member(self.me.node) && self.me.node.0 < current.next_member;
        if gone && !self.was_removed {
            self.was_removed = true;
            self.ask_to_stop_at = Some(Time(0));
            out.calls.push(HostCall::Removed);
        }
    }

    fn tell_progress(&self, ballot: Ballot, out: &mut Outputs) {
        let leader = Address { node: ballot.leader, role: RoleId::Leader };
        let progress = Message::Progress { ballot, applied: self.applied, durable: self.durable };
        out.send(self.me, leader, progress);
    }

    fn tell_siblings(&self, out: &mut Outputs) {
        for role in [RoleId::Leader, RoleId::Acceptor] {
            out.send(self.me, self.sibling(role), Message::ViewIs(self.view.clone()));
        }
    }

    /// The leader to talk to: of a master that was heard within two leases.
    fn leader(&self, now: Now) -> Option<Address> {
        let patience = self.view.current.lease * 2;
        self.master
            .filter(|master| now.at.since(master.heard_at) <= patience)
            .map(|master| Address { node: master.ballot.leader, role: RoleId::Leader })
    }

    fn send_requests(&mut self, from_seq: u64, groups_max: usize, now: Now, out: &mut Outputs) {
        let Some(leader) = self.leader(now) else { return };
        for commands in self.requests.take(from_seq, self.config.page_bytes_max, groups_max) {
            out.send(self.me, leader, Message::Request { commands });
        }
        if self.requests.len() > 0 && self.retry_at.is_none() {
            self.retry_at = Some(now.at.plus(self.config.retry));
        }
    }

    fn ask_reads(&mut self, out: &mut Outputs) {
        let Some(master) = self.master else { return };
        if let Some(seq) = self.reads.ask() {
            let to = Address { node: master.ballot.leader, role: RoleId::Leader };
            out.send(self.me, to, Message::ReadIndex { reader: self.origin(), seq });
        }
    }

    /// The master may have changed, or the request may be lost.
    fn ask_again(&mut self, out: &mut Outputs) {
        if let (Some(master), Some(seq)) = (self.master, self.reads.under_way()) {
            let to = Address { node: master.ballot.leader, role: RoleId::Leader };
            out.send(self.me, to, Message::ReadIndex { reader: self.origin(), seq });
        }
    }

    fn answer_reads(&mut self, out: &mut Outputs) {
        let reads = self.reads.ready(self.applied);
        if !reads.is_empty() {
            out.calls.push(HostCall::ReadReady { reads });
        }
    }
}

impl Role for Replica {
    fn on_message(&mut self, from: Address, message: Message, now: Now) -> Outputs {
        match message {
            Message::Decision { slot, value } => self.on_decision(slot, value, now),
            Message::Learn { commit, entries } => self.on_learn(commit.slot, entries, now),
            Message::Applied { slot, stamp_ms, executed_below } => {
                self.on_applied(slot, stamp_ms, executed_below, now)
            }
            Message::MasterAlive(alive) => self.on_master_alive(&alive, now),
            Message::Submit { first_seq, payloads } => self.on_submit(first_seq, payloads, now),
            Message::Abandon { seq } => self.on_abandon(seq),
            Message::Read { read } => self.on_read(read),
            Message::ReadIndexAt { reader, seq, slot } => self.on_read_index_at(reader, seq, slot, now),
            Message::OutOfOrder { origin, expected, ballot } => {
                self.on_out_of_order(origin, expected, ballot, now)
            }
            Message::Fetch { from_slot } => self.on_fetch(from.node, from_slot),
            Message::Log { first, values, decided } => self.on_log(from.node, first, values, decided, now),
            Message::SnapshotFetch { slot, offset } => {
                let mut out = Outputs::default();
                out.calls.push(HostCall::SendSnapshot { to: from.node, slot, offset });
                out
            }
            Message::SnapshotChunk { slot, offset, total, data } => {
                self.on_chunk(from.node, slot, offset, total, data, now)
            }
            Message::WriteDown { slot } => self.on_write_down(slot, now),
            Message::CatchUp { slot, holder } => self.on_catch_up(slot, holder, now),
            Message::SnapshotTaken { slot } => self.on_snapshot_taken(slot),
            Message::Installed { slot, stamp_ms, executed_below, view } => {
                self.on_installed(slot, stamp_ms, executed_below, view.as_ref(), now)
            }
            Message::InstallFailed { .. } => {
                self.catch_up.install_failed();
                let mut out = Outputs::default();
                self.advance(now, &mut out);
                out
            }
            Message::ViewIs(view) => {
                let mut out = Outputs::default();
                let is_known = self.view == view;
                self.learn_view(&view, &mut out);
                if is_known && from.node != self.me.node {
                    self.tell_siblings(&mut out); // a peer says it because our leader does not seem to know
                }
                out
            }
            Message::Dismissed(view) => {
                let mut out = Outputs::default();
                self.learn_view(&view, &mut out);
                if self.was_removed && self.ask_to_stop_at.take().is_some() {
                    out.calls.push(HostCall::MayStop);
                }
                out
            }
            _ => Outputs::default(),
        }
    }

    fn on_timeout(&mut self, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if self.write_down_at.is_some_and(|at| at <= now.at) {
            self.journal_the_rest(self.overdue, &mut out);
            self.overdue = self.decided;
            self.write_down(&mut out);
            if self.decided > self.durable {
                self.write_down_at = Some(now.at.plus(self.config.durable_after));
            }
        }
        if self.catch_up.due().is_some_and(|at| at <= now.at) {
            self.fetch(now, &mut out);
        }
        if self.ask_to_stop_at.is_some_and(|at| at <= now.at) {
            self.ask_to_stop_at = Some(now.at.plus(self.view.current.lease));
            let voters: Arc<[NodeId]> = self.view.current.voters().collect();
            out.broadcast(self.me, voters, RoleId::Leader, Message::MayIStop);
        }
        if self.retry_at.is_some_and(|at| at <= now.at) {
            self.retry_at = Some(now.at.plus(self.config.retry));
            self.send_requests(0, 1, now, &mut out);
        }
        out
    }

    fn deadline(&self) -> Option<Time> {
        [self.write_down_at, self.catch_up.due(), self.retry_at, self.ask_to_stop_at]
            .into_iter()
            .flatten()
            .min()
    }
}
