//! The first state of a search, and a node at its start.
//!
//! A setup may begin later than at nothing; then the way there is taken with the same steps that the search takes.

use super::host::Host;
use super::state::{Packet, Phase, State, members};
use super::{Model, NOW};
use std::collections::VecDeque;
use warlock_consensus::acceptor::Acceptor;
use warlock_consensus::replica::Replica;
use warlock_consensus::*;

impl Model {
    pub(super) fn initial(&mut self) -> State {
        let mut state = State::default();
        let first = ViewState::first((*self.setup.views[0]).clone());
        for index in 0..self.setup.nodes {
            let id = NodeId(index as u64 + 1);
            let durable = Durable { view: Some(first.clone()), ..Durable::default() };
            let host = self.start(id, durable);
            state.nodes[index] = self.intern_host(host);
        }
        for ballot in 0..self.ballots.len() {
            if self.setup.plans[ballot].view == 1 {
                self.start_scout(&mut state, ballot);
            }
        }
        if self.setup.first_adopted {
            for node in 0..self.setup.views[0].members.len() {
                let p1a = self.p1a(0);
                self.deliver(&mut state, node, p1a);
            }
            let answers = self.answers(&state, 0);
            let outcome = self.outcomes(&state, 0, &answers)[0].clone();
            self.adopt(&mut state, 0, outcome);
        }
        if self.setup.reconfigured {
            self.reconfigure(&mut state);
        }
        state
    }

    /// The first ballot's reconfiguration is accepted by everybody, chosen, and known.
    fn reconfigure(&mut self, state: &mut State) {
        let Phase::Leading(reign) = state.ballots[0] else { return };
        let slot = self.setup.slots as usize;
        for packet in state.net.clone() {
            let Packet { to, message, .. } = self.packets[usize::from(packet)].clone();
            let is_reconfig =
                matches!(message, Message::P2a { pvalue, .. } if self.slot_index(pvalue.slot) == slot);
            for node in members(to).filter(|_| is_reconfig) {
                self.deliver(state, node.0 as usize - 1, packet);
            }
        }
        self.decide(state, 0, reign, slot);
        let known = self.host(state, 0).replica.view().clone();
        let from = Address { node: NodeId(1), role: RoleId::Acceptor };
        let (role, message) = (RoleId::Replica, Message::ViewIs(known));
        let news = self.intern_packet(Packet { from, to: 0b1111, role, message });
        for node in 0..self.setup.nodes {
            self.deliver(state, node, news);
        }
    }

    pub(super) fn start(&self, id: NodeId, durable: Durable) -> Host {
        let (replica, outputs) =
            Replica::recover(id, self.config.clone(), &durable, &Standing::default(), NOW);
        let acceptor = Acceptor::recover(id, self.config.clone(), durable.clone(), 0, NOW);
        let disk = (self.setup.crashes > 0).then_some(durable);
        let mut host = Host { id, acceptor, replica, applied: Vec::new(), disk };
        let mut inbox = VecDeque::new();
        host.perform(outputs, &mut inbox);
        host.run(inbox);
        host
    }
}
