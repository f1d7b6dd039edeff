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
//! States are told apart by 64-bit fingerprints: with ten million states two of them coincide with a probability below 10⁻⁵.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_types)] // hash maps that are never iterated

use bytes::Bytes;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::{Debug, Write as _};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::acceptor::Acceptor;
use warlock_consensus::commander::Commander;
use warlock_consensus::message::Adopted;
use warlock_consensus::planted::Bug;
use warlock_consensus::replica::Replica;
use warlock_consensus::scout::Scout;
use warlock_consensus::*;

const NODES: usize = 4;
const BALLOTS: usize = 4;
const SLOTS: usize = 4;
const NOW: Now = Now { at: Time(1_000_000), wall_ms: 0 };
/// Instead of a packet: a replica's deadline passes.
const TIMEOUT: u16 = u16::MAX;

// ---- what is searched ----

/// One ballot that a leader may use.
#[derive(Clone)]
pub struct Plan {
    /// The leader's node.
    pub node: u64,
    /// The ballot's view.
    pub view: u64,
    /// How many values of its own it proposes after the inherited ones.
    pub own: u64,
    /// Whether its leader scouts only when it was told that its view is established.
    pub waits: bool,
    /// Whether it announces what is decided. (Nobody inherits from the last ballot.)
    pub announces: bool,
    /// The next view that it proposes, unless it inherited one.
    pub reconfigures: Option<Arc<View>>,
}

/// A configuration to search.
#[derive(Clone)]
pub struct Setup {
    pub name: &'static str,
    /// Nodes 1..=nodes.
    pub nodes: usize,
    /// View 1, and view 2 if there is one.
    pub views: Vec<Arc<View>>,
    /// By rising ballot.
    pub plans: Vec<Plan>,
    /// Data slots 1..=slots; nothing is proposed above.
    pub slots: u64,
    /// Whether decisions travel: replicas learn, catch up, and write watermarks down.
    pub decisions: bool,
    /// The nodes whose replicas catch up. (Bit i: node i + 1.)
    pub learners: u8,
    /// The nodes that write watermarks down when it pleases them; the others do when their acceptor asks for it.
    pub writers: u8,
    /// The nodes that hear announcements that come by themselves; the others hear those that come with proposals.
    pub hearers: u8,
    /// Whether the first ballot is adopted at the start. (There is nothing that it could inherit.)
    pub first_adopted: bool,
    /// Whether the first ballot's reconfiguration is chosen at the start, and every node knows it.
    pub reconfigured: bool,
    /// How often a node may crash and come back with what was durable.
    pub crashes: u8,
}

pub fn view(number: u64, voters: &[u64]) -> Arc<View> {
    let contact = |id: &u64| (NodeId(*id), Bytes::from(format!("n{id}")));
    let first = View::first(voters.iter().map(contact), Duration::ZERO);
    Arc::new(View { number, next_member: if number == 1 { 4 } else { 5 }, ..first })
}

fn plan(node: u64, view: u64, own: u64) -> Plan {
    Plan { node, view, own, waits: false, announces: true, reconfigures: None }
}

fn one_view(name: &'static str, plans: Vec<Plan>, slots: u64) -> Setup {
    let views = vec![view(1, &[1, 2, 3])];
    Setup {
        name,
        nodes: 3,
        views,
        plans,
        slots,
        decisions: false,
        learners: 0b111,
        writers: 0b111,
        hearers: 0b111,
        first_adopted: false,
        reconfigured: false,
        crashes: 0,
    }
}

/// Three acceptors, two leaders, two slots, two ballots.
pub fn two_ballots() -> Setup {
    one_view("2 slots x 2 ballots", vec![plan(1, 1, 2), plan(2, 1, 2)], 2)
}

/// Three acceptors, two leaders, one slot, three ballots.
pub fn three_ballots() -> Setup {
    one_view("1 slot x 3 ballots", vec![plan(1, 1, 1), plan(2, 1, 1), plan(1, 1, 1)], 1)
}

/// Three acceptors, two leaders, two slots, three ballots.
pub fn wide() -> Setup {
    let plans = vec![plan(1, 1, 2), plan(2, 1, 2), plan(1, 1, 1)];
    Setup { first_adopted: true, ..one_view("2 slots x 3 ballots", plans, 2) }
}

/// Decisions travel as watermarks; acceptors drop what their nodes hold.
pub fn watermarks() -> Setup {
    let plans = vec![plan(1, 1, 1), plan(3, 1, 1)];
    let name = "watermarks, 2 slots x 2 ballots";
    Setup { decisions: true, first_adopted: true, ..one_view(name, plans, 2) }
}

