//! Exhaustive search of small configurations, over the real roles as values.
//!
//! Acceptors, replicas, scouts and commanders are the crate's own; only the leader is a thin driver, which follows `begin_reign`,
//! `commit` and `enter_view` of `leader/reign`. The network is a growing set of messages: any message may be delivered to any of its
//! targets at any time, again and again, or never, which covers loss, duplication and reordering. Time stands still and the lease is zero, so
//! no acceptor is ever bound.
//!
//! What keeps the search small without losing behaviours:
//! * a node (acceptor and replica, with what they say to each other at once) is interned: a step of a node is computed once by the
//!   real roles and then looked up;
//! * what a scout or a commander hears changes nothing for others until it reports, so hearing is part of the report: a scout adopts by any sequence
//!   of the answers that are in the network;
//! * an answer whose recipient is gone is dropped; what a leader may announce, it announces at once (nobody has to hear it).
//!
//! What is searched is in `setups`, what may happen in `steps` and (for leaders) `driver`, what must hold in `check`.
//!
//! States are told apart by 64-bit fingerprints: with ten million states two of them coincide with a probability below 10⁻⁵.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_types)] // hash maps that are never iterated

mod check;
mod driver;
mod first;
mod host;
mod intern;
pub mod search;
pub mod setups;
mod state;
mod steps;
mod tell;

use driver::{P1bs, Reign, ReignKey};
use host::Host;
use intern::Facts;
use setups::Setup;
use state::{Numbers, Packet, Step, members};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::message::Adopted;
use warlock_consensus::*;

const NODES: usize = 4;
const BALLOTS: usize = 4;
const SLOTS: usize = 4;
const NOW: Now = Now { at: Time(1_000_000), wall_ms: 0 };
/// Instead of a packet: a replica's deadline passes.
const TIMEOUT: u16 = u16::MAX;

/// A search: what is searched, and everything that was interned or computed so far.
pub struct Model {
    setup: Setup,
    config: Arc<Config>,
    ballots: Vec<Ballot>,
    /// For each view and each set of nodes, whether it holds a majority of the voters.
    majorities: Vec<[bool; 1 << NODES]>,
    hosts: Vec<Host>,
    facts: Vec<Facts>,
    host_ids: HashMap<String, u32>,
    values: Vec<Arc<Value>>,
    packets: Vec<Packet>,
    packet_ids: HashMap<Packet, u16>,
    views: Vec<ViewState>,
    reigns: Vec<Reign>,
    reign_ids: HashMap<ReignKey, u16>,
    /// What an input does to a node, by node and packet (or [`TIMEOUT`]).
    steps: Numbers<Arc<Step>>,
    outcomes: HashMap<(usize, u16, P1bs), Vec<Adopted>>,
    reports: Numbers<bool>,
    /// A node's answer to a fetch from a slot on, interned.
    logs: Numbers<Option<u16>>,
    /// Whether a node wants to catch up.
    wants: Numbers<bool>,
    /// The announcement of a slot in a ballot, interned.
    commits: Numbers<u16>,
}

impl Model {
    pub fn new(setup: Setup, mut config: Config) -> Model {
        // The decided watermark is written down by a timeout, which the search calls when it likes.
        config.durable_every = 1_000;
        config.durable_after = Duration::ZERO;
        config.accept_ahead_max = 1_000_000;
        let ballots = (1..)
            .zip(&setup.plans)
            .map(|(round, plan)| Ballot { view: plan.view, round, leader: NodeId(plan.node) })
            .collect();
        let is_majority =
            |view: &Arc<View>| std::array::from_fn(|set| view.is_majority(&members(set as u8).collect()));
        let majorities = setup.views.iter().map(is_majority).collect();
        Model {
            setup,
            config: Arc::new(config),
            ballots,
            majorities,
            hosts: Vec::new(),
            facts: Vec::new(),
            host_ids: HashMap::new(),
            values: Vec::new(),
            packets: Vec::new(),
            packet_ids: HashMap::new(),
            views: Vec::new(),
            reigns: Vec::new(),
            reign_ids: HashMap::new(),
            steps: Numbers::default(),
            outcomes: HashMap::new(),
            reports: Numbers::default(),
            logs: Numbers::default(),
            wants: Numbers::default(),
            commits: Numbers::default(),
        }
    }

    fn leader_of(&self, ballot: usize) -> usize {
        self.setup.plans[ballot].node as usize - 1
    }

    fn index_of(&self, ballot: Ballot) -> usize {
        self.ballots.iter().position(|known| *known == ballot).expect("a planned ballot")
    }

    fn slot_index(&self, slot: Slot) -> usize {
        match slot {
            Slot::Data(number) => number as usize - 1,
            Slot::Reconfig(_) => self.setup.slots as usize,
        }
    }
}
