//! The leader: wants to lead when nobody does, and leads.
//!
//! It follows, probes, scouts, and reigns. A reign is one adopted ballot: the leader proposes again what it inherited, then its start
//! entry, then batches of commands, keeps the master lease alive by heartbeats, and runs changes of the member set.
//!
//! Invariants: L1, R2, W1 (`proposer`), M1 (`lease`), E2 (`clock`), and
//! * L2: a ballot is durable before its first use, so a restarted leader never uses one twice.
//! * L3: a ballot of view v is used only if `Reconfig(v)` is known to be chosen, and the next reconfiguration is proposed only when v is
//!   established, one at a time.

mod clock;
mod election;
mod lease;
mod membership;
mod proposer;
mod reign;
mod transfer;

use crate::config::Config;
use crate::message::{Address, AdminError, Adopted, MasterAlive, Message, PValue, RoleId};
use crate::planted::Bug;
use crate::record::{Durable, Record};
use crate::role::{Outputs, Role, Spawn};
use crate::scout::Scout;
use crate::types::{Ballot, NodeId, Now, Slot, Time};
use crate::view::ViewState;
use clock::ClusterClock;
use election::{Backoff, Probing, Verdict};
use lease::Lease;
use reign::Reign;
use std::sync::Arc;
use std::time::Duration;

/// One node's leader.
#[derive(Clone, Debug)]
pub struct Leader {
    me: Address,
    config: Arc<Config>,
    views: ViewState,
    /// The highest ballot this leader has used.
    used: Ballot,
    /// The highest ballot heard of.
    seen: Ballot,
    state: State,
    backoff: Backoff,
    lease: Lease,
    /// Lease reads are allowed once the replica has applied this start entry: the first of an unbroken lease.
    serves_from: Option<u64>,
    replica_applied: u64,
    /// The highest decision ever handed to the replica: no read index is below it.
    decided_max: u64,
    clock: ClusterClock,
    /// The last master named this node as its successor.
    invited: bool,
    /// The ballot that this leader released last.
    released: Ballot,
}

#[derive(Clone, Debug)]
enum State {
    Following,
    Probing(Probing),
    Scouting { ballot: Ballot, until: Time },
    Leading(Box<Reign>),
}

impl Leader {
    /// Puts a leader together from what is durable.
    #[must_use]
    pub fn recover(id: NodeId, config: Arc<Config>, durable: &Durable, seed: u64, now: Now) -> Leader {
        Leader {
            me: Address { node: id, role: RoleId::Leader },
            views: durable.view.clone().unwrap_or_else(ViewState::unknown),
            used: durable.round,
            seen: durable.round.max(durable.promise),
            state: State::Following,
            backoff: Backoff::new(&config, seed, now.at, durable.lease_max),
            lease: Lease::default(),
            serves_from: None,
            replica_applied: 0,
            decided_max: 0,
            clock: ClusterClock::default(),
            invited: false,
            released: Ballot::ZERO,
            config,
        }
    }

