//! The acceptor: promises, accepts, and binds itself to a master for the time of a lease.
//!
//! Invariants:
//! * A1: its promise never falls, restarts included.
//! * A2: it accepts one value per ballot and slot.
//! * A3: no accepted value has a ballot above the promise.
//! * A4: while bound to a master it promises to nobody else; a restarted acceptor is bound as if it had just granted its longest
//!   lease to the leader of its promise.
//! * A6: it promises and accepts only in views that it knows, durably. Otherwise a leader that alone knew of a new view could die and leave promises
//!   that nobody can ever surpass.
//! * A5: it reports a watermark, and drops values below it, only when its node holds those decisions durably.

use crate::config::Config;
use crate::message::{Address, ClockReport, Heartbeat, MasterAlive, Message, P1b, PValue, RoleId};
use crate::planted::Bug;
use crate::record::{Durable, Record};
use crate::role::{Outputs, Role};
use crate::types::{Ballot, NodeId, Now, Slot, Time, Watermark};
use crate::value::{Body, Value};
use crate::view::ViewState;
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

/// The newest master's last stamp and when it was seen.
#[derive(Clone, Copy, Debug, Default)]
struct StampSeen {
    master: Ballot,
    stamp_ms: u64,
    since: Since,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    /// In this life: the monotonic clock then.
    Monotonic(Time),
    /// In an earlier life: the wall clock then.
    Wall(u64),
}

impl Default for Since {
    fn default() -> Self {
        Since::Wall(0)
    }
}

impl StampSeen {
    fn see(&mut self, master: Ballot, stamp_ms: u64, now: Now) {
        // A master without a time says nothing about any line.
        if stamp_ms > 0 && (master, stamp_ms) > (self.master, self.stamp_ms) {
            *self = StampSeen { master, stamp_ms, since: Since::Monotonic(now.at) };
        }
    }

    fn report(&self, now: Now) -> ClockReport {
        if self.stamp_ms == 0 {
            return ClockReport::default();
        }
        let (passed_ms, is_monotonic) = match self.since {
            Since::Monotonic(then) => (u64::try_from(now.at.since(then).as_millis()).unwrap_or(0), true),
            Since::Wall(then_ms) => (now.wall_ms.saturating_sub(then_ms), false),
        };
        let estimate_ms = self.stamp_ms.saturating_add(passed_ms);
        ClockReport { master: self.master, stamp_ms: self.stamp_ms, estimate_ms, is_monotonic }
    }
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
            clock: durable.clock.map_or_else(StampSeen::default, |(master, stamp_ms, wall_ms)| StampSeen {
                master,
                stamp_ms,
                since: Since::Wall(wall_ms),
            }),
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
        sent_at: Time,
        lease: Duration,
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

