//! What may happen in a state: every message to every target, every move of a leader, every write, and every crash.
//!
//! Nothing that can change a state is left out, unless the [`Setup`](super::setups::Setup) says so: only steps that change nothing, and answers that nobody
//! waits for any more, are passed over.

use super::host::Host;
use super::state::{Packet, Phase, State, Step, mask, members};
use super::{Model, NOW, TIMEOUT};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::*;

pub(super) enum Action {
    Deliver(u16, usize),
    Scout(usize),
    Adopt(usize),
    Decide(usize, usize),
    WriteDown(usize),
    CatchUp(usize, usize),
    Crash(usize),
}

impl Model {
    pub(super) fn successors(&mut self, state: &State, found: &mut dyn FnMut(Action, State)) {
        for index in 0..state.net.len() {
            let packet = state.net[index];
            let to = self.packets[usize::from(packet)].to;
            for node in (0..self.setup.nodes).filter(|node| to & (1 << node) != 0) {
                let step = self.step_of(state.nodes[node], packet);
                if self.changes(state, node, &step) {
                    let mut next = state.clone();
                    self.take(&mut next, node, &step);
                    found(Action::Deliver(packet, node), next);
                }
            }
        }
        for ballot in 0..self.ballots.len() {
            match state.ballots[ballot] {
                Phase::Idle => {
                    let mut next = state.clone();
                    if self.start_scout(&mut next, ballot) {
                        found(Action::Scout(ballot), next);
                    }
                }
                Phase::Scouting(_) => {
                    let answers = self.answers(state, ballot);
                    for outcome in self.outcomes(state, ballot, &answers) {
                        let mut next = state.clone();
                        if self.adopt(&mut next, ballot, outcome) {
                            found(Action::Adopt(ballot), next);
                        }
                    }
                }
                Phase::Leading(reign) => {
                    for slot in 0..=self.setup.slots as usize {
                        if self.is_news(state, ballot, reign, slot) {
                            let mut next = state.clone();
                            self.decide(&mut next, ballot, reign, slot);
                            found(Action::Decide(ballot, slot), next);
                        }
                    }
                }
                Phase::Over => {}
            }
        }
        if self.setup.decisions {
            for node in 0..self.setup.nodes {
                let step = self.step_of(state.nodes[node], TIMEOUT);
                if self.setup.writers & (1 << node) != 0 && self.changes(state, node, &step) {
                    let mut next = state.clone();
                    self.take(&mut next, node, &step);
                    found(Action::WriteDown(node), next);
                }
                if self.setup.learners & (1 << node) == 0 {
                    continue;
                }
                for peer in 0..self.setup.nodes {
                    let Some(log) = self.log_for(state, node, peer) else { continue };
                    let step = self.step_of(state.nodes[node], log);
                    if self.changes(state, node, &step) {
                        let mut next = state.clone();
                        self.take(&mut next, node, &step);
                        found(Action::CatchUp(node, peer), next);
                    }
                }
            }
        }
        if state.crashes < self.setup.crashes {
            for node in 0..self.setup.nodes {
                let mut next = state.clone();
                self.crash(&mut next, node);
                found(Action::Crash(node), next);
            }
        }
    }

    /// A message reaches a node.
    pub(super) fn deliver(&mut self, state: &mut State, node: usize, packet: u16) {
        let step = self.step_of(state.nodes[node], packet);
        self.take(state, node, &step);
    }

    /// What an input does to a node: the roles are asked once.
    fn step_of(&mut self, node: u32, input: u16) -> Arc<Step> {
        let key = u64::from(node) << 16 | u64::from(input);
        if let Some(step) = self.steps.get(&key) {
            return step.clone();
        }
        let mut host = self.hosts[node as usize].clone();
        let sends = if input == TIMEOUT {
            host.write_down()
        } else {
            let Packet { from, role, message, .. } = self.packets[usize::from(input)].clone();
            host.run(VecDeque::from([(from, role, message)]))
        };
        let step = Arc::new(self.step(host, sends));
        self.steps.insert(key, step.clone());
        step
    }