    /// The ballot in which it leads or wants to lead, or the last one.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.used
    }

    /// Whether this node is the master: its ballot is adopted and it holds the lease.
    #[must_use]
    pub fn is_master(&self, now: Now) -> bool {
        matches!(self.state, State::Leading(_)) && self.lease.holds(now.at)
    }

    /// Whether a read that arrived before `now` may be answered from this node's machine.
    #[must_use]
    pub fn can_read(&self, now: Now) -> bool {
        let started = self.serves_from.is_some_and(|slot| slot <= self.replica_applied);
        let leading = matches!(self.state, State::Leading(_));
        let held = self.lease.holds(now.at);
        (held || (leading && self.config.has_bug(Bug::ReadWithoutLease)))
            && (started || (leading && self.config.has_bug(Bug::ReadBeforeStart)))
    }

    /// When the lease ends, on this node's clock.
    #[must_use]
    pub fn lease_until(&self) -> Option<Time> {
        self.lease.until()
    }

    /// While it reigns: the slot that a member said it has applied.
    #[must_use]
    pub fn applied_by(&self, member: NodeId) -> Option<u64> {
        match &self.state {
            State::Leading(reign) => reign.applied_by(member),
            _ => None,
        }
    }

    /// The configuration that it knows.
    #[must_use]
    pub fn view(&self) -> &ViewState {
        &self.views
    }

    /// Cluster time, if this node is the master: for reads that look at deadlines.
    #[must_use]
    pub fn cluster_ms(&self, now: Now) -> u64 {
        self.clock.clone().stamp(now, self.config.pull_ppm)
    }

    /// What it is doing, for people.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Following => "following",
            State::Probing(_) => "probing",
            State::Scouting { .. } => "scouting",
            State::Leading(_) => "leading",
        }
    }

    // ---- election ----

    /// Asks around without wanting to lead: whoever knows a newer view tells it. A learner that hears no master may have been removed.
    fn ask_for_view(&mut self, now: Now, out: &mut Outputs) {
        let ballot = self.next_ballot();
        for member in self.views.current.members.keys().filter(|member| **member != self.me.node) {
            let to = Address { node: *member, role: RoleId::Acceptor };
            out.send(self.me, to, Message::Probe { ballot });
        }
        self.backoff.wait(now.at, self.views.current.lease);
    }

    fn start_probe(&mut self, now: Now, out: &mut Outputs) {
        let ballot = self.next_ballot();
        let until = now.at.plus(self.config.resend.max(self.config.backoff_min));
        self.state = State::Probing(Probing::new(ballot, until));
        for voter in self.views.phase1_voters() {
            let to = Address { node: voter, role: RoleId::Acceptor };
            out.send(self.me, to, Message::Probe { ballot });
        }
    }

    fn on_probe_answer(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        promised: Ballot,
        wait: Duration,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        self.seen = self.seen.max(promised);
        let wait = wait.min(Duration::from_secs(60));
        let State::Probing(probing) = &mut self.state else { return out };
        if probing.ballot != ballot {
            return out;
        }
        if promised >= ballot {
            self.follow(now, Duration::ZERO, &mut out); // try again soon, with a ballot above it
            return out;
        }
        match probing.answer(from, wait, &self.views) {
            Verdict::Open => {}
            Verdict::Willing => self.start_scout(now, &mut out),
            Verdict::Bound(wait) => self.follow(now, wait, &mut out),
        }
        out
    }

    fn start_scout(&mut self, now: Now, out: &mut Outputs) {
        self.leave_reign(out);
        let ballot = self.next_ballot();
        assert!(ballot > self.used, "L2: ballot {ballot} is used twice");
        if ballot.view > self.used.view {
            out.persist.push(Record::View(self.views.clone()));
        }
        out.persist.push(Record::Round(ballot));
        if self.config.has_bug(Bug::BallotReused) {
            out.persist.clear();
        }
        self.used = ballot;
        self.seen = self.seen.max(ballot);
        let scout = Scout::new(self.me.node, self.config.clone(), ballot, self.views.clone());
        out.spawns.push(Spawn::Scout(Box::new(scout)));
        let until = now.at.plus(self.views.current.lease + self.config.resend * 4);
        self.state = State::Scouting { ballot, until };
    }

    fn on_preempted(&mut self, from: Address, ballot: Ballot, promised: Ballot, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.seen = self.seen.max(promised);
        match &mut self.state {
            State::Scouting { ballot: mine, .. } if *mine == ballot => {
                out.retires.push(from.role);
                if self.lease.holds(now.at) {
                    // Pre-empted by a minority: nobody else can be adopted while the lease holds.
                    self.start_scout(now, &mut out);
                } else {
                    self.backoff.grow(&self.config);
                    self.follow(now, Duration::ZERO, &mut out);
                }
            }
            State::Leading(reign) if reign.proposer.ballot == ballot => reign.preempted = true,
            _ => out.retires.push(from.role),
        }
        out
    }

    fn on_scout_refused(&mut self, from: Address, ballot: Ballot, wait: Duration, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let mine = matches!(self.state, State::Scouting { ballot: mine, .. } if mine == ballot);
        if mine && self.lease.holds(now.at) {
            return out; // a voter that has just restarted is bound for a while: the scout asks again
        }
        out.retires.push(from.role);
        if mine {
            if self.invited {
                // The release is on its way to them.
                self.follow(now, Duration::ZERO, &mut out);
                self.backoff.hurry(now.at.plus(self.config.backoff_min / 4));
            } else {
                self.backoff.grow(&self.config);
                self.follow(now, wait.min(Duration::from_secs(60)), &mut out);
            }
        }
        out
    }

    fn on_adopted(&mut self, from: Address, adopted: Adopted, now: Now) -> Outputs {
        let mut out = Outputs::default();
        out.retires.push(from.role);
        if !matches!(self.state, State::Scouting { ballot, .. } if ballot == adopted.ballot) {
            return out;
        }
        if self.views.learn(&adopted.view) {
            self.tell_siblings(&mut out);
        }
        if self.views.current.number != adopted.ballot.view {
            self.start_scout(now, &mut out); // a newer view was chosen meanwhile
            return out;
        }
        self.invited = false;
        self.backoff.reset(&self.config);
        self.begin_reign(adopted, now, &mut out);
        out
    }

    fn on_master_alive(&mut self, alive: &MasterAlive, now: Now) -> Outputs {
        let mut out = self.on_view(&alive.view, now);
        self.seen = self.seen.max(alive.ballot);
        if alive.ballot.leader == self.me.node {
            return out;
        }
        let beaten = match &self.state {
            State::Leading(reign) => alive.ballot > reign.proposer.ballot,
            State::Scouting { ballot, .. } => alive.ballot > *ballot,
            State::Probing(_) | State::Following => true,
        };
        if beaten {
            self.invited = false;
            self.step_down(&mut out);
            self.backoff.reset(&self.config);
            self.backoff.wait_until(alive.bound_until);
        }
        out
    }

    fn on_release(&mut self, ballot: Ballot, successor: NodeId, now: Now) -> Outputs {
        let mut out = Outputs::default();
        let is_late = ballot < self.seen;
        self.seen = self.seen.max(ballot);
        let idle = matches!(self.state, State::Following | State::Probing(_));
        if successor == self.me.node && idle && !is_late && self.views.current.is_voter(successor) {
            self.invited = true;
            self.start_scout(now, &mut out);
        }
        out
    }

    fn on_view(&mut self, view: &ViewState, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if !self.views.learn(view) {
            return out;
        }
        let behind = match &self.state {
            State::Leading(reign) => reign.proposer.ballot.view < self.views.current.number,
            State::Scouting { ballot, .. } => ballot.view < self.views.current.number,
            State::Probing(_) => true,
            State::Following => false,
        };
        if behind {
            if self.views.current.is_voter(self.me.node) && self.lease.holds(now.at) {
                self.retire_scout(&mut out);
                self.start_scout(now, &mut out);
            } else {
                self.follow(now, Duration::ZERO, &mut out);
            }
        }
        out
    }

    // ---- helpers ----

    fn sibling(&self, role: RoleId) -> Address {
        Address { node: self.me.node, role }
    }

    fn tell_siblings(&self, out: &mut Outputs) {
        for role in [RoleId::Replica, RoleId::Acceptor] {
            out.send(self.me, self.sibling(role), Message::ViewIs(self.views.clone()));
        }
    }

    fn next_ballot(&self) -> Ballot {
        let round = self.used.round.max(self.seen.round) + 1;
        Ballot { view: self.views.current.number.max(self.used.view), round, leader: self.me.node }
    }

    fn retire_scout(&mut self, out: &mut Outputs) {
        if let State::Scouting { ballot, .. } = self.state {
            out.retires.push(RoleId::Scout(ballot));
        }
    }

    /// Ends whatever is under way and waits before the next attempt.
    fn follow(&mut self, now: Now, quiet: Duration, out: &mut Outputs) {
        self.step_down(out);
        self.backoff.wait(now.at, quiet);
    }

    /// Ends whatever is under way. The lease is given up with it.
    fn step_down(&mut self, out: &mut Outputs) {
        self.retire_scout(out);
        self.leave_reign(out);
        self.state = State::Following;
        self.serves_from = None;
        self.lease.release();
    }

    fn leave_reign(&mut self, out: &mut Outputs) {
        if let State::Leading(reign) = &mut self.state {
            let ballot = reign.proposer.ballot;
            out.retires.extend(reign.in_flight.iter().map(|slot| RoleId::Commander(ballot, *slot)));
            if let Some(change) = reign.change.take() {
                out.send(self.me, change.from, admin_answer(change.ticket, Err(AdminError::Busy)));
            }
            if let Some(transfer) = reign.transfer.take() {
                out.send(self.me, transfer.from, admin_answer(transfer.ticket, Err(AdminError::Busy)));
            }
            self.state = State::Following;
        }
    }
}

