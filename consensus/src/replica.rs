//! The replica: keeps the decided sequence, feeds it to the machine, carries this node's commands and reads to the master, and catches up.
//!
//! Invariants:
//! * R1: a slot is decided once.
//! * R3: the machine gets slots without gaps and in order.
//! * R4: `floor ≤ durable ≤ decided` and `applied ≤ decided`; only what is durable here is reported to the acceptor as such.
//! * R5: a peer is told only decisions that this node's machine has applied, so that no client learns of a write from elsewhere
//!   before a lease read on the master sees it.

mod catchup;
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
use crate::value::{Body, Origin, Value};
use crate::view::ViewState;
use bytes::Bytes;
use catchup::{CatchUp, Piece};
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
    /// Whether the journal holds it as the decided value: accepted here in a ballot high enough, or learned.
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

    /// How old the machine's state is at most; nothing, when no live master vouches for it within a lease.
    #[must_use]
    pub fn age(&self, now: Now) -> Option<Duration> {
        if self.config.has_bug(Bug::StaleReadUnbounded) {
            return Some(Duration::ZERO);
        }
        let age = now.at.since(self.freshness.as_of()?);
        (age <= self.view.current.lease && !self.was_removed).then_some(age)
    }

    // ---- decisions ----

    fn on_decision(&mut self, slot: u64, value: Arc<Value>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.commit_seen = self.commit_seen.max(slot);
        if slot <= self.applied {
            // The leader repeats itself: it has not heard that this is applied.
            out.send(self.me, self.sibling(RoleId::Leader), self.applied_message(0));
            return out;
        }
        self.keep(slot, value, false);
        self.advance(now, &mut out);
        out
    }

    fn on_learn(&mut self, commit: u64, entries: Vec<(u64, Arc<Value>)>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.commit_seen = self.commit_seen.max(commit);
        for (slot, value) in entries {
            self.keep(slot, value, true);
        }
        self.advance(now, &mut out);
        out
    }

    fn on_log(
        &mut self,
        from: NodeId,
        first: u64,
        values: Vec<Arc<Value>>,
        decided: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        let before = self.decided;
        for (slot, value) in (first..).zip(values) {
            // A peer's word for a slot that is already known changes nothing (R1).
            if slot > self.decided && slot <= self.decided + 1 && !self.log.contains_key(&slot) {
                out.persist.push(Record::Learned { slot, value: value.clone() });
                self.keep(slot, value, true);
            }
            self.count_decided();
        }
        self.advance(now, &mut out);
        if self.decided > before && decided > self.decided {
            self.catch_up.answered(now.at, self.config.retry);
            let to = Address { node: from, role: RoleId::Replica };
            out.send(self.me, to, Message::Fetch { from_slot: self.decided + 1 });
        }
        out
    }

    fn on_applied(&mut self, slot: u64, stamp_ms: u64, executed_below: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if slot < self.applied || slot > self.handed {
            return out;
        }
        self.applied = slot;
        self.after_apply(stamp_ms, executed_below, now, &mut out);
        out
    }

    fn after_apply(&mut self, stamp_ms: u64, executed_below: u64, now: Now, out: &mut Outputs) {
        assert!(self.applied <= self.decided, "R4: applied {} beyond decided {}", self.applied, self.decided);
        let before = self.requests.len();
        self.requests.executed_below(executed_below);
        if self.requests.len() < before {
            self.retry_at = (self.requests.len() > 0).then(|| now.at.plus(self.config.retry));
        }
        self.freshness.applied(self.applied);
        self.answer_reads(out);
        if let Some((ballot, _)) = self.owes_progress.take_if(|(_, slot)| *slot <= self.applied) {
            self.tell_progress(ballot, out);
        }
        out.send(self.me, self.sibling(RoleId::Leader), self.applied_message(stamp_ms));
    }

    // ---- catching up ----

    fn on_fetch(&self, from: NodeId, from_slot: u64) -> Outputs {
        let mut out = Outputs::default();
        if from_slot <= self.floor {
            if self.snapshot >= from_slot {
                out.calls.push(HostCall::SendSnapshot { to: from, slot: 0, offset: 0 });
            }
            return out;
        }
        let (mut values, mut bytes) = (Vec::new(), 0);
        for (_, entry) in self.log.range(from_slot..).take_while(|(slot, _)| **slot <= self.applied) {
            bytes += entry.value.weight();
            if !values.is_empty() && bytes > self.config.page_bytes_max {
                break;
            }
            values.push(entry.value.clone());
        }
        let to = Address { node: from, role: RoleId::Replica };
        out.send(self.me, to, Message::Log { first: from_slot, values, decided: self.applied });
        out
    }

    fn on_chunk(
        &mut self,
        from: NodeId,
        slot: u64,
        offset: u64,
        total: u64,
        data: Bytes,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        let length = data.len() as u64;
        let piece = self.catch_up.piece(self.handed.max(self.decided), slot, offset, length, total);
        if piece == Piece::Ignore {
            return out;
        }
        self.catch_up.answered(now.at, self.config.retry);
        self.catch_up.prefer(from);
        out.calls.push(HostCall::StoreChunk { slot, offset, data });
        match piece {
            Piece::Keep { next } => {
                let to = Address { node: from, role: RoleId::Replica };
                out.send(self.me, to, Message::SnapshotFetch { slot, offset: next });
            }
            Piece::Last => {
                self.catch_up.install(slot);
                out.calls.push(HostCall::Install { slot });
            }
            Piece::Ignore => {}
        }
        out
    }

    fn on_installed(
        &mut self,
        slot: u64,
        stamp_ms: u64,
        executed_below: u64,
        view: Option<&ViewState>,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        self.catch_up.installed();
        if slot > self.applied {
            self.applied = slot;
            self.handed = slot;
            self.decided = self.decided.max(slot);
            self.note_snapshot(slot, slot, &mut out);
            self.count_decided();
            self.after_apply(stamp_ms, executed_below, now, &mut out);
        }
        if let Some(view) = view {
            self.learn_view(view, &mut out);
        }
        self.advance(now, &mut out);
        out
    }

    fn on_snapshot_taken(&mut self, slot: u64) -> Outputs {
        let mut out = Outputs::default();
        if slot > self.snapshot && slot <= self.applied {
            self.note_snapshot(slot, slot.saturating_sub(self.config.log_keep), &mut out);
        }
        out
    }

    fn on_catch_up(&mut self, slot: u64, holder: Option<NodeId>, now: Now) -> Outputs {
        self.commit_seen = self.commit_seen.max(slot);
        if self.decided < slot {
            if let Some(holder) = holder {
                self.catch_up.prefer(holder);
                self.catch_up.hurry(now.at);
            }
            self.catch_up.want(now.at, Duration::ZERO);
        }
        let mut out = Outputs::default();
        if self.applied >= slot {
            // The leader has not heard that this is applied.
            out.send(self.me, self.sibling(RoleId::Leader), self.applied_message(0));
        }
        out
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

    /// Keeps a decided value.
    fn keep(&mut self, slot: u64, value: Arc<Value>, journaled: bool) {
        if slot <= self.floor || slot > self.decided + self.config.accept_ahead_max {
            return;
        }
        match self.log.get_mut(&slot) {
            Some(entry) => {
                let same = Arc::ptr_eq(&entry.value, &value) || entry.value == value;
                assert!(same || crate::planted::COMPILED_IN, "R1: slot {slot} is decided twice");
                entry.journaled |= journaled;
            }
            None => drop(self.log.insert(slot, Entry { value, journaled })),
        }
    }

    fn count_decided(&mut self) {
        while self.log.contains_key(&(self.decided + 1)) {
            self.decided += 1;
        }
        while self.journaled < self.decided
            && self.log.get(&(self.journaled + 1)).is_none_or(|entry| entry.journaled)
        {
            self.journaled += 1;
        }
    }

    /// Does whatever newly kept values allow.
    fn advance(&mut self, now: Now, out: &mut Outputs) {
        self.count_decided();
        self.hand_over(now, out);
        let wanted = self.durable < self.durable_wanted && self.journaled > self.durable;
        if wanted || self.journaled >= self.durable + self.config.durable_every {
            self.write_down(out);
        } else if self.decided > self.durable && self.write_down_at.is_none() {
            self.write_down_at = Some(now.at.plus(self.config.durable_after));
        }
        if self.decided >= self.commit_seen {
            self.catch_up.satisfied();
        } else {
            self.catch_up.want(now.at, self.config.resend / 4);
        }
    }

    /// Hands decided values to the host, in order, unless it is loading a snapshot.
    fn hand_over(&mut self, _now: Now, out: &mut Outputs) {
        while self.handed < self.decided && !self.catch_up.is_installing() {
            let slot = self.handed + 1;
            let Some(entry) = self.log.get(&slot) else { break };
            let value = entry.value.clone();
            self.handed = slot;
            out.calls.push(HostCall::Apply { slot, value: value.clone() });
            if let Body::Start { establishes: Some(view) } = &value.body {
                let mut state = self.view.clone();
                if state.establish(view) {
                    self.learn_view(&state, out);
                }
            }
        }
    }

    /// Makes the decided watermark durable and tells the acceptor, which may then drop the values below it.
    fn write_down(&mut self, out: &mut Outputs) {
        self.write_down_at = None;
        if self.journaled > self.durable {
            self.durable = self.journaled;
            out.persist.push(Record::Decided { slot: self.durable });
        }
        assert!(self.durable <= self.decided, "R4: durable beyond decided");
        out.send(self.me, self.sibling(RoleId::Acceptor), Message::Durable { slot: self.durable });
    }

    fn on_write_down(&mut self, slot: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.durable_wanted = self.durable_wanted.max(slot);
        self.journal_the_rest(slot, &mut out);
        self.advance(now, &mut out);
        // Said again in any case: the acceptor may have missed it.
        out.send(self.me, self.sibling(RoleId::Acceptor), Message::Durable { slot: self.durable });
        out
    }

    /// Values that the leader gave us, but that our own acceptor never accepted, must reach the journal some other way.
    fn journal_the_rest(&mut self, through: u64, out: &mut Outputs) {
        let last = self.decided.min(through).max(self.journaled);
        for (slot, entry) in self.log.range_mut(self.journaled + 1..last + 1) {
            if !entry.journaled {
                entry.journaled = true;
                out.persist.push(Record::Learned { slot: *slot, value: entry.value.clone() });
            }
        }
        self.count_decided();
    }

    /// A durable snapshot covers `slot`; values up to `floor` are not needed any more.
    fn note_snapshot(&mut self, slot: u64, floor: u64, out: &mut Outputs) {
        self.snapshot = self.snapshot.max(slot);
        self.journaled = self.journaled.max(slot);
        self.durable = self.durable.max(slot);
        if floor > self.floor {
            self.floor = floor;
            self.log = self.log.split_off(&(floor + 1));
        }
        out.send(self.me, self.sibling(RoleId::Acceptor), Message::Durable { slot: self.durable });
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

    fn fetch(&mut self, now: Now, out: &mut Outputs) {
        let (me, master) = (self.me.node, self.master());
        let resumes = self.catch_up.snapshot();
        let view = self.view.current.clone();
        let Some(peer) = self.catch_up.next_peer(me, master, &view, now.at, self.config.retry) else {
            return;
        };
        let to = Address { node: peer, role: RoleId::Replica };
        let message = match resumes.filter(|_| self.catch_up.snapshot().is_some()) {
            Some((slot, offset)) => Message::SnapshotFetch { slot, offset },
            None => Message::Fetch { from_slot: self.decided + 1 },
        };
        out.send(self.me, to, message);
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
                self.catch_up.installed();
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
