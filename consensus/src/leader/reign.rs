//! One reign: what the leader does from the adoption of a ballot to its end.

use super::membership::Hearing;
use super::proposer::Proposer;
use super::transfer::Transfer;
use super::{Leader, State, admin_answer, data};
use crate::commander::Commander;
use crate::message::{Address, AdminError, Adopted, Echo, Heartbeat, Message, PValue, RoleId};
use crate::planted::Bug;
use crate::record::Record;
use crate::role::{Outputs, Spawn};
use crate::types::{Ballot, NodeId, Now, Slot, Time, Watermark};
use crate::value::{Body, Command, Origin, Value};
use crate::view::{Change, Condition, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A decision that nobody waits for on another node is announced with the next proposal, or after this.
const ANNOUNCE_LATER: Duration = Duration::from_millis(5);

/// The state of one reign.
#[derive(Clone, Debug)]
pub(super) struct Reign {
    pub proposer: Proposer,
    /// Slots with a commander at work.
    pub in_flight: BTreeSet<Slot>,
    /// An acceptor promised a higher ballot.
    pub preempted: bool,
    pub change: Option<PendingChange>,
    pub transfer: Option<Transfer>,
    pub(super) view: Arc<View>,
    pub(super) targets: Arc<[NodeId]>,
    pub(super) hearing: Hearing,
    since: Time,
    heartbeat_at: Time,
    heartbeat_seq: u64,
    /// What was announced as decided, with a heartbeat or without.
    announced: u64,
    /// What the newest heartbeat announced: members answer it with how far they are. Not less than what phase 1 found, although a master that has
    /// not applied that itself announces less.
    beaten: u64,
    announce_at: Option<Time>,
    /// Somebody on another node waits for the decisions up to here.
    urgent_through: u64,
    /// Read-index requests that came before the start entry was applied or the lease held; the newest of each node.
    early_readers: BTreeMap<NodeId, (Address, Origin, u64)>,
}

/// A reconfiguration under way, and who asked for it.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    pub from: Address,
    pub ticket: u64,
}

impl Reign {
    /// Whether a change of the members is on its way: asked for, made by the master itself, or inherited.
    pub(super) fn is_changing(&self) -> bool {
        self.change.is_some() || self.in_flight.iter().any(|slot| matches!(slot, Slot::Reconfig(_)))
    }

    pub(super) fn applied_by(&self, member: NodeId) -> Option<u64> {
        self.hearing.of(member).map(|heard| heard.applied)
    }
}

impl Leader {
    pub(super) fn begin_reign(&mut self, adopted: Adopted, now: Now, out: &mut Outputs) {
        let Adopted { ballot, watermark, holder, accepted, reconfig, clocks, .. } = adopted;
        self.clock.adopt(&clocks, now);
        if self.config.has_bug(Bug::StampGoesBack) {
            self.clock.trust_wall(now);
        }
        self.lease.new_ballot(now.at.plus(self.counted()));
        let mut phase1_watermark = watermark;
        if self.config.has_bug(Bug::ProposeBelowWatermark) {
            phase1_watermark = watermark.min(self.replica_applied);
        }
        let last_inherited = accepted.last_key_value().map_or(watermark, |(slot, _)| *slot);
        let start_slot = last_inherited + 1;
        // An unbroken lease goes on serving; a new one waits for its own start entry.
        let serves_on =
            self.lease.holds(now.at) && self.serves_from.is_some_and(|slot| slot <= self.replica_applied);
        if !serves_on {
            self.serves_from = Some(start_slot);
        }
        let view = self.views.current.clone();
        self.state = State::Leading(Box::new(Reign {
            proposer: Proposer::new(ballot, phase1_watermark, start_slot),
            in_flight: BTreeSet::new(),
            preempted: false,
            change: None,
            transfer: None,
            targets: view.followers().collect(),
            hearing: Hearing::new(&view, now.at),
            view,
            since: now.at,
            heartbeat_at: now.at,
            heartbeat_seq: 0,
            announced: 0,
            beaten: last_inherited,
            announce_at: None,
            urgent_through: start_slot,
            early_readers: BTreeMap::new(),
        }));
        for slot in phase1_watermark + 1..=last_inherited {
            let value = match accepted.get(&slot) {
                Some(pvalue) => pvalue.value.clone(),
                None => Arc::new(self.value(ballot, Body::Noop, now)), // a gap that a dead leader left
            };
            self.command(data(slot), value, out);
        }
        let establishes = (!self.views.established).then(|| self.views.current.clone());
        let start = Arc::new(self.value(ballot, Body::Start { establishes }, now));
        self.command(data(start_slot), start, out);
        if let Some(pvalue) = reconfig.filter(|_| !self.config.has_bug(Bug::ReconfigForgotten)) {
            self.command(pvalue.slot, pvalue.value, out);
        }
        if self.replica_applied < phase1_watermark {
            let catch_up = Message::CatchUp { slot: phase1_watermark, holder: Some(holder) };
            out.send(self.me, self.sibling(RoleId::Replica), catch_up);
        }
        self.beat(now, out);
    }

