//! Exhaustive search of small configurations, over the real roles as values.
//!
//! Acceptors, replicas, scouts and commanders are the crate's own; only the leader is a thin driver, which follows `begin_reign`,
//! `commit` and `enter_view` of `leader/reign.rs`. The network is a growing set of messages: any message may be delivered to any of its
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
    /// Whether the first ballot is adopted at the start. (There is nothing that it could inherit.)
    pub first_adopted: bool,
    /// How often a node may crash and come back with what was durable.
    pub crashes: u8,
}

pub fn view(number: u64, voters: &[u64]) -> Arc<View> {
    let contact = |id: &u64| (NodeId(*id), Bytes::from(format!("n{id}")));
    let first = View::first(voters.iter().map(contact), Duration::ZERO);
    Arc::new(View { number, next_member: if number == 1 { 4 } else { 5 }, ..first })
}

fn plan(node: u64, view: u64, own: u64) -> Plan {
    Plan { node, view, own, reconfigures: None }
}

fn one_view(name: &'static str, plans: Vec<Plan>, slots: u64) -> Setup {
    let views = vec![view(1, &[1, 2, 3])];
    Setup { name, nodes: 3, views, plans, slots, decisions: false, first_adopted: false, crashes: 0 }
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

/// From view 1 {1,2,3} to view 2 {2,3,4}: a slot beside the reconfiguration, a leader that needs both views, a later one that may know the
/// view to be established.
pub fn reconfiguration() -> Setup {
    let views = vec![view(1, &[1, 2, 3]), view(2, &[2, 3, 4])];
    let mut plans = vec![plan(1, 1, 1), plan(2, 2, 1), plan(3, 2, 1)];
    plans[0].reconfigures = Some(views[1].clone());
    Setup {
        name: "view 1 {1,2,3} to view 2 {2,3,4}",
        nodes: 4,
        views,
        plans,
        slots: 2,
        decisions: true,
        first_adopted: true,
        crashes: 0,
    }
}

/// Every configuration, smallest first.
pub fn all() -> Vec<Setup> {
    vec![two_ballots(), rival_views(), three_ballots(), watermarks(), crash(), wide(), reconfiguration()]
}

/// The planted bugs that some configuration notices.
pub const COVERED: &[Bug] = &[
    Bug::PromiseNotDurable,
    Bug::AcceptNotDurable,
    Bug::FirstValueWins,
    Bug::ProposeBelowWatermark,
    Bug::AcceptBelowPromise,
    Bug::OldViewSkipped,
    Bug::HolesAtViewStart,
    Bug::OldValueTakenAsDecided,
    Bug::WatermarkOverreach,
    Bug::WatermarkNotDurable,
    Bug::ReconfigForgotten,
];

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
    values: BTreeMap<usize, Arc<Value>>,
    packets: Vec<u16>,
}

#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only fingerprints are hashed")
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type Seen = HashMap<u64, u64, BuildHasherDefault<Identity>>;
/// A ballot, what its leader inherits, how far its replica is, and what it knows of the views.
type ReignKey = (usize, Adopted, u64, ViewState);
type P1bs = Vec<u16>;

