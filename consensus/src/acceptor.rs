//! The acceptor: promises, accepts, and binds itself to a master for the time of a lease.
//!
//! Invariants:
//! * A1: its promise never falls, restarts included.
//! * A2: it accepts one value per ballot and slot.
//! * A3: no accepted value has a ballot above the promise.
//! * A4: while bound to a master it promises to nobody else; a restarted acceptor is bound as if it had just granted its longest
//!   lease to the leader of its promise.
//! * A5: it reports a watermark, and drops values below it, only when its node holds those decisions durably.
//! * A6: it promises and accepts only in views that it knows, durably.
//!
//! A4 is kept in `binding`, A6 in `views`; `stamp` remembers what the acceptor saw of cluster time.

mod binding;
mod stamp;
#[cfg(test)]
mod tests;
mod views;

use crate::config::Config;
use crate::message::{Address, Heartbeat, MasterAlive, Message, P1b, PValue, RoleId};
use crate::planted::Bug;
use crate::record::{Durable, Record};
use crate::role::{Outputs, Role};
use crate::types::{Ballot, NodeId, Now, Slot, Time, Watermark};
use crate::value::{Body, Value};
use crate::view::ViewState;
use stamp::StampSeen;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One node's acceptor.
#[derive(Clone, Debug)]
pub struct Acceptor {
    me: Address,
    config: Arc<Config>,
    /// This life of the node.
    life: u64,
    promised: Ballot,
    accepted: BTreeMap<u64, PValue>,
    reconfig: Option<PValue>,
    /// Decisions up to here are durable on this node.
    watermark: u64,
    /// Helps nobody but this leader until then.
    bound: Option<(NodeId, Time)>,
    /// The highest ballot that its master released.
    released: Ballot,
    lease_max: Duration,
    /// The best watermark heard from a master.
    commit: Watermark,
    /// Decided values were handed to the replica up to here.
    handed: u64,
    view: ViewState,
    clock: StampSeen,
    /// A view's start entry that came before this node held everything below it.
    early_start: Option<Box<EarlyStart>>,
}

/// A P2a that waits for this node's durable decisions.
#[derive(Clone, Debug)]
struct EarlyStart {
    from: Address,
    pvalue: PValue,
    sent_at: Time,
    lease: Duration,
}

impl Acceptor {
    /// Puts an acceptor together from what is durable; its node's newest snapshot covers `snapshot_slot`.
    #[must_use]
    pub fn recover(
        id: NodeId,
        config: Arc<Config>,
        mut durable: Durable,
        snapshot_slot: u64,
        now: Now,
    ) -> Acceptor {
        let watermark = durable.decided_through(snapshot_slot);
        let silent = durable.lease_max > Duration::ZERO && !config.has_bug(Bug::LeaseForgottenAtRestart);
        Acceptor {
            me: Address { node: id, role: RoleId::Acceptor },
            life: durable.incarnation,
            promised: durable.promise,
            accepted: durable.accepted.split_off(&(watermark + 1)),
            reconfig: durable.reconfig,
            watermark,
            bound: silent.then(|| (durable.promise.leader, now.at.plus(durable.lease_max))),
            released: Ballot::ZERO,
            lease_max: durable.lease_max,
            commit: Watermark::default(),
            handed: watermark,
            view: durable.view.unwrap_or_else(ViewState::unknown),
            clock: durable.clock.map_or_else(StampSeen::default, StampSeen::in_an_earlier_life),
            early_start: None,
            config,
        }
    }

    /// The highest promised ballot.
    #[must_use]
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// Decisions up to here are durable on this node.
    #[must_use]
    pub fn watermark(&self) -> u64 {
        self.watermark
    }

    /// How many accepted values it keeps.
    #[must_use]
    pub fn accepted_len(&self) -> usize {
        self.accepted.len()
    }

    // ---- handlers, in the order of the protocol ----