    // ---- handlers ----

    pub(super) fn on_decided(
        &mut self,
        from: Address,
        slot: Slot,
        ballot: Ballot,
        value: Arc<Value>,
        grants: &[(NodeId, Time)],
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        out.retires.push(from.role);
        let State::Leading(reign) = &mut self.state else { return out };
        if reign.proposer.ballot != ballot || !reign.in_flight.remove(&slot) {
            return out;
        }
        for (voter, sent_at) in grants {
            self.count_grant(*voter, *sent_at, now);
        }
        let State::Leading(reign) = &mut self.state else { return out };
        match slot {
            Slot::Data(number) => {
                reign.proposer.decide(number, value.clone());
                self.decided_max = self.decided_max.max(number);
                let decision = Message::Decision { slot: number, value };
                out.send(self.me, self.sibling(RoleId::Replica), decision);
                if self.config.has_bug(Bug::AnnounceBeforeApply) {
                    self.announce(&mut out);
                }
            }
            Slot::Reconfig(_) => {
                if let Body::Reconfig(view) = &value.body {
                    self.enter_view(view, now, &mut out);
                }
            }
        }
        out
    }

    /// A reconfiguration was chosen: this node leads on in the new view, with a new ballot.
    fn enter_view(&mut self, view: &Arc<View>, now: Now, out: &mut Outputs) {
        if let State::Leading(reign) = &mut self.state
            && let Some(change) = reign.change.take()
        {
            out.send(self.me, change.from, admin_answer(change.ticket, Ok(view.number)));
        }
        let before = self.views.current.clone();
        if !self.views.chosen(view) {
            return;
        }
        for departed in before.members.keys().filter(|id| !view.is_member(**id)) {
            // Told once; if it does not hear it, it finds out when it hears no master any more.
            let to = Address { node: *departed, role: RoleId::Replica };
            out.send(self.me, to, Message::ViewIs(self.views.clone()));
        }
        out.persist.push(Record::View(self.views.clone()));
        self.tell_siblings(out);
        if view.is_voter(self.me.node) {
            self.start_scout(now, out);
        } else {
            self.step_down(out);
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one message
    pub(super) fn on_heartbeat_answer(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        seq: u64,
        sent_at: Time,
        promised: Ballot,
        granted: bool,
        life: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        self.seen = self.seen.max(promised);
        let late = self.config.has_bug(Bug::GrantAfterRelease) && ballot == self.released;
        if late && granted && promised == ballot {
            let (view, counted) = (self.views.current.clone(), self.counted());
            self.lease.grant(from, sent_at, &view, counted);
        }
        let State::Leading(reign) = &mut self.state else { return out };
        if reign.proposer.ballot != ballot {
            return out;
        }
        if promised > ballot {
            reign.preempted = true;
            return out;
        }
        reign.hearing.answered(from, Echo { life, seq }, now.at);
        if granted {
            self.count_grant(from, sent_at, now);
            self.answer_early_readers(now, &mut out);
        }
        self.move_transfer(now, &mut out);
        out
    }

    pub(super) fn on_progress(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        applied: u64,
        durable: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        if let State::Leading(reign) = &mut self.state
            && reign.proposer.ballot == ballot
        {
            reign.hearing.progressed(from, applied, durable, reign.beaten);
            if let Some(transfer) = &mut reign.transfer {
                transfer.answered.insert(from);
            }
            self.move_transfer(now, &mut out);
        }
        out
    }

    pub(super) fn on_applied(&mut self, slot: u64, stamp_ms: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.clock.see(stamp_ms, now);
        if slot <= self.replica_applied {
            return out;
        }
        self.replica_applied = slot;
        let State::Leading(reign) = &mut self.state else { return out };
        reign.proposer.applied(slot);
        if !self.clock.is_set() && slot >= reign.proposer.start_slot {
            self.clock.begin(now);
        }
        self.propose(now, &mut out);
        self.announce_soon(now, &mut out);
        self.move_transfer(now, &mut out);
        self.answer_early_readers(now, &mut out);
        out
    }

    pub(super) fn on_request(&mut self, commands: Vec<Command>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let State::Leading(reign) = &mut self.state else { return out };
        let Some(origin) = commands.first().map(|command| command.id.origin) else { return out };
        if reign.transfer.as_ref().is_some_and(|transfer| transfer.is_closing) {
            return out; // the successor gets it: origins send again to a new master
        }
        if let Some(expected) = reign.proposer.enqueue(commands, self.config.queue_max) {
            let to = Address { node: origin.node, role: RoleId::Replica };
            let ballot = reign.proposer.ballot;
            out.send(self.me, to, Message::OutOfOrder { origin, expected, ballot });
        }
        self.propose(now, &mut out);
        out
    }

    pub(super) fn on_read_index(&mut self, from: Address, reader: Origin, seq: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if !self.can_read(now) {
            if let State::Leading(reign) = &mut self.state {
                reign.early_readers.insert(from.node, (from, reader, seq));
            }
            return out;
        }
        let slot = self.read_index();
        out.send(self.me, from, Message::ReadIndexAt { reader, seq, slot });
        if let State::Leading(reign) = &mut self.state {
            reign.urgent_through = reign.urgent_through.max(slot);
            self.announce_soon(now, &mut out);
        }
        out
    }

    /// Everything that any client saw acknowledged lies at or below this slot: the replica applies nothing in this reign that did not
    /// pass through this leader.
    fn read_index(&self) -> u64 {
        self.decided_max.max(self.replica_applied)
    }

    /// Answers readers that came before this master could answer them.
    fn answer_early_readers(&mut self, now: Now, out: &mut Outputs) {
        if let State::Leading(reign) = &mut self.state {
            if reign.early_readers.is_empty() {
                return;
            }
            for (_, (from, reader, seq)) in std::mem::take(&mut reign.early_readers) {
                out.append(self.on_read_index(from, reader, seq, now));
            }
        }
    }

    /// A removed node may stop once a majority of the new view holds its start entry durably.
    pub(super) fn on_may_i_stop(&self, from: Address) -> Outputs {
        let mut out = Outputs::default();
        let State::Leading(reign) = &self.state else { return out };
        let holds_start = |id: &NodeId| {
            reign.hearing.of(*id).is_some_and(|heard| heard.durable >= reign.proposer.start_slot)
        };
        let holders: BTreeSet<NodeId> = reign.view.voters().filter(holds_start).collect();
        let is_needed = reign.view.is_member(from.node) || !self.views.established;
        if !is_needed && reign.view.is_majority(&holders) {
            out.send(self.me, from, Message::Dismissed(self.views.clone()));
        }
        out
    }

    pub(super) fn on_reconfigure(
        &mut self,
        from: Address,
        change: &Change,
        ticket: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        let result = self.try_change(change, Some((from, ticket)), now, &mut out);
        if let Err(error) = result {
            out.send(self.me, from, admin_answer(ticket, Err(error)));
        }
        out
    }

    // ---- time ----

    pub(super) fn reign_deadline(&self, reign: &Reign) -> Time {
        let ends = self.reign_ends(reign);
        let first = reign.heartbeat_at.min(ends);
        reign.announce_at.map_or(first, |at| first.min(at))
    }

    pub(super) fn on_reign_timeout(&mut self, now: Now, out: &mut Outputs) {
        let State::Leading(reign) = &mut self.state else { return };
        if reign.announce_at.is_some_and(|at| at <= now.at) {
            self.announce(out);
        }
        let State::Leading(reign) = &self.state else { return };
        let behind = self.replica_applied < reign.proposer.phase1_watermark
            && now.at.since(reign.since) > self.config.catch_up_max;
        if now.at >= self.reign_ends(reign) || behind {
            // Not heard by a majority, or the decisions that phase 1 spoke of cannot be had: somebody else may do better.
            let quiet = if behind { Duration::ZERO } else { self.views.current.lease };
            self.backoff.grow(&self.config);
            self.follow(now, quiet, out);
            return;
        }
        if now.at >= reign.heartbeat_at {
            if reign.preempted && self.lease.holds(now.at) {
                self.start_scout(now, out); // win the minority back with a higher round; the lease goes on
            } else {
                self.beat(now, out);
                self.tend(now, out);
            }
        }
    }

    /// A reign ends with its lease; a new one has the time of a lease to get one.
    fn reign_ends(&self, reign: &Reign) -> Time {
        let first = reign.since.plus(reign.view.lease);
        self.lease.until().map_or(first, |until| until.max(first))
    }

    /// Sends a heartbeat to every member.
    pub(super) fn beat(&mut self, now: Now, out: &mut Outputs) {
        let serving = self.can_read(now);
        let cluster_ms = self.clock.stamp(now, self.config.pull_ppm);
        let (commit, read_index) = (self.commit(), self.read_index());
        let State::Leading(reign) = &mut self.state else { return };
        reign.heartbeat_seq += 1;
        reign.heartbeat_at = now.at.plus(reign.view.lease / self.config.heartbeats_per_lease);
        for node in reign.view.members.keys() {
            let heartbeat = Heartbeat {
                ballot: reign.proposer.ballot,
                seq: reign.heartbeat_seq,
                sent_at: now.at,
                commit,
                view: self.views.clone(),
                cluster_ms,
                echo: reign.hearing.of(*node).and_then(|heard| heard.answer).filter(|_| serving),
                read_index,
            };
            let to = Address { node: *node, role: RoleId::Acceptor };
            out.send(self.me, to, Message::Heartbeat(Box::new(heartbeat)));
        }
        reign.announced = reign.announced.max(commit.slot);
        reign.beaten = reign.beaten.max(commit.slot);
        reign.announce_at = None;
    }

    /// What comes with every heartbeat: repeats what may have been lost inside this node, and looks after the members.
    fn tend(&mut self, now: Now, out: &mut Outputs) {
        let replica = self.sibling(RoleId::Replica);
        let State::Leading(reign) = &mut self.state else { return };
        for (slot, value) in reign.proposer.decided.range(self.replica_applied + 1..) {
            let decision = Message::Decision { slot: *slot, value: value.clone() };
            out.send(self.me, replica, decision);
        }
        if self.replica_applied < reign.proposer.phase1_watermark {
            // Without the holder: it was named when the reign began, and peers take turns.
            let catch_up = Message::CatchUp { slot: reign.proposer.phase1_watermark, holder: None };
            out.send(self.me, replica, catch_up);
        }
        // Members that are down but answer again follow like the others, so that they can get in step.
        let (view, hearing) = (reign.view.clone(), &reign.hearing);
        let lease = view.lease;
        let is_back = |id: &NodeId| {
            hearing.of(*id).is_some_and(|heard| heard.in_ballot && now.at.since(heard.at) <= lease)
        };
        let follows = |(id, member): (&NodeId, &crate::view::Member)| {
            (member.condition != Condition::Down || is_back(id)).then_some(*id)
        };
        reign.targets = view.members.iter().filter_map(follows).collect();
        self.expire_transfer(now, out);
        let State::Leading(reign) = &self.state else { return };
        if let Some(change) = reign.hearing.due_change(&view, now.at, &self.config) {
            // Refused for now: it comes up again with the next heartbeat.
            let _ = self.try_change(&change, None, now, out);
        }
    }

    // ---- proposing ----

    fn propose(&mut self, now: Now, out: &mut Outputs) {
        if !self.clock.is_set() {
            return; // a command needs a time
        }
        loop {
            let (applied, config) = (self.replica_applied, self.config.clone());
            let State::Leading(reign) = &mut self.state else { return };
            if !reign.proposer.has_queued() || !reign.proposer.has_room(applied, config.window) {
                return;
            }
            let commands = reign.proposer.batch(config.batch_commands_max, config.batch_bytes_max);
            let slot = reign.proposer.next_slot;
            assert!(slot <= applied + config.window, "R2: slot {slot} is outside the window");
            reign.proposer.next_slot += 1;
            let ballot = reign.proposer.ballot;
            if commands.iter().any(|command| command.id.origin.node != self.me.node) {
                reign.urgent_through = slot;
            }
            let value = Arc::new(self.value(ballot, Body::Commands(commands), now));
            self.command(data(slot), value, out);
        }
    }

    fn value(&mut self, made_in: Ballot, body: Body, now: Now) -> Value {
        Value { made_in, stamp_ms: self.clock.stamp(now, self.config.pull_ppm), body }
    }

    /// Starts a commander.
    fn command(&mut self, slot: Slot, value: Arc<Value>, out: &mut Outputs) {
        let commit = self.commit();
        let State::Leading(reign) = &mut self.state else { return };
        let ballot = reign.proposer.ballot;
        let fresh = reign.in_flight.insert(slot);
        assert!(fresh, "L1: slot {slot:?} is proposed twice in ballot {ballot}");
        assert!(
            !matches!(slot, Slot::Data(number) if number <= reign.proposer.phase1_watermark),
            "L1: slot {slot:?} lies below the phase-1 watermark"
        );
        let pvalue = PValue { slot, ballot, value };
        let commander = Commander::new(
            self.me.node,
            self.config.clone(),
            pvalue,
            reign.view.clone(),
            reign.targets.clone(),
            commit,
        );
        out.spawns.push(Spawn::Commander(Box::new(commander)));
        reign.announced = reign.announced.max(commit.slot);
    }

    /// What may be announced as decided now.
    fn commit(&self) -> Watermark {
        let State::Leading(reign) = &self.state else { return Watermark::default() };
        if self.config.has_bug(Bug::AnnounceBeforeApply) {
            return reign.proposer.commit(u64::MAX);
        }
        if self.config.has_bug(Bug::WatermarkOverreach) {
            return Watermark { ballot: reign.proposer.ballot, slot: self.replica_applied };
        }
        reign.proposer.commit(self.replica_applied)
    }

    fn announce(&mut self, out: &mut Outputs) {
        let commit = self.commit();
        let State::Leading(reign) = &mut self.state else { return };
        reign.announce_at = None;
        if commit.slot > reign.announced {
            reign.announced = commit.slot;
            out.broadcast(self.me, reign.targets.clone(), RoleId::Acceptor, Message::Commit { commit });
        }
    }

    /// Announces at once what somebody waits for, the rest a little later.
    fn announce_soon(&mut self, now: Now, out: &mut Outputs) {
        let commit = self.commit();
        let State::Leading(reign) = &mut self.state else { return };
        if commit.slot <= reign.announced {
            return;
        }
        if reign.announced < reign.urgent_through || reign.transfer.is_some() {
            self.announce(out);
        } else if reign.announce_at.is_none() {
            reign.announce_at = Some(now.at.plus(ANNOUNCE_LATER));
        }
    }

    // ---- lease, members ----

    fn counted(&self) -> Duration {
        self.config.lease_counted(self.views.current.lease)
    }

    fn count_grant(&mut self, voter: NodeId, sent_at: Time, now: Now) {
        let State::Leading(reign) = &self.state else { return };
        let from = if self.config.has_bug(Bug::LeaseFromAnswer) { now.at } else { sent_at.min(now.at) };
        self.lease.grant(voter, from, &reign.view, self.config.lease_counted(reign.view.lease));
    }

    /// Proposes the view after `change`, if that is safe now.
    fn try_change(
        &mut self,
        change: &Change,
        asked: Option<(Address, u64)>,
        now: Now,
        out: &mut Outputs,
    ) -> Result<(), AdminError> {
        let master = self.seen.leader;
        let (me, serving, config) = (self.me.node, self.can_read(now), self.config.clone());
        let established = self.views.established || config.has_bug(Bug::ReconfigBeforeEstablished);
        let State::Leading(reign) = &mut self.state else {
            return Err(AdminError::NotMaster((master != me).then_some(master)));
        };
        if !serving || !established || reign.is_changing() || reign.transfer.is_some() {
            return Err(AdminError::Busy);
        }
        let next = reign.view.after(change)?;
        let in_step: BTreeSet<NodeId> = next
            .voters()
            .filter(|voter| {
                *voter == me || reign.hearing.is_in_step(*voter, now.at, reign.view.lease, config.in_step)
            })
            .collect();
        if !next.is_majority(&in_step) {
            return Err(AdminError::NotInStep);
        }
        if !next.is_voter(me) {
            // A master hands over before it goes; whoever asked asks the successor again.
            let (from, ticket) = asked.unwrap_or((self.me, 0));
            return self.begin_transfer(from, None, ticket, true, now, out);
        }
        let ballot = reign.proposer.ballot;
        reign.change = asked.map(|(from, ticket)| PendingChange { from, ticket });
        let slot = Slot::Reconfig(next.number);
        let value = Arc::new(self.value(ballot, Body::Reconfig(Arc::new(next)), now));
        self.command(slot, value, out);
        Ok(())
    }
}
