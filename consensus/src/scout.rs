//! The scout: phase 1 of one ballot.
//!
//! It asks the acceptors of the ballot's view (and of the view before, until the ballot's is established) for promises, gathers
//! what they accepted page by page, and tells its leader once. It repeats itself until the leader retires it.
//!
//! Invariant S1: `Adopted(b)` only after a quorum answered with promise = b, each with all its pages.

use crate::config::Config;
use crate::message::{Address, Adopted, ClockReport, Message, P1b, PValue, RoleId};
use crate::planted::Bug;
use crate::role::{Outputs, Role};
use crate::types::{Ballot, NodeId, Now, Slot, Time};
use crate::view::ViewState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Phase 1 of one ballot.
#[derive(Clone, Debug)]
pub struct Scout {
    me: Address,
    config: Arc<Config>,
    ballot: Ballot,
    view: ViewState,
    /// For acceptors that have not told everything yet: from which slot on the next page is wanted.
    wanted: BTreeMap<NodeId, u64>,
    promised: BTreeSet<NodeId>,
    refused: BTreeMap<NodeId, Duration>,
    watermark: (u64, NodeId),
    accepted: BTreeMap<u64, PValue>,
    reconfig: Option<PValue>,
    clocks: BTreeMap<NodeId, ClockReport>,
    resend_at: Time,
    resend_after: Duration,
}

impl Scout {
    /// A scout for `ballot`, which is durable when the scout starts.
    #[must_use]
    pub fn new(node: NodeId, config: Arc<Config>, ballot: Ballot, view: ViewState) -> Scout {
        let wanted = view.phase1_voters().into_iter().map(|voter| (voter, 0)).collect();
        Scout {
            me: Address { node, role: RoleId::Scout(ballot) },
            ballot,
            view,
            wanted,
            promised: BTreeSet::new(),
            refused: BTreeMap::new(),
            watermark: (0, node),
            accepted: BTreeMap::new(),
            reconfig: None,
            clocks: BTreeMap::new(),
            resend_at: Time(0),
            resend_after: config.resend,
            config,
        }
    }

    /// Its ballot.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Sends the first P1a.
    pub fn start(&mut self, now: Now) -> Outputs {
        self.resend_at = now.at.plus(self.resend_after);
        self.ask()
    }

    // ---- handlers ----

    fn on_p1b(&mut self, from: NodeId, answer: P1b) -> Outputs {
        let mut out = Outputs::default();
        if answer.view.current.number > self.ballot.view {
            let replica = Address { node: self.me.node, role: RoleId::Replica };
            out.send(self.me, replica, Message::ViewIs(answer.view.clone()));
        }
        if answer.promised > self.ballot {
            let notice = Message::Preempted { ballot: self.ballot, promised: answer.promised };
            out.send(self.me, self.leader(), notice);
            return out;
        }
        if answer.promised != self.ballot || self.wanted.get(&from) != Some(&answer.from_slot) {
            return out;
        }
        self.refused.remove(&from);
        // A node that applied the view's start entry proves the view established: the view before is not needed any more.
        if answer.view.current.number == self.ballot.view {
            self.view.learn(&answer.view);
        }
        if answer.watermark > self.watermark.0 {
            self.watermark = (answer.watermark, from);
        }
        self.clocks.insert(from, answer.clock);
        for pvalue in answer.accepted.into_iter().chain(answer.reconfig) {
            self.keep_highest(pvalue);
        }
        match answer.more_from {
            Some(next) if next > answer.from_slot => {
                self.wanted.insert(from, next);
                let to = Address { node: from, role: RoleId::Acceptor };
                out.send(self.me, to, self.p1a(next));
            }
            _ => {
                self.wanted.remove(&from);
                self.promised.insert(from);
            }
        }
        if self.has_quorum() {
            out.append(self.report());
        }
        out
    }

    fn on_refused(&mut self, from: NodeId, wait: Duration) -> Outputs {
        let mut out = Outputs::default();
        if !self.wanted.contains_key(&from) {
            return out;
        }
        self.refused.insert(from, wait);
        let mut possible = self.view.phase1_voters();
        possible.retain(|voter| !self.refused.contains_key(voter));
        if !self.view.is_phase1_quorum(&possible) {
            let wait = self.refused.values().min().copied().unwrap_or_default();
            out.send(self.me, self.leader(), Message::ScoutRefused { ballot: self.ballot, wait });
        }
        out
    }

    // ---- helpers ----

    fn leader(&self) -> Address {
        Address { node: self.me.node, role: RoleId::Leader }
    }

    fn p1a(&self, from_slot: u64) -> Message {
        Message::P1a { ballot: self.ballot, from_slot, view: self.view.clone() }
    }

    fn has_quorum(&self) -> bool {
        if self.config.has_bug(Bug::OldViewSkipped) {
            return self.view.current.is_majority(&self.promised);
        }
        self.view.is_phase1_quorum(&self.promised)
    }

    fn keep_highest(&mut self, pvalue: PValue) {
        let first_wins = self.config.has_bug(Bug::FirstValueWins);
        match pvalue.slot {
            Slot::Data(slot) => match self.accepted.get_mut(&slot) {
                Some(known) if known.ballot >= pvalue.ballot || first_wins => {}
                Some(known) => *known = pvalue,
                None => drop(self.accepted.insert(slot, pvalue)),
            },
            // Only the reconfiguration that follows this ballot's view is still open.
            Slot::Reconfig(number) if number == self.ballot.view + 1 => {
                if self.reconfig.as_ref().is_none_or(|known| known.ballot < pvalue.ballot) {
                    self.reconfig = Some(pvalue);
                }
            }
            Slot::Reconfig(_) => {}
        }
    }

    fn report(&self) -> Outputs {
        assert!(self.has_quorum(), "S1: adopted without a quorum of promises");
        let mut out = Outputs::default();
        let (watermark, holder) = self.watermark;
        let adopted = Adopted {
            ballot: self.ballot,
            watermark,
            holder,
            accepted: self.accepted.range(watermark + 1..).map(|(s, p)| (*s, p.clone())).collect(),
            reconfig: self.reconfig.clone(),
            view: self.view.clone(),
            // Also of those that told only a part: if a value of theirs is taken, cluster time must not start behind it (E3).
            clocks: self.clocks.values().copied().collect(),
        };
        out.send(self.me, self.leader(), Message::Adopted(Box::new(adopted)));
        out
    }

    fn ask(&self) -> Outputs {
        let mut out = Outputs::default();
        for (node, from_slot) in &self.wanted {
            let to = Address { node: *node, role: RoleId::Acceptor };
            out.send(self.me, to, self.p1a(*from_slot));
        }
        out
    }
}

impl Role for Scout {
    fn on_message(&mut self, from: Address, message: Message, _now: Now) -> Outputs {
        match message {
            Message::P1b(answer) if answer.ballot == self.ballot => self.on_p1b(from.node, *answer),
            Message::Refused { ballot, wait } if ballot == self.ballot => self.on_refused(from.node, wait),
            _ => Outputs::default(),
        }
    }

    fn on_timeout(&mut self, now: Now) -> Outputs {
        self.resend_after = (self.resend_after * 2).min(self.config.resend * 8);
        self.resend_at = now.at.plus(self.resend_after);
        if self.has_quorum() { self.report() } else { self.ask() }
    }

    fn deadline(&self) -> Option<Time> {
        Some(self.resend_at)
    }
}