    fn on_probe(&mut self, from: Address, ballot: Ballot, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.tell_newer_view(from.node, ballot, &mut out);
        let wait = self.bound_to_another(ballot.leader, now);
        out.send(self.me, from, Message::ProbeAnswer { ballot, promised: self.promised, wait });
        out
    }

    fn on_p1a(
        &mut self,
        from: Address,
        ballot: Ballot,
        from_slot: u64,
        view: &ViewState,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        if !self.knows_view_of(ballot, view, &mut out) {
            return out;
        }
        if ballot > self.promised {
            let wait = self.bound_to_another(ballot.leader, now);
            if wait > Duration::ZERO && !self.config.has_bug(Bug::LeaseIgnoredByAcceptor) {
                self.tell_newer_view(from.node, ballot, &mut out);
                out.send(self.me, from, Message::Refused { ballot, wait });
                return out;
            }
            self.promise(ballot, &mut out);
            self.want_durable(self.commit.slot, &mut out);
            if self.config.has_bug(Bug::PromiseNotDurable) {
                out.persist.clear();
            }
        }
        let (accepted, more_from) =
            if ballot == self.promised { self.page(from_slot) } else { (Vec::new(), None) };
        let answer = P1b {
            ballot,
            promised: self.promised,
            from_slot,
            watermark: self.watermark,
            accepted,
            more_from,
            reconfig: self.reconfig.clone(),
            view: self.view.clone(),
            clock: self.clock.report(now),
        };
        out.send(self.me, from, Message::P1b(Box::new(answer)));
        out
    }

    fn on_p2a(
        &mut self,
        from: Address,
        pvalue: PValue,
        commit: Watermark,
        (sent_at, lease): (Time, Duration),
        may_wait: bool,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        let (ballot, slot) = (pvalue.ballot, pvalue.slot);
        if ballot.view > self.view.current.number {
            return out; // the master's heartbeats tell the view (A6)
        }
        if ballot < self.promised && !self.config.has_bug(Bug::AcceptBelowPromise) {
            self.tell_newer_view(from.node, ballot, &mut out);
            let answer = Message::P2b { ballot, slot, promised: self.promised, sent_at, granted: false };
            out.send(self.me, from, answer);
            return out;
        }
        let taken = match slot {
            Slot::Data(number) if self.misses_slots_before(number, &pvalue) => {
                self.want_durable(number - 1, &mut out);
                self.early_start = Some(Box::new(EarlyStart { from, pvalue, sent_at, lease }));
                false
            }
            Slot::Data(number) => self.accept_data(number, pvalue, now, &mut out),
            Slot::Reconfig(number) => self.accept_reconfig(number, pvalue, now, &mut out),
        };
        if taken {
            if self.config.has_bug(Bug::AcceptNotDurable) {
                out.persist.retain(|record| !matches!(record, Record::Accept { .. }));
            }
            let granted = self.grant(ballot, lease, now, &mut out);
            out.send(self.me, from, Message::P2b { ballot, slot, promised: ballot, sent_at, granted });
            out.may_wait =
                may_wait && out.persist.iter().all(|record| matches!(record, Record::Accept { .. }));
        }
        self.on_commit(commit, &mut out);
        out
    }

    /// True if the value counts as accepted here.
    fn accept_data(&mut self, slot: u64, pvalue: PValue, now: Now, out: &mut Outputs) -> bool {
        let ballot = pvalue.ballot;
        self.clock.see(pvalue.value.made_in, pvalue.value.stamp_ms, now);
        if slot <= self.watermark {
            // Chosen and durable here: a leader that proposes it again can only propose the same value.
            self.promise(ballot, out);
            return true;
        }
        if slot > self.watermark + self.config.accept_ahead_max {
            // This node has to catch up first; keeps the journal and P1b small. Perhaps it has, and this acceptor missed it.
            self.want_durable(self.commit.slot, out);
            return false;
        }
        if self.accepted.get(&slot).is_some_and(|known| known.ballot == ballot && known.value != pvalue.value)
        {
            return false; // A2: only a broken leader proposes two values for one slot in one ballot
        }
        if self.accepted.get(&slot).is_some_and(|known| known.ballot == ballot) {
            return true; // a repeat; its record is in the journal, or on its way there before this answer
        }
        self.promised = self.promised.max(ballot);
        out.persist.push(Record::Accept { pvalue: pvalue.clone(), wall_ms: now.wall_ms });
        if slot <= self.commit.slot && ballot == self.commit.ballot {
            self.hand_over(vec![(slot, pvalue.value.clone())], out);
        }
        self.accepted.insert(slot, pvalue);
        assert!(self.promised >= ballot, "A3: an accepted ballot is above the promise");
        true
    }