fn admin_answer(ticket: u64, result: Result<u64, AdminError>) -> Message {
    Message::AdminAnswer { ticket, result }
}

impl Role for Leader {
    fn on_message(&mut self, from: Address, message: Message, now: Now) -> Outputs {
        match message {
            Message::ProbeAnswer { ballot, promised, wait } => {
                self.on_probe_answer(from.node, ballot, promised, wait, now)
            }
            Message::Preempted { ballot, promised } => self.on_preempted(from, ballot, promised, now),
            Message::ScoutRefused { ballot, wait } => self.on_scout_refused(from, ballot, wait, now),
            Message::Adopted(adopted) => self.on_adopted(from, *adopted, now),
            Message::MasterAlive(alive) => self.on_master_alive(&alive, now),
            Message::Release { ballot, successor } => self.on_release(ballot, successor, now),
            Message::ViewIs(view) => self.on_view(&view, now),
            Message::Decided { pvalue: PValue { slot, ballot, value }, grants } => {
                self.on_decided(from, slot, ballot, value, &grants, now)
            }
            Message::HeartbeatAnswer { ballot, seq, sent_at, promised, granted, life } => {
                self.on_heartbeat_answer(from.node, ballot, seq, sent_at, promised, granted, life, now)
            }
            Message::Progress { ballot, applied, durable } => {
                self.on_progress(from.node, ballot, applied, durable, now)
            }
            Message::Applied { slot, stamp_ms, .. } => self.on_applied(slot, stamp_ms, now),
            Message::Request { commands } => self.on_request(commands, now),
            Message::ReadIndex { reader, seq } => self.on_read_index(from, reader, seq, now),
            Message::MayIStop => self.on_may_i_stop(from),
            Message::Reconfigure { change, ticket } => self.on_reconfigure(from, &change, ticket, now),
            Message::Transfer { to, ticket } => self.on_transfer(from, to, ticket, now),
            _ => Outputs::default(),
        }
    }

    fn on_timeout(&mut self, now: Now) -> Outputs {
        let mut out = Outputs::default();
        match &self.state {
            State::Following if self.views.current.is_voter(self.me.node) => self.start_probe(now, &mut out),
            State::Following => self.ask_for_view(now, &mut out),
            // No quorum hears us: nothing was disturbed, ask again later.
            State::Probing(_) => self.follow(now, self.config.backoff_min, &mut out),
            State::Scouting { .. } => {
                self.backoff.grow(&self.config);
                self.follow(now, Duration::ZERO, &mut out);
            }
            State::Leading(_) => self.on_reign_timeout(now, &mut out),
        }
        out
    }

    fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Following => self.views.current.is_member(self.me.node).then_some(self.backoff.due()),
            State::Probing(probing) => Some(probing.until),
            State::Scouting { until, .. } => Some(*until),
            State::Leading(reign) => Some(self.reign_deadline(reign)),
        }
    }
}

/// Slots are numbered per kind; only data slots count for windows and watermarks.
fn data(slot: u64) -> Slot {
    Slot::Data(slot)
}