pub struct Model {
    setup: Setup,
    config: Arc<Config>,
    ballots: Vec<Ballot>,
    hosts: Vec<Host>,
    host_ids: HashMap<String, u32>,
    packets: Vec<Packet>,
    packet_ids: HashMap<Packet, u16>,
    views: Vec<ViewState>,
    reigns: Vec<Reign>,
    reign_ids: HashMap<ReignKey, u16>,
    steps: HashMap<(u32, u16), Step>,
    outcomes: HashMap<(usize, u16, P1bs), Vec<Adopted>>,
    reports: HashMap<(u16, usize, u8), bool>,
    holdings: HashMap<u32, (u64, Vec<PValue>)>,
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
        Model {
            setup,
            config: Arc::new(config),
            ballots,
            hosts: Vec::new(),
            host_ids: HashMap::new(),
            packets: Vec::new(),
            packet_ids: HashMap::new(),
            views: Vec::new(),
            reigns: Vec::new(),
            reign_ids: HashMap::new(),
            steps: HashMap::new(),
            outcomes: HashMap::new(),
            reports: HashMap::new(),
            holdings: HashMap::new(),
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
            if report.states % 1_000_000 == 0 {
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
        state
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
                let mut next = state.clone();
                if self.deliver(&mut next, node, packet) {
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
                        let mut next = state.clone();
                        if self.decide(&mut next, ballot, reign, slot) {
                            found(Action::Decide(ballot, slot), next);
                        }
                    }
                }
                Phase::Over => {}
            }
        }
        if self.setup.decisions {
            for node in 0..self.setup.nodes {
                let mut next = state.clone();
                if self.write_down(&mut next, node) {
                    found(Action::WriteDown(node), next);
                }
                for peer in 0..self.setup.nodes {
                    let mut next = state.clone();
                    if self.catch_up(&mut next, node, peer) {
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

    /// A message reaches a node. False if that changed nothing.
    fn deliver(&mut self, state: &mut State, node: usize, packet: u16) -> bool {
        let key = (state.nodes[node], packet);
        if !self.steps.contains_key(&key) {
            let Packet { from, role, message, .. } = self.packets[usize::from(packet)].clone();
            let mut host = self.hosts[key.0 as usize].clone();
            let sends = host.run(VecDeque::from([(from, role, message)]));
            let step = self.step(host, sends);
            self.steps.insert(key, step);
        }
        let step = self.steps[&key].clone();
        self.take(state, node, step)
    }

    fn step(&mut self, host: Host, sends: Vec<Envelope>) -> Step {
        let mut step = Step { node: self.intern_host(host), packets: Vec::new(), accepted: Vec::new() };
        for Envelope { from, to, role, message } in sends {
            match &message {
                Message::P2b { ballot, slot, promised, .. } => {
                    if promised == ballot {
                        step.accepted.push((self.index_of(*ballot), self.slot_index(*slot)));
                    }
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

    fn take(&mut self, state: &mut State, node: usize, step: Step) -> bool {
        let mut changed = state.nodes[node] != step.node;
        state.nodes[node] = step.node;
        for (ballot, slot) in step.accepted {
            changed |= state.accepts[ballot][slot] & (1 << node) == 0;
            state.accepts[ballot][slot] |= 1 << node;
        }
        for packet in step.packets {
            let is_wanted = match &self.packets[usize::from(packet)].message {
                Message::P1b(answer) => {
                    matches!(state.ballots[self.index_of(answer.ballot)], Phase::Scouting(_))
                }
                _ => true,
            };
            if is_wanted && state.net.binary_search(&packet).is_err() {
                state.add(packet);
                changed = true;
            }
        }
        if changed {
            self.announce(state, node);
        }
        changed
    }

    fn start_scout(&mut self, state: &mut State, ballot: usize) -> bool {
        let node = self.leader_of(ballot);
        let known = self.host(state, node).replica.view().clone();
        let id = self.ballots[ballot];
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
            values: BTreeMap::new(),
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
            reign.values.insert(index, value);
        }
        reign
    }

    /// The driver's `on_decided`: a commander has heard a majority.
    fn decide(&mut self, state: &mut State, ballot: usize, reign: u16, slot: usize) -> bool {
        let is_reconfig = slot == self.setup.slots as usize;
        let known = state.decided[ballot] & (1 << slot) != 0;
        let voters = state.accepts[ballot][slot];
        if known || (!is_reconfig && !self.setup.decisions) || !self.reports(reign, slot, voters) {
            return false;
        }
        state.decided[ballot] |= 1 << slot;
        let node = self.leader_of(ballot);
        let value = self.reigns[usize::from(reign)].values[&slot].clone();
        let id = self.ballots[ballot];
        let from = Address { node: id.leader, role: RoleId::Leader };
        let mut host = self.host(state, node).clone();
        let mut inbox = VecDeque::new();
        if let Body::Reconfig(next) = &value.body {
            let mut known = host.replica.view().clone();
            if known.chosen(next) {
                // `enter_view`: to its siblings; and, as its heartbeats would, to those that may lead in the new view.
                inbox.push_back((from, RoleId::Replica, Message::ViewIs(known.clone())));
                inbox.push_back((from, RoleId::Acceptor, Message::ViewIs(known.clone())));
                let leads = |plan: &&Plan| plan.view == next.number && plan.node != id.leader.0;
                let heirs: Vec<NodeId> =
                    self.setup.plans.iter().filter(leads).map(|plan| NodeId(plan.node)).collect();
                if !heirs.is_empty() {
                    let (to, message) = (mask(&heirs), Message::ViewIs(known));
                    let packet = self.intern_packet(Packet { from, to, role: RoleId::Replica, message });
                    state.add(packet);
                }
            }
        } else {
            inbox.push_back((from, RoleId::Replica, Message::Decision { slot: slot as u64 + 1, value }));
        }
        let sends = host.run(inbox);
        let step = self.step(host, sends);
        self.take(state, node, step);
        self.announce(state, node);
        true
    }

    /// Whether the commander of this slot reports a decision when these acceptors have answered.
    fn reports(&mut self, reign: u16, slot: usize, voters: u8) -> bool {
        let Some(commander) = self.reigns[usize::from(reign)].commanders.get(&slot) else { return false };
        *self.reports.entry((reign, slot, voters)).or_insert_with(|| {
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
            let applied = self.host(state, node).replica.applied();
            let mut through = self.reigns[usize::from(reign)].phase1_watermark;
            while through < self.setup.slots && state.decided[ballot] & (1 << through) != 0 {
                through += 1;
            }
            let commit = self.commit(ballot, through, applied);
            if commit.slot > 0 {
                let id = self.ballots[ballot];
                let from = Address { node: id.leader, role: RoleId::Leader };
                let view = &self.setup.views[id.view as usize - 1];
                let to = mask(&view.followers().collect::<Vec<_>>());
                let (role, message) = (RoleId::Acceptor, Message::Commit { commit });
                let packet = self.intern_packet(Packet { from, to, role, message });
                state.add(packet);
            }
        }
    }

    fn write_down(&mut self, state: &mut State, node: usize) -> bool {
        let before = self.host(state, node);
        if before.replica.deadline().is_none_or(|due| due > NOW.at) {
            return false;
        }
        let mut host = before.clone();
        let mut inbox = VecDeque::new();
        let outputs = host.replica.on_timeout(NOW);
        let mut sends = host.perform(outputs, &mut inbox);
        sends.extend(host.run(inbox));
        let step = self.step(host, sends);
        self.take(state, node, step)
    }

    /// A replica fetches what it misses from a peer's log.
    fn catch_up(&mut self, state: &mut State, node: usize, peer: usize) -> bool {
        let decided = self.host(state, node).replica.decided();
        if self.host(state, peer).replica.applied() <= decided {
            return false;
        }
        let from = Address { node: NodeId(node as u64 + 1), role: RoleId::Replica };
        let mut giver = self.host(state, peer).clone();
        let fetch = Message::Fetch { from_slot: decided + 1 };
        let sends = giver.run(VecDeque::from([(from, RoleId::Replica, fetch)]));
        let log = sends.into_iter().find(|send| matches!(send.message, Message::Log { .. }));
        let Some(Envelope { from, message, .. }) = log else { return false };
        let mut host = self.host(state, node).clone();
        let sends = host.run(VecDeque::from([(from, RoleId::Replica, message)]));
        let step = self.step(host, sends);
        self.take(state, node, step)
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
        let mut chosen: BTreeMap<usize, Arc<Value>> = BTreeMap::new();
        let mut is_established = false;
        for (ballot, id) in self.ballots.clone().into_iter().enumerate() {
            let (Phase::Leading(_) | Phase::Over) = state.ballots[ballot] else { continue };
            let view = self.setup.views[id.view as usize - 1].clone();
            let mut chose = false;
            for slot in 0..=self.setup.slots as usize {
                let voters = state.accepts[ballot][slot];
                let is_majority = view.is_majority(&members(voters).collect());
                if let Phase::Leading(reign) = state.ballots[ballot]
                    && self.reports(reign, slot, voters) != is_majority
                {
                    return Some(format!("the commander of slot {} miscounts", slot + 1));
                }
                if !is_majority {
                    continue;
                }
                chose = true;
                let value = self.proposed(state, ballot, slot)?;
                is_established |= matches!(value.body, Body::Start { establishes: Some(_) });
                match chosen.entry(slot) {
                    std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(value)),
                    std::collections::btree_map::Entry::Occupied(known) if *known.get() != value => {
                        let slot = if slot == self.setup.slots as usize {
                            "view 2".into()
                        } else {
                            format!("slot {}", slot + 1)
                        };
                        let (one, two) = (brief(known.get()), brief(&value));
                        return Some(format!(
                            "{slot} has two chosen values: {one} and {two} (in ballot {id})"
                        ));
                    }
                    std::collections::btree_map::Entry::Occupied(_) => {}
                }
            }
            report.chosen[ballot] += usize::from(chose);
        }
        let (mut knows_established, mut holds_watermark) = (false, false);
        for node in 0..self.setup.nodes {
            let host = self.host(state, node);
            for (slot, value) in host.applied.iter().enumerate() {
                if chosen.get(&slot) != Some(value) {
                    let (id, slot, value) = (host.id, slot + 1, brief(value));
                    return Some(format!("{id} applied {value} in slot {slot}, which was not chosen"));
                }
            }
            let known = host.replica.view();
            knows_established |= known.current.number == 2 && known.established;
            holds_watermark |= host.acceptor.watermark() > 0;
        }
        if knows_established && !is_established {
            return Some("a view is taken as established, but its start entry was not chosen".into());
        }
        report.established += usize::from(knows_established);
        report.watermarked += usize::from(holds_watermark);
        if is_established { self.check_nothing_is_lost(state, &chosen) } else { None }
    }

    /// The start entry of view 2 is chosen: every majority of view 2 must be able to tell each chosen value.
    fn check_nothing_is_lost(
        &mut self,
        state: &State,
        chosen: &BTreeMap<usize, Arc<Value>>,
    ) -> Option<String> {
        let view = self.setup.views[1].clone();
        for majority in (0..1u8 << self.setup.nodes).filter(|set| view.is_majority(&members(*set).collect()))
        {
            let mut watermark = 0;
            let mut best: BTreeMap<usize, PValue> = BTreeMap::new();
            for node in members(majority).filter(|node| view.is_voter(*node)) {
                let (durable, accepted) = self.holding(state.nodes[node.0 as usize - 1]);
                watermark = watermark.max(*durable);
                for pvalue in accepted {
                    let Slot::Data(slot) = pvalue.slot else { continue };
                    let known = best.entry(slot as usize - 1).or_insert_with(|| pvalue.clone());
                    if known.ballot < pvalue.ballot {
                        *known = pvalue.clone();
                    }
                }
            }
            for (slot, value) in chosen.range(..self.setup.slots as usize) {
                let is_held = *slot < watermark as usize || best.get(slot).is_some_and(|p| p.value == *value);
                if !is_held {
                    let (slot, who) = (slot + 1, members(majority).collect::<Vec<_>>());
                    return Some(format!(
                        "view 2 is established, but {who:?} do not know what was chosen in slot {slot}"
                    ));
                }
            }
        }
        None
    }

    /// What an acceptor would say in phase 1.
    fn holding(&mut self, host: u32) -> &(u64, Vec<PValue>) {
        let hosts = &self.hosts;
        self.holdings.entry(host).or_insert_with(|| {
            let mut acceptor = hosts[host as usize].acceptor.clone();
            let ballot = Ballot { view: 9, round: 9, leader: NodeId(9) };
            let from = Address { node: NodeId(9), role: RoleId::Scout(ballot) };
            let sends = acceptor.on_message(from, Message::P1a { ballot, from_slot: 0 }, NOW).sends;
            sends
                .into_iter()
                .find_map(|send| match send.message {
                    Message::P1b(answer) => Some((answer.watermark, answer.accepted)),
                    _ => None,
                })
                .expect("an acceptor that is not bound promises")
        })
    }

    fn proposed(&self, state: &State, ballot: usize, slot: usize) -> Option<Arc<Value>> {
        if let Phase::Leading(reign) = state.ballots[ballot] {
            return self.reigns[usize::from(reign)].values.get(&slot).cloned();
        }
        let (id, slot) = (self.ballots[ballot], slot);
        state.net.iter().find_map(|packet| match &self.packets[usize::from(*packet)].message {
            Message::P2a { pvalue, .. } if pvalue.ballot == id && self.slot_index(pvalue.slot) == slot => {
                Some(pvalue.value.clone())
            }
            _ => None,
        })
    }

    // ---- helpers ----

    fn leader_of(&self, ballot: usize) -> usize {
        self.setup.plans[ballot].node as usize - 1
    }

    fn host(&self, state: &State, node: usize) -> &Host {
        &self.hosts[state.nodes[node] as usize]
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
        let next = u32::try_from(self.hosts.len()).expect("few node states");
        match self.host_ids.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                free.insert(next);
                self.hosts.push(host);
                next
            }
        }
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