    fn accept_reconfig(&mut self, number: u64, pvalue: PValue, now: Now, out: &mut Outputs) -> bool {
        if !matches!(&pvalue.value.body, Body::Reconfig(view) if view.number == number) {
            return false;
        }
        self.promise(pvalue.ballot, out);
        let known = self.reconfig.as_ref().map(|p| p.slot);
        if self.is_established(number) || known > Some(pvalue.slot) {
            return true; // chosen already: it can only be the same value
        }
        out.persist.push(Record::Accept { pvalue: pvalue.clone(), wall_ms: now.wall_ms });
        self.reconfig = Some(pvalue);
        true
    }

    fn on_heartbeat(&mut self, from: Address, heartbeat: Heartbeat, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let Heartbeat { ballot, seq, sent_at, commit, view, cluster_ms, echo, read_index } = heartbeat;
        if ballot < self.promised && !self.config.has_bug(Bug::GrantBelowPromise) {
            self.tell_newer_view(from.node, ballot, &mut out);
            let answer = Message::HeartbeatAnswer {
                ballot,
                seq,
                sent_at,
                promised: self.promised,
                granted: false,
                life: self.life,
            };
            out.send(self.me, from, answer);
            return out;
        }
        if !self.knows_view_of(ballot, &view, &mut out) {
            return out;
        }
        self.promise(ballot, &mut out);
        self.clock.see(ballot, cluster_ms, now);
        let granted = self.grant(ballot, view.current.lease, now, &mut out);
        let life = self.life;
        let answer = Message::HeartbeatAnswer { ballot, seq, sent_at, promised: ballot, granted, life };
        out.send(self.me, from, answer);
        self.on_commit(commit, &mut out);
        let bound_until = self.bound.map_or(now.at, |(_, until)| until);
        let alive =
            MasterAlive { ballot, commit, bound_until, view, seq, answered_at: now.at, echo, read_index };
        out.send(self.me, self.sibling(RoleId::Replica), Message::MasterAlive(Box::new(alive.clone())));
        out.send(self.me, self.sibling(RoleId::Leader), Message::MasterAlive(Box::new(alive)));
        out
    }

    /// Hands every value that the master says is decided, and that was accepted in the master's own ballot, to the replica.
    ///
    /// In exactly that ballot: its leader proposes nothing at or below its phase-1 watermark, so such a value was decided in that ballot. A value of
    /// a *higher* ballot proves nothing: the watermark may cover a slot that was chosen in a ballot higher still.
    fn on_commit(&mut self, commit: Watermark, out: &mut Outputs) {
        if (commit.slot, commit.ballot) > (self.commit.slot, self.commit.ballot) {
            self.commit = commit;
        }
        if commit.slot <= self.handed {
            return;
        }
        let trusts_any = self.config.has_bug(Bug::OldValueTakenAsDecided);
        let entries: Vec<(u64, Arc<Value>)> = self
            .accepted
            .range(self.handed + 1..=commit.slot)
            .filter(|(_, pvalue)| pvalue.ballot == commit.ballot || trusts_any)
            .map(|(slot, pvalue)| (*slot, pvalue.value.clone()))
            .collect();
        self.handed = commit.slot;
        self.hand_over(entries, out);
    }

