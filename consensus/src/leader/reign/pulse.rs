//! The master's pulse: heartbeats, what their answers grant, and when a reign ends for lack of them.
//!
//! Invariant M1, the reign's part: a grant counts only in the reign's own ballot, only for voters of its view, and from the moment its request was *sent*;
//! a reign ends when its lease does. `lease` does the counting.

use super::super::{Leader, State};
use super::Reign;
use crate::message::{Address, Echo, Heartbeat, Message, RoleId};
use crate::planted::Bug;
use crate::role::Outputs;
use crate::types::{Ballot, NodeId, Now, Time};
use crate::view::Condition;
use std::time::Duration;

impl Leader {
    /// Sends a heartbeat to every member.
    pub(in crate::leader) fn beat(&mut self, now: Now, out: &mut Outputs) {
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

    #[allow(clippy::too_many_arguments)] // the fields of one message
    pub(in crate::leader) fn on_heartbeat_answer(
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

    pub(super) fn count_grant(&mut self, voter: NodeId, sent_at: Time, now: Now) {
        let State::Leading(reign) = &self.state else { return };
        let from = if self.config.has_bug(Bug::LeaseFromAnswer) { now.at } else { sent_at.min(now.at) };
        self.lease.grant(voter, from, &reign.view, self.config.lease_counted(reign.view.lease));
    }

    pub(super) fn counted(&self) -> Duration {
        self.config.lease_counted(self.views.current.lease)
    }

    pub(in crate::leader) fn reign_deadline(&self, reign: &Reign) -> Time {
        let ends = self.reign_ends(reign);
        let first = reign.heartbeat_at.min(ends);
        reign.announce_at.map_or(first, |at| first.min(at))
    }

    pub(in crate::leader) fn on_reign_timeout(&mut self, now: Now, out: &mut Outputs) {
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
}