    fn step(&mut self, host: Host, sends: Vec<Envelope>) -> Step {
        let mut step = Step { node: self.intern_host(host), packets: Vec::new(), accepted: Vec::new() };
        for Envelope { from, to, role, message } in sends {
            match &message {
                Message::P2b { ballot, slot, promised, .. } if promised == ballot => {
                    step.accepted.push((self.index_of(*ballot), self.slot_index(*slot)));
                }
                Message::P1b(answer) if answer.promised != answer.ballot => {}
                Message::P1b(_) | Message::ViewIs(_) => {
                    let to = mask(to.nodes());
                    step.packets.push(self.intern_packet(Packet { from, to, role, message }));
                }
                Message::Refused { .. } => panic!("bound although the lease is zero"),
                _ => {}
            }
        }
        step
    }

    fn changes(&self, state: &State, node: usize, step: &Step) -> bool {
        state.nodes[node] != step.node
            || step.accepted.iter().any(|(ballot, slot)| state.accepts[*ballot][*slot] & (1 << node) == 0)
            || step.packets.iter().any(|packet| self.is_wanted(state, *packet) && !state.has(*packet))
    }

    /// An answer whose scout is gone need not travel, nor a view to a node that knows it or that is not going to lead.
    fn is_wanted(&self, state: &State, packet: u16) -> bool {
        let Packet { to, message, .. } = &self.packets[usize::from(packet)];
        let to = *to;
        match message {
            Message::P1b(answer) => {
                matches!(state.ballots[self.index_of(answer.ballot)], Phase::Scouting(_))
            }
            Message::ViewIs(view) => {
                let news = (view.current.number, view.established);
                let to_lead = |node: usize| {
                    let waits = |b: usize| self.leader_of(b) == node && state.ballots[b] == Phase::Idle;
                    (0..self.ballots.len()).any(waits)
                };
                members(to)
                    .map(|node| node.0 as usize - 1)
                    .any(|n| to_lead(n) && self.facts(state, n).view < news)
            }
            _ => true,
        }
    }

    fn take(&mut self, state: &mut State, node: usize, step: &Step) {
        state.nodes[node] = step.node;
        for (ballot, slot) in &step.accepted {
            state.accepts[*ballot][*slot] |= 1 << node;
        }
        for packet in &step.packets {
            if self.is_wanted(state, *packet) {
                state.add(*packet);
            }
        }
        self.announce(state, node);
    }

    /// What `peer` would answer if this node, which knows that it misses something, fetched from it.
    fn log_for(&mut self, state: &State, node: usize, peer: usize) -> Option<u16> {
        let missing = self.facts(state, node).decided + 1;
        if (self.facts(state, peer).applied.len() as u64) < missing || !self.wants(state.nodes[node]) {
            return None;
        }
        let key = u64::from(state.nodes[peer]) << 32 | missing << 8 | node as u64;
        if let Some(log) = self.logs.get(&key) {
            return *log;
        }
        let asker = NodeId(node as u64 + 1);
        let mut giver = self.host(state, peer).clone();
        let from = Address { node: asker, role: RoleId::Replica };
        let fetch = Message::Fetch { from_slot: missing };
        let sends = giver.run(VecDeque::from([(from, RoleId::Replica, fetch)]));
        let log = sends.into_iter().find(|send| matches!(send.message, Message::Log { .. }));
        let packet = log.map(|Envelope { from, role, message, .. }| {
            self.intern_packet(Packet { from, to: mask(&[asker]), role, message })
        });
        self.logs.insert(key, packet);
        packet
    }

    /// Whether a node's replica would fetch, sooner or later.
    fn wants(&mut self, node: u32) -> bool {
        let hosts = &self.hosts;
        *self.wants.entry(u64::from(node)).or_insert_with(|| {
            let later = Now { at: NOW.at.plus(Duration::from_secs(10)), ..NOW };
            let sends = hosts[node as usize].replica.clone().on_timeout(later).sends;
            sends.iter().any(|send| matches!(send.message, Message::Fetch { .. }))
        })
    }

    fn crash(&mut self, state: &mut State, node: usize) {
        state.crashes += 1;
        let host = self.host(state, node);
        let durable = host.disk.clone().expect("disks are kept when crashes are searched");
        let id = host.id;
        let host = self.start(id, durable);
        state.nodes[node] = self.intern_host(host);
        for ballot in 0..self.ballots.len() {
            if self.leader_of(ballot) == node && state.ballots[ballot] != Phase::Idle {
                for answer in self.answers(state, ballot) {
                    state.net.retain(|packet| *packet != answer);
                }
                state.ballots[ballot] = Phase::Over;
            }
        }
    }
}
