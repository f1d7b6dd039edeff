//! A state of the search, made of small numbers that stand for interned nodes, messages and reigns.
//!
//! Equal states have equal numbers: whatever tells two behaviours apart is in [`State`], and nothing else is.

use super::{BALLOTS, NODES, SLOTS};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use warlock_consensus::*;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// With this knowledge of the views.
    Scouting(u16),
    /// This reign.
    Leading(u16),
    /// Its node crashed.
    Over,
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Interned nodes.
    pub(super) nodes: [u32; NODES],
    pub(super) ballots: [Phase; BALLOTS],
    /// For each ballot, the slots that its leader knows to be decided.
    pub(super) decided: [u8; BALLOTS],
    /// For each ballot and slot, the acceptors that ever said that they accepted: the P2b messages.
    pub(super) accepts: [[u8; SLOTS]; BALLOTS],
    pub(super) crashes: u8,
    /// The other messages, interned, by rising number.
    pub(super) net: Vec<u16>,
}

impl State {
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn has(&self, packet: u16) -> bool {
        self.net.binary_search(&packet).is_ok()
    }

    pub(super) fn add(&mut self, packet: u16) {
        if let Err(place) = self.net.binary_search(&packet) {
            self.net.insert(place, packet);
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) from: Address,
    /// Bit i: node i + 1.
    pub(super) to: u8,
    pub(super) role: RoleId,
    pub(super) message: Message,
}

/// What a step of a node gives.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) node: u32,
    pub(super) packets: Vec<u16>,
    /// Ballots and slots that the acceptor said it accepted.
    pub(super) accepted: Vec<(usize, usize)>,
}

/// For keys that are one number: spreads its bits.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only numbers are hashed")
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = value.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

pub(super) type Numbers<V> = HashMap<u64, V, BuildHasherDefault<Spread>>;

pub(super) fn mask(nodes: &[NodeId]) -> u8 {
    nodes.iter().fold(0, |mask, node| mask | 1 << (node.0 - 1))
}

pub(super) fn members(mask: u8) -> impl Iterator<Item = NodeId> {
    (0..NODES as u64).filter(move |bit| mask & (1 << bit) != 0).map(|bit| NodeId(bit + 1))
}
