//! The commander: phase 2 of one slot in one ballot.
//!
//! It sends its value to every follower, counts the voters of its ballot's view that accepted, and tells its leader when they are
//! a majority. It repeats itself until the leader retires it.
//!
//! Invariant C1: `Decided` only after a majority of the view's voters accepted in this ballot.

use crate::config::Config;
use crate::message::{Address, Message, PValue, RoleId};
use crate::role::{Outputs, Role};
use crate::types::{Ballot, NodeId, Now, Slot, Time, Watermark};
use crate::view::View;
use std::sync::Arc;
use std::time::Duration;

/// Phase 2 of one slot.
#[derive(Clone, Debug)]
pub struct Commander {
    me: Address,
    config: Arc<Config>,
    pvalue: PValue,
    view: Arc<View>,
    targets: Arc<[NodeId]>,
    /// Those of them that need not hurry, as long as the others answer.
    may_wait: Arc<[NodeId]>,
    commit: Watermark,
    /// Who accepted, and the send time of the request for which it granted a lease.
    answers: Vec<(NodeId, Option<Time>)>,
    votes: usize,
    resend_at: Time,
    resend_after: Duration,
}

impl Commander {
    /// A commander for `pvalue` in its ballot's view, which tells its targets also that `commit` is decided. The second of them
    /// need not hurry to make it durable.
    #[must_use]
    pub fn new(
        node: NodeId,
        config: Arc<Config>,
        pvalue: PValue,
        view: Arc<View>,
        (targets, may_wait): (Arc<[NodeId]>, Arc<[NodeId]>),
        commit: Watermark,
    ) -> Commander {
        Commander {
            me: Address { node, role: RoleId::Commander(pvalue.ballot, pvalue.slot) },
            pvalue,
            view,
            targets,
            may_wait,
            commit,
            answers: Vec::new(),
            votes: 0,
            resend_at: Time(0),
            resend_after: config.resend,
            config,
        }
    }

    /// Its ballot.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.pvalue.ballot
    }

    /// Its slot.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.pvalue.slot
    }

    /// Sends the first P2a.
    pub fn start(&mut self, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.resend_at = now.at.plus(self.resend_after);
        self.propose(self.targets.clone(), now, &mut out);
        out
    }

    // ---- handlers ----

    fn on_p2b(&mut self, from: NodeId, promised: Ballot, sent_at: Time, granted: bool) -> Outputs {
        let mut out = Outputs::default();
        if promised > self.pvalue.ballot {
            out.send(self.me, self.leader(), Message::Preempted { ballot: self.pvalue.ballot, promised });
            return out;
        }
        if promised != self.pvalue.ballot || self.answers.iter().any(|(node, _)| *node == from) {
            return out;
        }
        self.answers.push((from, granted.then_some(sent_at)));
        if self.view.is_voter(from) {
            self.votes += 1;
            if self.votes == self.view.majority() {
                self.report(&mut out);
            }
        }
        out
    }

    // ---- helpers ----

    fn leader(&self) -> Address {
        Address { node: self.me.node, role: RoleId::Leader }
    }

    fn is_decided(&self) -> bool {
        self.votes >= self.view.majority()
    }

    fn propose(&self, to: Arc<[NodeId]>, now: Now, out: &mut Outputs) {
        let message = Message::P2a {
            pvalue: self.pvalue.clone(),
            commit: self.commit,
            sent_at: now.at,
            lease: self.view.lease,
            may_wait: self.may_wait.clone(),
        };
        out.broadcast(self.me, to, RoleId::Acceptor, message);
    }

    fn report(&self, out: &mut Outputs) {
        assert!(self.is_decided(), "C1: decided without a majority");
        let grants = self.answers.iter().filter_map(|(node, sent)| sent.map(|sent| (*node, sent))).collect();
        out.send(self.me, self.leader(), Message::Decided { pvalue: self.pvalue.clone(), grants });
    }
}

impl Role for Commander {
    fn on_message(&mut self, from: Address, message: Message, _now: Now) -> Outputs {
        match message {
            Message::P2b { ballot, slot, promised, sent_at, granted }
                if ballot == self.pvalue.ballot && slot == self.pvalue.slot =>
            {
                self.on_p2b(from.node, promised, sent_at, granted)
            }
            _ => Outputs::default(),
        }
    }

    fn on_timeout(&mut self, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.resend_after = (self.resend_after * 2).min(self.config.resend * 8);
        self.resend_at = now.at.plus(self.resend_after);
        if self.is_decided() {
            self.report(&mut out);
        } else {
            self.may_wait = Arc::default();
            let silent = |node: &&NodeId| !self.answers.iter().any(|(known, _)| known == *node);
            let to: Arc<[NodeId]> = self.targets.iter().filter(silent).copied().collect();
            self.propose(to, now, &mut out);
        }
        out
    }

    fn deadline(&self) -> Option<Time> {
        Some(self.resend_at)
    }
}