    fn on_release(&mut self, ballot: Ballot) -> Outputs {
        self.released = self.released.max(ballot);
        if self.promised <= ballot && self.bound.is_some_and(|(leader, _)| leader == ballot.leader) {
            self.bound = None;
        }
        Outputs::default()
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
                self.on_p2a(from, pvalue, self.commit, sent_at, lease, now)
            }
            None => Outputs::default(),
        }
    }

    fn on_view(&mut self, view: &ViewState) -> Outputs {
        self.view.learn(view);
        self.forget_established();
        Outputs::default()
    }

    // ---- helpers ----

    /// Whether the view of `ballot` is known, perhaps from the message that brought the ballot (A6).
    fn knows_view_of(&mut self, ballot: Ballot, view: &ViewState, out: &mut Outputs) -> bool {
        if self.view.learn(view) {
            out.persist.push(Record::View(self.view.clone()));
            out.send(self.me, self.sibling(RoleId::Replica), Message::ViewIs(self.view.clone()));
            self.forget_established();
        }
        ballot.view <= self.view.current.number
    }

    /// An established view's reconfiguration need not be kept.
    fn forget_established(&mut self) {
        if let Some(PValue { slot: Slot::Reconfig(number), .. }) = &self.reconfig
            && self.is_established(*number)
        {
            self.reconfig = None;
        }
    }

    fn sibling(&self, role: RoleId) -> Address {
        Address { node: self.me.node, role }
    }

    fn is_established(&self, view: u64) -> bool {
        let known = &self.view;
        known.current.number > view || (known.current.number == view && known.established)
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

    /// How long this acceptor still helps nobody but another leader.
    fn bound_to_another(&self, leader: NodeId, now: Now) -> Duration {
        match self.bound {
            Some((master, until)) if master != leader => until.since(now.at),
            _ => Duration::ZERO,
        }
    }

    /// Binds this acceptor to the leader of `ballot`, which is not below its promise, from now on for `lease`.
    fn grant(&mut self, ballot: Ballot, lease: Duration, now: Now, out: &mut Outputs) -> bool {
        if ballot <= self.released {
            return false;
        }
        if lease > self.lease_max {
            self.lease_max = lease;
            out.persist.push(Record::Lease(lease));
        }
        let until = now.at.plus(lease);
        self.bound = match self.bound {
            Some((leader, longer)) if leader == ballot.leader && longer > until => Some((leader, longer)),
            _ => Some((ballot.leader, until)),
        };
        true
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

    /// A sender that uses ballots of an older view learns of the newer one.
    fn tell_newer_view(&self, node: NodeId, ballot: Ballot, out: &mut Outputs) {
        if ballot.view < self.view.current.number {
            let to = Address { node, role: RoleId::Replica };
            out.send(self.me, to, Message::ViewIs(self.view.clone()));
        }
    }
}

impl Role for Acceptor {
    fn on_message(&mut self, from: Address, message: Message, now: Now) -> Outputs {
        match message {
            Message::Probe { ballot } => self.on_probe(from, ballot, now),
            Message::P1a { ballot, from_slot, view } => self.on_p1a(from, ballot, from_slot, &view, now),
            Message::P2a { pvalue, commit, sent_at, lease } => {
                self.on_p2a(from, pvalue, commit, sent_at, lease, now)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Targets;
    use crate::view::View;
    use bytes::Bytes;

    const NOW: Now = Now { at: Time(1_000_000), wall_ms: 1 };

    fn acceptor() -> Acceptor {
        let view = View::first((1..=5).map(|id| (NodeId(id), Bytes::new())), Duration::from_secs(1));
        let durable = Durable { view: Some(ViewState::first(view)), ..Durable::default() };
        Acceptor::recover(NodeId(4), Arc::new(Config::default()), durable, 0, NOW)
    }

    fn ballot(round: u64, leader: u64) -> Ballot {
        Ballot { view: 1, round, leader: NodeId(leader) }
    }

    fn accept(acceptor: &mut Acceptor, ballot: Ballot) -> Outputs {
        let value = Arc::new(Value { made_in: ballot, stamp_ms: 1, body: Body::Noop });
        let pvalue = PValue { slot: Slot::Data(1), ballot, value };
        let from = Address { node: ballot.leader, role: RoleId::Commander(ballot, Slot::Data(1)) };
        let lease = Duration::from_secs(1);
        let commit = Watermark::default();
        acceptor.on_message(from, Message::P2a { pvalue, commit, sent_at: Time(0), lease }, NOW)
    }

    fn handed_over(acceptor: &mut Acceptor, ballot: Ballot) -> usize {
        let from = Address { node: ballot.leader, role: RoleId::Leader };
        let commit = Watermark { ballot, slot: 1 };
        let outputs = acceptor.on_message(from, Message::Commit { commit }, NOW);
        outputs
            .sends
            .iter()
            .map(|envelope| match &envelope.message {
                Message::Learn { entries, .. } => entries.len(),
                _ => 0,
            })
            .sum()
    }

    #[test]
    fn a_watermark_decides_only_what_was_accepted_in_its_own_ballot() {
        // n1's phase 1 ended late: its watermark covers slot 1, which was chosen in 1.2.n3. n4 accepted something else in between.
        let mut late = acceptor();
        let _ = accept(&mut late, ballot(1, 4));
        assert_eq!(handed_over(&mut late, ballot(1, 1)), 0, "a value of a higher ballot proves nothing");
        let mut lower = acceptor();
        let _ = accept(&mut lower, ballot(1, 1));
        assert_eq!(handed_over(&mut lower, ballot(2, 3)), 0, "nor does a value of a lower one");
        let mut same = acceptor();
        let _ = accept(&mut same, ballot(2, 3));
        assert_eq!(handed_over(&mut same, ballot(2, 3)), 1);
    }

    /// What an acceptor answers to another leader that asks for a promise at `at`.
    fn ask(acceptor: &mut Acceptor, at: Time) -> Outputs {
        let (ballot, view) = (ballot(2, 2), acceptor.view.clone());
        let from = Address { node: NodeId(2), role: RoleId::Scout(ballot) };
        let now = Now { at, wall_ms: 1 };
        acceptor.on_message(from, Message::P1a { ballot, from_slot: 0, view }, now)
    }

    /// An acceptor that granted a lease of a second, and restarted at second 5.
    fn restarted(config: Config) -> Acceptor {
        let mut durable = Durable { view: Some(acceptor().view), ..Durable::default() };
        durable.apply(Record::Promise(ballot(1, 1)));
        durable.apply(Record::Lease(Duration::from_secs(1)));
        let now = Now { at: Time(5_000_000), wall_ms: 1 };
        Acceptor::recover(NodeId(4), Arc::new(config), durable, 0, now)
    }

    fn refuses(outputs: &Outputs) -> bool {
        matches!(outputs.sends[0].message, Message::Refused { .. })
    }

    #[test]
    fn a_bound_acceptor_refuses_others_and_changes_nothing() {
        let mut acceptor = acceptor();
        let _ = accept(&mut acceptor, ballot(1, 1));
        let refused = ask(&mut acceptor, Time(1_900_000));
        assert!(refuses(&refused));
        assert_eq!(refused.sends[0].to, Targets::One(NodeId(2)));
        assert!(refused.persist.is_empty());
        assert!(!refuses(&ask(&mut acceptor, Time(2_000_001))));
    }

    #[test]
    fn a_restarted_acceptor_is_bound_as_if_it_had_just_granted_its_longest_lease() {
        let mut acceptor = restarted(Config::default());
        assert!(refuses(&ask(&mut acceptor, Time(5_900_000))));
        assert!(!refuses(&ask(&mut acceptor, Time(6_000_001))));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_restarted_acceptor_that_forgets_its_lease_is_noticed() {
        let bug = Some(Bug::LeaseForgottenAtRestart);
        let mut acceptor = restarted(Config { bug, ..Config::default() });
        assert!(!refuses(&ask(&mut acceptor, Time(5_900_000))), "the check above would fail");
    }
}