/// The same with one crash of one node.
pub fn crash() -> Setup {
    let plans = vec![plan(1, 1, 1), plan(3, 1, 1)];
    let name = "a crash, watermarks, 1 slot x 2 ballots";
    Setup { decisions: true, first_adopted: true, crashes: 1, ..one_view(name, plans, 1) }
}

/// Two leaders of one view want different next views.
pub fn rival_views() -> Setup {
    let mut plans = vec![plan(1, 1, 0), plan(2, 1, 0)];
    plans[0].reconfigures = Some(view(2, &[1, 2]));
    plans[1].reconfigures = Some(view(2, &[2, 3]));
    one_view("two rival reconfigurations", plans, 1)
}

/// From view 1 {1,2,3} to view 2 {2,3,4}, from the beginning: a slot beside the reconfiguration, then two leaders that need both views.
pub fn reconfiguration() -> Setup {
    let views = vec![view(1, &[1, 2, 3]), view(2, &[2, 3, 4])];
    let mut plans = vec![plan(1, 1, 1), plan(2, 2, 1), plan(3, 2, 1)];
    plans[0].reconfigures = Some(views[1].clone());
    let name = "view 1 {1,2,3} to view 2 {2,3,4}, 2 slots x 3 ballots";
    Setup { nodes: 4, views, first_adopted: true, ..one_view(name, plans, 2) }
}

/// The same, with the reconfiguration chosen, and with decisions that travel: the new view is established, acceptors drop what their
/// nodes hold, and a later leader does without the old view.
pub fn establishment() -> Setup {
    let name = "view 2 {2,3,4} is established, watermarks, 2 slots x 3 ballots";
    let mut setup = reconfiguration();
    setup.plans[2].waits = true;
    setup.plans[2].announces = false;
    Setup {
        name,
        decisions: true,
        learners: 0b1010,
        writers: 0,
        hearers: 0b0010,
        reconfigured: true,
        ..setup
    }
}

/// Every configuration, smallest first.
pub fn all() -> Vec<Setup> {
    vec![
        two_ballots(),
        rival_views(),
        three_ballots(),
        watermarks(),
        crash(),
        wide(),
        reconfiguration(),
        establishment(),
    ]
}

/// The planted bugs that a configuration notices, and which.
pub fn covered() -> Vec<(Bug, Setup)> {
    vec![
        (Bug::PromiseNotDurable, crash()),
        (Bug::AcceptNotDurable, crash()),
        (Bug::FirstValueWins, three_ballots()),
        (Bug::ProposeBelowWatermark, watermarks()),
        (Bug::AcceptBelowPromise, two_ballots()),
        (Bug::OldViewSkipped, reconfiguration()),
        (Bug::HolesAtViewStart, establishment()),
        (Bug::OldValueTakenAsDecided, watermarks()),
        (Bug::WatermarkOverreach, watermarks()),
        (Bug::ReconfigForgotten, rival_views()),
    ]
}

/// The default configuration with one rule broken.
pub fn with_bug(bug: Bug) -> Config {
    #[cfg(feature = "planted-bugs")]
    return Config { bug: Some(bug), ..Config::default() };
    #[cfg(not(feature = "planted-bugs"))]
    panic!("{bug:?} needs the feature planted-bugs");
}

