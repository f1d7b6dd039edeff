//! One reign: what the leader does from the adoption of a ballot to its end.
//!
//! Here it takes over what it inherited, proposes, and hears what became of it: L1 (a slot is proposed once, never below the phase-1 watermark) and R2 (inside
//! the window) are asserted where it proposes. Beside that it keeps its lease alive (`pulse`), announces what is decided (`announce`),
//! tells readers how far they must be (`reads`), says whose disk may take its time (`haste`), and changes the member set (`change`).

mod announce;
mod change;
mod haste;
mod pulse;
mod reads;

use super::membership::Hearing;
use super::proposer::Proposer;
use super::transfer::Transfer;
use super::{Leader, State, data};
use crate::commander::Commander;
use crate::message::{Address, Adopted, Message, PValue, RoleId};
use crate::planted::Bug;
use crate::role::{Outputs, Spawn};
use crate::types::{Ballot, NodeId, Now, Slot, Time};
use crate::value::{Body, Command, Origin, Value};
use crate::view::View;
use haste::Haste;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    haste: Haste,
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
            haste: Haste::new(self.me.node, &view, now.at),
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
        reign.haste.decided(&reign.view, grants, now.at);
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
            let may_wait = reign.haste.may_wait(&reign.view, now.at);
            let value = Arc::new(self.value(ballot, Body::Commands(commands), now));
            self.command_with(data(slot), value, may_wait, out);
        }
    }

    fn value(&mut self, made_in: Ballot, body: Body, now: Now) -> Value {
        Value { made_in, stamp_ms: self.clock.stamp(now, self.config.pull_ppm), body }
    }

    /// Starts a commander; every acceptor hurries.
    fn command(&mut self, slot: Slot, value: Arc<Value>, out: &mut Outputs) {
        self.command_with(slot, value, Arc::default(), out);
    }

    /// Starts a commander; these acceptors may take their time.
    fn command_with(&mut self, slot: Slot, value: Arc<Value>, may_wait: Arc<[NodeId]>, out: &mut Outputs) {
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
            (reign.targets.clone(), may_wait),
            commit,
        );
        out.spawns.push(Spawn::Commander(Box::new(commander)));
        reign.announced = reign.announced.max(commit.slot);
    }
}
