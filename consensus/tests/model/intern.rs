//! Nodes, values, messages and views under small numbers, and what the search asks of a node again and again.
//!
//! Two things get the same number only if they are equal in everything; for nodes that is what all their fields print as.

use super::host::Host;
use super::setups::view;
use super::state::{Packet, State};
use super::{Model, NOW};
use std::sync::Arc;
use warlock_consensus::*;

/// What the search asks again and again of an interned node.
pub(super) struct Facts {
    pub(super) id: NodeId,
    /// The values that its machine was given, interned.
    pub(super) applied: Vec<u8>,
    pub(super) decided: u64,
    /// The view that it knows, and whether that is established.
    pub(super) view: (u64, bool),
    /// What its acceptor would say in phase 1: the watermark, and slot, ballot and value above it.
    pub(super) watermark: u64,
    pub(super) accepted: Vec<(usize, Ballot, u8)>,
}

impl Model {
    pub(super) fn host(&self, state: &State, node: usize) -> &Host {
        &self.hosts[state.nodes[node] as usize]
    }

    pub(super) fn facts(&self, state: &State, node: usize) -> &Facts {
        &self.facts[state.nodes[node] as usize]
    }

    pub(super) fn intern_host(&mut self, host: Host) -> u32 {
        let key = format!("{:?}{:?}{:?}{:?}", host.acceptor, host.replica, host.applied, host.disk);
        if let Some(known) = self.host_ids.get(&key) {
            return *known;
        }
        let next = u32::try_from(self.hosts.len()).expect("few node states");
        let facts = self.look_at(&host);
        self.host_ids.insert(key, next);
        self.facts.push(facts);
        self.hosts.push(host);
        next
    }

    fn look_at(&mut self, host: &Host) -> Facts {
        let mut acceptor = host.acceptor.clone();
        let ballot = Ballot { view: 9, round: 9, leader: NodeId(9) };
        let from = Address { node: NodeId(9), role: RoleId::Scout(ballot) };
        let p1a = Message::P1a { ballot, from_slot: 0, view: ViewState::first((*view(9, &[9])).clone()) };
        let sends = acceptor.on_message(from, p1a, NOW).sends;
        let answer = sends.into_iter().find_map(|send| match send.message {
            Message::P1b(answer) => Some(answer),
            _ => None,
        });
        let answer = answer.expect("an acceptor that is not bound promises");
        let known = host.replica.view();
        Facts {
            id: host.id,
            applied: host.applied.iter().map(|value| self.intern_value(value)).collect(),
            decided: host.replica.decided(),
            view: (known.current.number, known.established),
            watermark: answer.watermark,
            accepted: answer
                .accepted
                .iter()
                .map(|p| (self.slot_index(p.slot), p.ballot, self.intern_value(&p.value)))
                .collect(),
        }
    }

    pub(super) fn intern_value(&mut self, value: &Arc<Value>) -> u8 {
        let place = self.values.iter().position(|known| known == value).unwrap_or_else(|| {
            self.values.push(value.clone());
            self.values.len() - 1
        });
        u8::try_from(place).expect("few values")
    }

    pub(super) fn intern_packet(&mut self, packet: Packet) -> u16 {
        if let Some(known) = self.packet_ids.get(&packet) {
            return *known;
        }
        let next = u16::try_from(self.packets.len()).expect("few messages");
        self.packets.push(packet.clone());
        self.packet_ids.insert(packet, next);
        next
    }

    pub(super) fn intern_view(&mut self, view: ViewState) -> u16 {
        let place = self.views.iter().position(|known| *known == view).unwrap_or_else(|| {
            self.views.push(view);
            self.views.len() - 1
        });
        u16::try_from(place).expect("few views")
    }
}