// ---- states ----

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Phase {
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
struct State {
    /// Interned nodes.
    nodes: [u32; NODES],
    ballots: [Phase; BALLOTS],
    /// For each ballot, the slots that its leader knows to be decided.
    decided: [u8; BALLOTS],
    /// For each ballot and slot, the acceptors that ever said that they accepted: the P2b messages.
    accepts: [[u8; SLOTS]; BALLOTS],
    crashes: u8,
    /// The other messages, interned, by rising number.
    net: Vec<u16>,
}

impl State {
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn has(&self, packet: u16) -> bool {
        self.net.binary_search(&packet).is_ok()
    }

    fn add(&mut self, packet: u16) {
        if let Err(place) = self.net.binary_search(&packet) {
            self.net.insert(place, packet);
        }
    }
}

/// The long-lived roles of a node as values.
#[derive(Clone)]
struct Host {
    id: NodeId,
    acceptor: Acceptor,
    replica: Replica,
    /// What its machine was given.
    applied: Vec<Arc<Value>>,
    /// What its disk holds, where that matters.
    disk: Option<Durable>,
}

/// What the search asks again and again of an interned node.
struct Facts {
    id: NodeId,
    /// The values that its machine was given, interned.
    applied: Vec<u8>,
    decided: u64,
    /// The view that it knows, and whether that is established.
    view: (u64, bool),
    /// What its acceptor would say in phase 1: the watermark, and slot, ballot and value above it.
    watermark: u64,
    accepted: Vec<(usize, Ballot, u8)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Packet {
    from: Address,
    /// Bit i: node i + 1.
    to: u8,
    role: RoleId,
    message: Message,
}

/// What a step of a node gives.
#[derive(Clone)]
struct Step {
    node: u32,
    packets: Vec<u16>,
    /// Ballots and slots that the acceptor said it accepted.
    accepted: Vec<(usize, usize)>,
}

/// What a leader does in one adopted ballot.
struct Reign {
    phase1_watermark: u64,
    commanders: BTreeMap<usize, Commander>,
    /// What is proposed in each slot, interned.
    values: [Option<u8>; SLOTS],
    packets: Vec<u16>,
}

/// For keys that are one number: spreads its bits.
#[derive(Default)]
struct Spread(u64);

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

type Numbers<V> = HashMap<u64, V, BuildHasherDefault<Spread>>;
/// Each state's fingerprint, and the one of the state from which it was reached first.
type Seen = Numbers<u64>;
/// A ballot, what its leader inherits, how far its replica is, and what it knows of the views.
type ReignKey = (usize, Adopted, u64, ViewState);
type P1bs = Vec<u16>;

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

/// What the search found.
pub struct Report {
    pub name: &'static str,
    pub states: usize,
    pub transitions: usize,
    pub depth: usize,
    pub node_states: usize,
    /// For each ballot, in how many states it has chosen something.
    pub chosen: Vec<usize>,
    /// In how many states a node knows view 2 to be established.
    pub established: usize,
    /// In how many states some node has dropped values below a watermark.
    pub watermarked: usize,
    /// The broken rule, and how it came to that.
    pub violation: Option<(String, Vec<String>)>,
    /// The whole space was searched.
    pub complete: bool,
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

    // ---- search ----

    /// Breadth first, so that a violation is found by a shortest way.
    pub fn search(&mut self, states_max: usize, mut progress: impl FnMut(usize)) -> Report {
        let mut report = Report {
            name: self.setup.name,
            states: 0,
            transitions: 0,
            depth: 0,
            node_states: 0,
            chosen: vec![0; self.ballots.len()],
            established: 0,
            watermarked: 0,
            violation: None,
            complete: false,
        };
        let initial = self.initial();
        let mut seen = Seen::default();
        seen.insert(initial.fingerprint(), 0);
        let mut layer = VecDeque::from([initial]);
        let mut next_layer = VecDeque::new();
        let mut next = Vec::new();
        loop {
            let Some(state) = layer.pop_front() else {
                if next_layer.is_empty() {
                    report.complete = true;
                    break;
                }
                report.depth += 1;
                std::mem::swap(&mut layer, &mut next_layer);
                continue;
            };
            report.states += 1;
            if report.states.is_multiple_of(1_000_000) {
                progress(report.states);
            }
            if let Some(broken) = self.check(&state, &mut report) {
                report.violation = Some((broken, self.trace(&seen, state.fingerprint())));
                break;
            }
            if report.states >= states_max {
                break;
            }
            let parent = state.fingerprint();
            next.clear();
            self.successors(&state, &mut |_, state| next.push(state));
            report.transitions += next.len();
            for state in next.drain(..) {
                if let Entry::Vacant(vacant) = seen.entry(state.fingerprint()) {
                    vacant.insert(parent);
                    next_layer.push_back(state);
                }
            }
        }
        report.node_states = self.hosts.len();
        report
    }

    fn trace(&mut self, seen: &Seen, last: u64) -> Vec<String> {
        let mut path = vec![last];
        while let Some(parent) = path.last().and_then(|at| seen.get(at)).filter(|parent| **parent != 0) {
            path.push(*parent);
        }
        let mut state = self.initial();
        let mut lines = Vec::new();
        for wanted in path.into_iter().rev().skip(1) {
            let mut found = None;
            self.successors(&state, &mut |action, next| {
                if found.is_none() && next.fingerprint() == wanted {
                    found = Some((action, next));
                }
            });
            let (action, next) = found.expect("a known state follows");
            lines.push(self.tell(&action));
            state = next;
        }
        lines
    }

    // ---- the first state ----

    fn initial(&mut self) -> State {
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

    fn start(&self, id: NodeId, durable: Durable) -> Host {
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

    // ---- what may happen ----

    fn successors(&mut self, state: &State, found: &mut dyn FnMut(Action, State)) {
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
    fn deliver(&mut self, state: &mut State, node: usize, packet: u16) {
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

    fn start_scout(&mut self, state: &mut State, ballot: usize) -> bool {
        let node = self.leader_of(ballot);
        let id = self.ballots[ballot];
        if self.setup.plans[ballot].waits && !self.is_told(state, node, (id.view, true)) {
            return false;
        }
        let known = self.host(state, node).replica.view().clone();
        if known.current.number != id.view || !known.current.is_voter(id.leader) {
            return false; // L3: only of a view that is known to be chosen
        }
        // A leader gives an older attempt of its own up when it makes a new one; and never goes back to an older ballot.
        let later = ballot + 1..self.ballots.len();
        if id.view > 1
            && later.into_iter().any(|b| self.leader_of(b) == node && state.ballots[b] != Phase::Idle)
        {
            return false;
        }
        let p1a = self.p1a_by(ballot, &known);
        state.add(p1a);
        let view = self.intern_view(known);
        state.ballots[ballot] = Phase::Scouting(view);
        true
    }

    /// Some node knows this of the views, and tells this one, as a heartbeat would.
    fn is_told(&mut self, state: &mut State, node: usize, view: (u64, bool)) -> bool {
        let Some(knows) = (0..self.setup.nodes).find(|node| self.facts(state, *node).view == view) else {
            return false;
        };
        let message = Message::ViewIs(self.host(state, knows).replica.view().clone());
        let from = Address { node: NodeId(knows as u64 + 1), role: RoleId::Acceptor };
        let packet = self.intern_packet(Packet { from, to: 1 << node, role: RoleId::Replica, message });
        self.deliver(state, node, packet);
        true
    }

    fn p1a(&mut self, ballot: usize) -> u16 {
        let first = ViewState::first((*self.setup.views[0]).clone());
        self.p1a_by(ballot, &first)
    }

    fn p1a_by(&mut self, ballot: usize, known: &ViewState) -> u16 {
        let id = self.ballots[ballot];
        let mut scout = Scout::new(id.leader, self.config.clone(), id, known.clone());
        let sends = scout.start(NOW).sends;
        let to = sends.iter().fold(0, |to, send| to | mask(send.to.nodes()));
        let Envelope { from, role, message, .. } = sends.into_iter().next().expect("a view has voters");
        self.intern_packet(Packet { from, to, role, message })
    }

    fn answers(&self, state: &State, ballot: usize) -> P1bs {
        let wanted = self.ballots[ballot];
        let is_answer = |packet: &&u16| matches!(&self.packets[usize::from(**packet)].message, Message::P1b(answer) if answer.ballot == wanted);
        state.net.iter().filter(is_answer).copied().collect()
    }

    /// What the ballot's scout may report: for every order in which it may hear these answers.
    fn outcomes(&mut self, state: &State, ballot: usize, answers: &P1bs) -> Vec<Adopted> {
        let Phase::Scouting(view) = state.ballots[ballot] else { return Vec::new() };
        let key = (ballot, view, answers.clone());
        if !self.outcomes.contains_key(&key) {
            let id = self.ballots[ballot];
            let known = self.views[usize::from(view)].clone();
            let mut scout = Scout::new(id.leader, self.config.clone(), id, known);
            let _ = scout.start(NOW);
            let mut found = BTreeSet::new();
            self.hear(&scout, answers, &mut found);
            self.outcomes.insert(key.clone(), found.into_iter().collect());
        }
        self.outcomes[&key].clone()
    }

    fn hear(&self, scout: &Scout, answers: &[u16], found: &mut BTreeSet<Adopted>) {
        for (index, answer) in answers.iter().enumerate() {
            let Packet { from, message, .. } = self.packets[usize::from(*answer)].clone();
            let mut scout = scout.clone();
            let outputs = scout.on_message(from, message, NOW);
            let adopted = outputs.sends.into_iter().find_map(|send| match send.message {
                Message::Adopted(adopted) => Some(*adopted),
                _ => None,
            });
            match adopted {
                Some(adopted) => {
                    // Who holds the watermark, and the clocks, do not matter here.
                    found.insert(Adopted { holder: NodeId(0), clocks: Vec::new(), ..adopted });
                }
                None => {
                    let mut rest = answers.to_vec();
                    rest.remove(index);
                    self.hear(&scout, &rest, found);
                }
            }
        }
    }

    /// The driver's `on_adopted` and `begin_reign`.
    fn adopt(&mut self, state: &mut State, ballot: usize, adopted: Adopted) -> bool {
        let replica = &self.host(state, self.leader_of(ballot)).replica;
        let (applied, mut known) = (replica.applied(), replica.view().clone());
        known.learn(&adopted.view);
        let id = self.ballots[ballot];
        if known.current.number != id.view {
            return false; // a newer view was chosen meanwhile
        }
        let key = (ballot, adopted, applied, known);
        let reign = match self.reign_ids.get(&key) {
            Some(reign) => *reign,
            None => {
                let reign = self.begin_reign(&key);
                self.reigns.push(reign);
                let number = u16::try_from(self.reigns.len() - 1).expect("few reigns");
                self.reign_ids.insert(key, number);
                number
            }
        };
        state.ballots[ballot] = Phase::Leading(reign);
        for answer in self.answers(state, ballot) {
            state.net.retain(|packet| *packet != answer);
        }
        for packet in &self.reigns[usize::from(reign)].packets {
            state.add(*packet);
        }
        true
    }

    fn begin_reign(&mut self, (ballot, adopted, applied, known): &ReignKey) -> Reign {
        let (id, plan) = (self.ballots[*ballot], self.setup.plans[*ballot].clone());
        let mut phase1_watermark = adopted.watermark;
        if self.config.has_bug(Bug::ProposeBelowWatermark) {
            phase1_watermark = adopted.watermark.min(*applied);
        }
        let last = adopted.accepted.last_key_value().map_or(adopted.watermark, |(slot, _)| *slot);
        let make = |body| Arc::new(Value { made_in: id, stamp_ms: 0, body });
        let mut proposals: Vec<(Slot, Arc<Value>)> = Vec::new();
        for slot in phase1_watermark + 1..=last {
            let value = adopted.accepted.get(&slot).map(|pvalue| pvalue.value.clone());
            proposals.push((Slot::Data(slot), value.unwrap_or_else(|| make(Body::Noop))));
        }
        for slot in last + 1..=last + plan.own {
            let body = match slot == last + 1 {
                true => Body::Start { establishes: (!known.established).then(|| known.current.clone()) },
                false => Body::Commands(Vec::new()),
            };
            proposals.push((Slot::Data(slot), make(body)));
        }
        let inherited = adopted.reconfig.clone().filter(|_| !self.config.has_bug(Bug::ReconfigForgotten));
        match (inherited, &plan.reconfigures) {
            (Some(pvalue), _) => proposals.push((pvalue.slot, pvalue.value)),
            (None, Some(next)) => {
                proposals.push((Slot::Reconfig(next.number), make(Body::Reconfig(next.clone()))));
            }
            (None, None) => {}
        }
        let mut reign = Reign {
            phase1_watermark,
            commanders: BTreeMap::new(),
            values: [None; SLOTS],
            packets: Vec::new(),
        };
        let targets: Arc<[NodeId]> = known.current.followers().collect();
        let commit = self.commit(*ballot, phase1_watermark, *applied);
        for (slot, value) in proposals {
            if matches!(slot, Slot::Data(number) if number > self.setup.slots) {
                continue;
            }
            let pvalue = PValue { slot, ballot: id, value: value.clone() };
            let (view, to) = (known.current.clone(), targets.clone());
            let mut commander = Commander::new(id.leader, self.config.clone(), pvalue, view, to, commit);
            for Envelope { from, to, role, message } in commander.start(NOW).sends {
                let to = mask(to.nodes());
                reign.packets.push(self.intern_packet(Packet { from, to, role, message }));
            }
            let index = self.slot_index(slot);
            reign.commanders.insert(index, commander);
            reign.values[index] = Some(self.intern_value(&value));
        }
        reign
    }

    /// Whether a commander may tell its leader now that a majority accepted.
    fn is_news(&mut self, state: &State, ballot: usize, reign: u16, slot: usize) -> bool {
        let is_reconfig = slot == self.setup.slots as usize;
        state.decided[ballot] & (1 << slot) == 0
            && (is_reconfig || (self.setup.decisions && self.setup.plans[ballot].announces))
            && self.reports(reign, slot, state.accepts[ballot][slot])
    }

    /// The driver's `on_decided`.
    fn decide(&mut self, state: &mut State, ballot: usize, reign: u16, slot: usize) {
        state.decided[ballot] |= 1 << slot;
        let node = self.leader_of(ballot);
        let value = self.reigns[usize::from(reign)].values[slot].expect("decided, so proposed");
        let value = self.values[usize::from(value)].clone();
        let id = self.ballots[ballot];
        let from = Address { node: id.leader, role: RoleId::Leader };
        let to = mask(&[id.leader]);
        let Body::Reconfig(next) = &value.body else {
            let message = Message::Decision { slot: slot as u64 + 1, value };
            let decision = self.intern_packet(Packet { from, to, role: RoleId::Replica, message });
            self.deliver(state, node, decision);
            return;
        };
        let mut known = self.host(state, node).replica.view().clone();
        if known.chosen(next) {
            // `enter_view`: it tells its siblings and, as its heartbeats would, those that may lead in the new view.
            let message = Message::ViewIs(known);
            for role in [RoleId::Replica, RoleId::Acceptor] {
                let news = self.intern_packet(Packet { from, to, role, message: message.clone() });
                self.deliver(state, node, news);
            }
            let leads = |plan: &&Plan| plan.view == next.number && plan.node != id.leader.0;
            let heirs: Vec<NodeId> =
                self.setup.plans.iter().filter(leads).map(|plan| NodeId(plan.node)).collect();
            if !heirs.is_empty() {
                let to = mask(&heirs);
                let news = self.intern_packet(Packet { from, to, role: RoleId::Replica, message });
                state.add(news);
            }
        }
    }

    /// Whether the commander of this slot reports a decision when these acceptors have answered.
    fn reports(&mut self, reign: u16, slot: usize, voters: u8) -> bool {
        let Some(commander) = self.reigns[usize::from(reign)].commanders.get(&slot) else { return false };
        let key = u64::from(reign) << 16 | (slot as u64) << 8 | u64::from(voters);
        *self.reports.entry(key).or_insert_with(|| {
            let mut commander = commander.clone();
            let (ballot, slot) = (commander.ballot(), commander.slot());
            let mut reported = false;
            for node in members(voters) {
                let from = Address { node, role: RoleId::Acceptor };
                let answer = Message::P2b { ballot, slot, promised: ballot, sent_at: NOW.at, granted: true };
                let sends = commander.on_message(from, answer, NOW).sends;
                reported |= sends.iter().any(|send| matches!(send.message, Message::Decided { .. }));
            }
            reported
        })
    }

    /// The driver's `commit`.
    fn commit(&self, ballot: usize, decided_through: u64, applied: u64) -> Watermark {
        let slot = match self.config.has_bug(Bug::WatermarkOverreach) {
            true => applied,
            false => applied.min(decided_through),
        };
        Watermark { ballot: self.ballots[ballot], slot }
    }

    /// Whatever a leader of this node may announce, it announces.
    fn announce(&mut self, state: &mut State, node: usize) {
        if !self.setup.decisions {
            return;
        }
        for ballot in 0..self.ballots.len() {
            let Phase::Leading(reign) = state.ballots[ballot] else { continue };
            if self.leader_of(ballot) != node {
                continue;
            }
            let applied = self.facts(state, node).applied.len() as u64;
            let mut through = self.reigns[usize::from(reign)].phase1_watermark;
            while through < self.setup.slots && state.decided[ballot] & (1 << through) != 0 {
                through += 1;
            }
            let commit = self.commit(ballot, through, applied);
            if commit.slot == 0 {
                continue;
            }
            let key = (ballot as u64) << 32 | commit.slot;
            let packet = self.commits.get(&key).copied().unwrap_or_else(|| {
                let id = self.ballots[ballot];
                let from = Address { node: id.leader, role: RoleId::Leader };
                let view = &self.setup.views[id.view as usize - 1];
                let to = mask(&view.followers().collect::<Vec<_>>()) & self.setup.hearers;
                let (role, message) = (RoleId::Acceptor, Message::Commit { commit });
                let packet = self.intern_packet(Packet { from, to, role, message });
                self.commits.insert(key, packet);
                packet
            });
            state.add(packet);
        }
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

    // ---- what must hold ----

    fn check(&mut self, state: &State, report: &mut Report) -> Option<String> {
        let mut chosen = [None; SLOTS];
        let mut is_established = false;
        for ballot in 0..self.ballots.len() {
            let reign = match state.ballots[ballot] {
                Phase::Leading(reign) => Some(reign),
                Phase::Over => None,
                Phase::Idle | Phase::Scouting(_) => continue,
            };
            let majority = &self.majorities[self.ballots[ballot].view as usize - 1];
            let is_majority: [bool; SLOTS] =
                std::array::from_fn(|slot| majority[usize::from(state.accepts[ballot][slot])]);
            for slot in 0..=self.setup.slots as usize {
                let voters = state.accepts[ballot][slot];
                if reign.is_some_and(|reign| self.reports(reign, slot, voters) != is_majority[slot]) {
                    return Some(format!("the commander of index {} miscounts", slot + 1));
                }
                if !is_majority[slot] {
                    continue;
                }
                let value = self.proposed(state, ballot, slot).expect("accepted, so proposed");
                is_established |= self.starts_view(value);
                let known = *chosen[slot].get_or_insert(value);
                if known != value {
                    let is_reconfig = slot == self.setup.slots as usize;
                    let slot = if is_reconfig { "view 2".into() } else { format!("slot {}", slot + 1) };
                    let [one, two] = [known, value].map(|value| brief(&self.values[usize::from(value)]));
                    let ballot = self.ballots[ballot];
                    return Some(format!(
                        "{slot} has two chosen values: {one}, and {two} in ballot {ballot}"
                    ));
                }
            }
            report.chosen[ballot] += usize::from(is_majority.contains(&true));
        }
        let (mut knows_established, mut holds_watermark) = (false, false);
        for node in 0..self.setup.nodes {
            let facts = self.facts(state, node);
            for (slot, value) in facts.applied.iter().enumerate() {
                if chosen[slot] != Some(*value) {
                    let value = brief(&self.values[usize::from(*value)]);
                    return Some(format!("{} applied {value} in slot {}, not chosen", facts.id, slot + 1));
                }
            }
            knows_established |= facts.view == (2, true);
            holds_watermark |= facts.watermark > 0;
        }
        if knows_established && !is_established {
            return Some("a view is taken as established, but its start entry was not chosen".into());
        }
        report.established += usize::from(knows_established);
        report.watermarked += usize::from(holds_watermark);
        if is_established { self.check_nothing_is_lost(state, &chosen) } else { None }
    }

    /// The start entry of view 2 is chosen: every majority of view 2 must be able to tell each chosen value.
    fn check_nothing_is_lost(&self, state: &State, chosen: &[Option<u8>; SLOTS]) -> Option<String> {
        for (set, _) in self.majorities[1].iter().enumerate().filter(|(_, is_majority)| **is_majority) {
            let among = |node: &usize| set & (1 << node) != 0;
            let nodes = || (0..self.setup.nodes).filter(among).map(|node| self.facts(state, node));
            let watermark = nodes().map(|facts| facts.watermark).max().unwrap_or(0) as usize;
            let data = chosen.iter().enumerate().take(self.setup.slots as usize);
            for (slot, value) in data.skip(watermark) {
                let Some(value) = *value else { continue };
                let accepted = nodes().flat_map(|facts| &facts.accepted).filter(|(at, ..)| *at == slot);
                if accepted.max_by_key(|(_, ballot, _)| *ballot).is_none_or(|(.., known)| *known != value) {
                    let who: Vec<NodeId> = nodes().map(|facts| facts.id).collect();
                    let slot = slot + 1;
                    return Some(format!(
                        "view 2 is established, but {who:?} cannot tell what slot {slot} holds"
                    ));
                }
            }
        }
        None
    }

    fn starts_view(&self, value: u8) -> bool {
        matches!(self.values[usize::from(value)].body, Body::Start { establishes: Some(_) })
    }

    fn proposed(&self, state: &State, ballot: usize, slot: usize) -> Option<u8> {
        if let Phase::Leading(reign) = state.ballots[ballot] {
            return self.reigns[usize::from(reign)].values[slot];
        }
        let id = self.ballots[ballot];
        let value =
            state.net.iter().find_map(|packet| match &self.packets[usize::from(*packet)].message {
                Message::P2a { pvalue, .. }
                    if pvalue.ballot == id && self.slot_index(pvalue.slot) == slot =>
                {
                    Some(&pvalue.value)
                }
                _ => None,
            })?;
        self.values.iter().position(|known| known == value).map(|place| place as u8)
    }

    // ---- helpers ----

    fn leader_of(&self, ballot: usize) -> usize {
        self.setup.plans[ballot].node as usize - 1
    }

    fn host(&self, state: &State, node: usize) -> &Host {
        &self.hosts[state.nodes[node] as usize]
    }

    fn facts(&self, state: &State, node: usize) -> &Facts {
        &self.facts[state.nodes[node] as usize]
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

    fn intern_host(&mut self, host: Host) -> u32 {
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

    fn intern_value(&mut self, value: &Arc<Value>) -> u8 {
        let place = self.values.iter().position(|known| known == value).unwrap_or_else(|| {
            self.values.push(value.clone());
            self.values.len() - 1
        });
        u8::try_from(place).expect("few values")
    }

    fn intern_packet(&mut self, packet: Packet) -> u16 {
        if let Some(known) = self.packet_ids.get(&packet) {
            return *known;
        }
        let next = u16::try_from(self.packets.len()).expect("few messages");
        self.packets.push(packet.clone());
        self.packet_ids.insert(packet, next);
        next
    }

    fn intern_view(&mut self, view: ViewState) -> u16 {
        let place = self.views.iter().position(|known| *known == view).unwrap_or_else(|| {
            self.views.push(view);
            self.views.len() - 1
        });
        u16::try_from(place).expect("few views")
    }

    fn tell(&self, action: &Action) -> String {
        match action {
            Action::Deliver(packet, node) => {
                let packet = &self.packets[usize::from(*packet)];
                format!("n{} {:?} gets {}", node + 1, packet.role, brief_message(&packet.message))
            }
            Action::Scout(ballot) => format!("{} scouts", self.ballots[*ballot]),
            Action::Adopt(ballot) => format!("{} is adopted and proposes", self.ballots[*ballot]),
            Action::Decide(ballot, slot) => {
                format!("{} hears that index {} is decided", self.ballots[*ballot], slot + 1)
            }
            Action::WriteDown(node) => format!("n{} makes its decisions durable", node + 1),
            Action::CatchUp(node, peer) => format!("n{} catches up from n{}", node + 1, peer + 1),
            Action::Crash(node) => format!("n{} crashes and restarts", node + 1),
        }
    }
}

enum Action {
    Deliver(u16, usize),
    Scout(usize),
    Adopt(usize),
    Decide(usize, usize),
    WriteDown(usize),
    CatchUp(usize, usize),
    Crash(usize),
}

type Inbox = VecDeque<(Address, RoleId, Message)>;

impl Host {
    /// Hands messages to the roles until they have nothing more to say to each other; returns what leaves for scouts, commanders and other
    /// nodes.
    fn run(&mut self, mut inbox: Inbox) -> Vec<Envelope> {
        let mut leaving = Vec::new();
        while let Some((from, role, message)) = inbox.pop_front() {
            let outputs = match role {
                RoleId::Acceptor => self.acceptor.on_message(from, message, NOW),
                RoleId::Replica => self.replica.on_message(from, message, NOW),
                _ => continue, // the leader is the driver, which looks at the replica itself
            };
            leaving.extend(self.perform(outputs, &mut inbox));
        }
        leaving
    }

    /// The replica's deadline passes, if it is one for writing the decided watermark down.
    fn write_down(&mut self) -> Vec<Envelope> {
        if self.replica.deadline().is_none_or(|due| due > NOW.at) {
            return Vec::new();
        }
        let mut inbox = VecDeque::new();
        let outputs = self.replica.on_timeout(NOW);
        let mut leaving = self.perform(outputs, &mut inbox);
        leaving.extend(self.run(inbox));
        leaving
    }

    fn perform(&mut self, outputs: Outputs, inbox: &mut Inbox) -> Vec<Envelope> {
        let Outputs { persist, sends, calls, .. } = outputs;
        if let Some(disk) = &mut self.disk {
            persist.into_iter().for_each(|record| disk.apply(record));
        }
        let host = Address { node: self.id, role: RoleId::Host };
        for call in calls {
            if let HostCall::Apply { slot, value } = call {
                self.applied.push(value);
                let applied = Message::Applied { slot, stamp_ms: 0, executed_below: 0 };
                inbox.push_back((host, RoleId::Replica, applied));
            }
        }
        let mut leaving = Vec::new();
        for envelope in sends {
            let stays = matches!(envelope.role, RoleId::Acceptor | RoleId::Replica | RoleId::Leader)
                && envelope.to.nodes() == [self.id];
            if stays {
                inbox.push_back((envelope.from, envelope.role, envelope.message));
            } else {
                leaving.push(envelope);
            }
        }
        leaving
    }
}

fn mask(nodes: &[NodeId]) -> u8 {
    nodes.iter().fold(0, |mask, node| mask | 1 << (node.0 - 1))
}

fn members(mask: u8) -> impl Iterator<Item = NodeId> {
    (0..NODES as u64).filter(move |bit| mask & (1 << bit) != 0).map(|bit| NodeId(bit + 1))
}

fn brief(value: &Value) -> String {
    let kind = match &value.body {
        Body::Noop => "noop",
        Body::Start { establishes: None } => "start",
        Body::Start { establishes: Some(_) } => "view start",
        Body::Commands(_) => "commands",
        Body::Reconfig(view) => return format!("{:?} of {}", view.members.keys(), value.made_in),
    };
    format!("{kind} of {}", value.made_in)
}

fn brief_message(message: &Message) -> String {
    match message {
        Message::P1a { ballot, .. } => format!("P1a {ballot}"),
        Message::P2a { pvalue: PValue { slot, ballot, value }, commit, .. } => {
            format!("P2a {ballot} slot {slot:?}: {} (commit {})", brief(value), commit.slot)
        }
        Message::Commit { commit } => format!("Commit {} {}", commit.ballot, commit.slot),
        Message::ViewIs(view) => format!("ViewIs {} established {}", view.current.number, view.established),
        other => format!("{other:?}"),
    }
}

impl Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        write!(
            text,
            "{}: {} states, {} steps, depth {}, {} node states; chosen per ballot in {:?} states, view 2 established in {}, watermark in {}",
            self.name,
            self.states,
            self.transitions,
            self.depth,
            self.node_states,
            self.chosen,
            self.established,
            self.watermarked
        )?;
        if !self.complete {
            text.push_str("; not complete");
        }
        f.write_str(&text)
    }
}