    fn on_durable(&mut self, slot: u64, now: Now) -> Outputs {
        if slot <= self.watermark {
            return Outputs::default();
        }
        self.watermark = slot;
        self.handed = self.handed.max(slot);
        self.accepted = self.accepted.split_off(&(slot + 1));
        match self.early_start.take() {
            Some(early) => {
                let EarlyStart { from, pvalue, sent_at, lease } = *early;
                self.on_p2a(from, pvalue, self.commit, (sent_at, lease), false, now)
            }
            None => Outputs::default(),
        }
    }

    // ---- helpers ----

    fn sibling(&self, role: RoleId) -> Address {
        Address { node: self.me.node, role }
    }

    fn promise(&mut self, ballot: Ballot, out: &mut Outputs) {
        let before = self.promised;
        if ballot > self.promised {
            self.promised = ballot;
            out.persist.push(Record::Promise(ballot));
        }
        assert!(self.promised >= before, "A1: a promise fell");
    }

    fn want_durable(&self, slot: u64, out: &mut Outputs) {
        if slot > self.watermark {
            out.send(self.me, self.sibling(RoleId::Replica), Message::WriteDown { slot });
        }
    }

    /// A view's start entry is taken only by an acceptor that holds every earlier slot: as a durable decision of its node, or accepted in
    /// this same ballot. So a majority that took it can reconstruct everything before it without the old view.
    fn misses_slots_before(&self, slot: u64, pvalue: &PValue) -> bool {
        let starts_view = matches!(&pvalue.value.body,
            Body::Start { establishes: Some(view) } if view.number == pvalue.ballot.view);
        if !starts_view || self.config.has_bug(Bug::HolesAtViewStart) {
            return false;
        }
        (self.watermark + 1..slot)
            .any(|earlier| self.accepted.get(&earlier).is_none_or(|known| known.ballot != pvalue.ballot))
    }

    fn hand_over(&mut self, entries: Vec<(u64, Arc<Value>)>, out: &mut Outputs) {
        if self.config.has_bug(Bug::WatermarkNotDurable)
            && let Some((slot, _)) = entries.last()
        {
            self.watermark = self.watermark.max(*slot);
            self.accepted = self.accepted.split_off(&(self.watermark + 1));
        }
        let learn = Message::Learn { commit: self.commit, entries };
        out.send(self.me, self.sibling(RoleId::Replica), learn);
    }

    /// One page of accepted values, and where the next one starts.
    fn page(&self, from_slot: u64) -> (Vec<PValue>, Option<u64>) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (slot, pvalue) in self.accepted.range(from_slot.max(self.watermark + 1)..) {
            if bytes > 0 && bytes + pvalue.value.weight() > self.config.page_bytes_max {
                return (page, Some(*slot));
            }
            bytes += pvalue.value.weight();
            page.push(pvalue.clone());
        }
        (page, None)
    }
}

impl Role for Acceptor {
    fn on_message(&mut self, from: Address, message: Message, now: Now) -> Outputs {
        match message {
            Message::Probe { ballot } => self.on_probe(from, ballot, now),
            Message::P1a { ballot, from_slot, view } => self.on_p1a(from, ballot, from_slot, &view, now),
            Message::P2a { pvalue, commit, sent_at, lease, may_wait } => {
                let may_wait = may_wait.contains(&self.me.node);
                self.on_p2a(from, pvalue, commit, (sent_at, lease), may_wait, now)
            }
            Message::Heartbeat(heartbeat) => self.on_heartbeat(from, *heartbeat, now),
            Message::Release { ballot, .. } => self.on_release(ballot),
            Message::Commit { commit } => {
                let mut out = Outputs::default();
                self.on_commit(commit, &mut out);
                out
            }
            Message::Durable { slot } => self.on_durable(slot, now),
            Message::ViewIs(view) => self.on_view(&view),
            _ => Outputs::default(),
        }
    }

    fn on_timeout(&mut self, _now: Now) -> Outputs {
        Outputs::default()
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}
