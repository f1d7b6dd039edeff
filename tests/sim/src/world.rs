//! The world: true time, one queue of events, and everything that lives in it.
//!
//! Single-threaded. Events are ordered by time, then by the order in which they were made, so a seed always gives the same run.

use crate::clock::Clock;
use crate::disk::Disk;
use crate::history::History;
use crate::host::Host;
use crate::invariants::Observer;
use crate::nemesis::Nemesis;
use crate::network::{Fate as Travel, NODES_MAX, Network, Parcel, travel};
use crate::rng::Rng;
use crate::stats::Stats;
use crate::swarm::{MS, SECOND, Swarm};
use crate::trace::{Tail, Trace, of_message, of_role};
use crate::workload::Client;
use bytes::Bytes;
use consensus::{Config, Message, NodeId, Record, RoleId, View, ViewState};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

/// More events than this in one run, and this many for each operation of a client, are a loop without end.
const STEPS_MAX: u64 = 1_000_000;
const STEPS_PER_OPERATION: u64 = 5_000;

/// Something that happens.
#[derive(Debug)]
pub enum Event {
    /// A message arrives; inside a node only in the life that sent it.
    Deliver(Box<Parcel>, Option<u64>),
    /// The host tells its replica the next thing.
    Mail(NodeId, u64),
    /// A role's deadline may have passed.
    Timer(NodeId, u64),
    /// A disk sync ends.
    Synced(NodeId, u64),
    /// A snapshot is durable.
    SnapshotWritten(NodeId, u64),
    /// A fetched snapshot is durable.
    Installed(NodeId, u64, u64),
    /// A process is started.
    Start(NodeId),
    /// A client does the next thing.
    Client(usize),
    /// A client's request arrives at its node.
    Arrive(usize, usize, NodeId, u64),
    /// A client loses its patience with an operation.
    Impatient(usize, usize),
    /// A node looks after the locks of its clients.
    Duties(NodeId, u64),
    /// The nemesis strikes.
    Strike,
    /// A cut or a clog ends.
    Undo(u64),
    /// The operators look after members that have to be replaced.
    Operators,
    /// The liveness phase looks whether everything is done.
    Look,
}

#[derive(Debug)]
struct Queued {
    time: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.number) == (other.time, other.number)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// Everything.
#[derive(Debug)]
pub struct World {
    /// True time in microseconds.
    pub now: u64,
    /// The run's chance.
    pub rng: Rng,
    /// What the run is made of.
    pub swarm: Swarm,
    /// The engine's limits, shared by all nodes.
    pub config: Arc<Config>,
    /// The first view.
    pub first: Arc<View>,
    /// Every machine, by member id.
    pub hosts: BTreeMap<NodeId, Host>,
    /// The links.
    pub network: Network,
    /// The clients.
    pub clients: Vec<Client>,
    /// What they saw.
    pub history: History,
    /// The faults.
    pub nemesis: Nemesis,
    /// The laws.
    pub observer: Observer,
    /// What was exercised.
    pub stats: Stats,
    /// What happened.
    pub trace: Trace,
    /// True time at which healing began, once it did.
    pub healed_at: Option<u64>,
    /// Everything that the liveness phase asks for is there.
    pub is_settled: bool,
    /// A long run: no number of events is a loop.
    pub has_no_step_limit: bool,
    queue: BinaryHeap<Reverse<Queued>>,
    made: u64,
    steps: u64,
}

impl World {
    /// A new cluster that has not started.
    #[must_use]
    pub fn new(seed: u64, mut rng: Rng, swarm: Swarm, tail: Option<Tail>) -> World {
        let members = (1..=swarm.nodes).map(|id| (NodeId(id), Bytes::from(format!("first{id}"))));
        let first = Arc::new(View::first(members, swarm.lease));
        let config = Arc::new(swarm.config.clone());
        let observer = Observer::new(&first, &config, swarm.check_time, swarm.has_locks);
        let nemesis = Nemesis::new(&mut rng);
        let mut world = World {
            now: SECOND,
            rng,
            config,
            first,
            hosts: BTreeMap::new(),
            network: Network::new(),
            clients: Vec::new(),
            history: History::default(),
            nemesis,
            observer,
            stats: Stats { runs: 1, ..Stats::default() },
            trace: Trace::new(tail),
            healed_at: None,
            is_settled: false,
            has_no_step_limit: false,
            queue: BinaryHeap::new(),
            made: 0,
            steps: 0,
            swarm,
        };
        world.trace.mix(seed, 0, 0);
        let view = ViewState::first((*world.first).clone());
        for id in 1..=world.swarm.nodes {
            world.add_host(NodeId(id), view.clone());
        }
        world.start_clients();
        world.at(0, Event::Strike);
        world.at(100 * MS, Event::Operators);
        world
    }

    /// A machine with an empty disk, which knows `view` and nothing else. Starts soon.
    pub fn add_host(&mut self, id: NodeId, view: ViewState) {
        let at = self.rng.skewed(0, 1_000 * SECOND);
        let bound = i64::try_from(self.config.drift_ppm).unwrap_or(0);
        let rate = match self.rng.between(0, 3) {
            0 => bound,
            1 => -bound,
            _ => i64::try_from(self.rng.between(0, 2 * self.config.drift_ppm)).unwrap_or(0) - bound,
        };
        let error = i64::try_from(self.rng.between(0, 2 * self.swarm.wall_error)).unwrap_or(0)
            - i64::try_from(self.swarm.wall_error).unwrap_or(0);
        let clock = Clock::new(self.now, at, rate, error);
        assert!(id.0 < NODES_MAX as u64, "the nemesis limits how many members are added");
        self.hosts.insert(id, Host::new(id, clock, Disk::with(vec![Record::View(view)])));
        let delay = self.rng.between(0, 50 * MS);
        self.at(delay, Event::Start(id));
    }

    /// Makes an event that happens after `delay`.
    pub fn at(&mut self, delay: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse(Queued { time: self.now + delay, number: self.made, event }));
    }

    /// Runs until `end`, or until a law is broken, or until everything is settled.
    pub fn run_until(&mut self, end: u64) {
        while self.observer.verdict.complaint().is_none() && !self.is_settled {
            match self.queue.peek() {
                Some(Reverse(next)) if next.time <= end => {}
                _ => {
                    self.now = end;
                    return;
                }
            }
            let Some(Reverse(queued)) = self.queue.pop() else { return };
            self.now = queued.time;
            self.step(queued.event);
            let steps_max = STEPS_MAX + STEPS_PER_OPERATION * self.history.all().len() as u64;
            self.observer.verdict.check(self.steps < steps_max || self.has_no_step_limit, || {
                format!("busy loop: {steps_max} events at {} s", self.now / SECOND)
            });
        }
    }

    /// How many events were handled.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn step(&mut self, event: Event) {
        self.steps += 1;
        let node = match &event {
            Event::Deliver(parcel, _) => Some(parcel.to),
            Event::Mail(node, _) | Event::Timer(node, _) | Event::Synced(node, _) => Some(*node),
            Event::Duties(node, _) => Some(*node),
            Event::SnapshotWritten(node, _) | Event::Installed(node, ..) => Some(*node),
            Event::Arrive(_, _, node, _) => Some(*node),
            _ => None,
        };
        let pause = node.and_then(|node| self.hosts.get(&node)).map_or(0, |host| host.paused_until);
        if pause > self.now {
            self.at(pause - self.now, event);
            return;
        }
        match event {
            Event::Deliver(parcel, life) => self.deliver(*parcel, life),
            Event::Mail(node, life) => self.mail_due(node, life),
            Event::Timer(node, life) => self.timer_due(node, life),
            Event::Synced(node, life) => self.synced(node, life),
            Event::SnapshotWritten(node, life) => self.snapshot_written(node, life),
            Event::Installed(node, life, slot) => self.installed(node, life, slot),
            Event::Start(node) => self.start(node),
            Event::Client(client) => self.client_turn(client),
            Event::Arrive(client, operation, node, life) => self.arrive(client, operation, node, life),
            Event::Impatient(client, operation) => self.impatient(client, operation),
            Event::Duties(node, life) => self.duties(node, life),
            Event::Strike => self.strike(),
            Event::Undo(number) => self.undo(number),
            Event::Operators => self.operators(),
            Event::Look => self.look(),
        }
        if let Some(node) = node {
            self.check_node(node);
        }
    }

    fn deliver(&mut self, parcel: Parcel, life: Option<u64>) {
        let Parcel { from, to, role, message } = parcel;
        let Some(host) = self.hosts.get_mut(&to) else { return };
        if life.is_some_and(|life| life != host.life) {
            return;
        }
        let now = host.clock.read(self.now);
        let Some(process) = host.process.as_mut().filter(|process| !process.is_booting) else { return };
        let digest = of_message(&message);
        self.trace.mix(self.now, to.0 ^ from.node.0 << 8 ^ of_role(role) << 16, digest);
        self.trace.note(self.now, || format!("{to} {role:?} <- {from:?}: {message:?}"));
        if role == RoleId::Host {
            self.told(to, message);
            return;
        }
        if let Message::P1b(p1b) = &message {
            self.observer.phase1.answered(from.node, p1b);
        }
        let outputs = process.node.deliver(from, role, message, now);
        self.perform(to, role, outputs);
    }

    /// Puts a message on its way; inside a node over its mailboxes, which die with the process.
    pub fn send(&mut self, parcel: Parcel) {
        let (from, to) = (parcel.from.node, parcel.to);
        let (fate, life) = if from == to {
            let life = self.hosts.get(&to).map(|host| host.life);
            (travel(&self.swarm.local, &mut self.rng), life)
        } else {
            (self.network.fate(from, to, &self.swarm.wire, &mut self.rng), None)
        };
        match fate {
            Travel::Lost => {
                self.trace.note(self.now, || format!("{from} -> {to} lost: {:?}", parcel.message));
            }
            Travel::Kept => self.network.keep(parcel),
            Travel::Arrives(delay, None) => self.at(delay, Event::Deliver(Box::new(parcel), life)),
            Travel::Arrives(delay, Some(again)) => {
                self.at(delay, Event::Deliver(Box::new(parcel.clone()), life));
                self.at(again, Event::Deliver(Box::new(parcel), life));
            }
        }
    }

    /// Sends on what a clog had kept.
    pub fn let_go(&mut self, parcels: Vec<Parcel>) {
        for parcel in parcels {
            let delay = self.rng.between(0, self.swarm.wire.delay_max);
            self.at(delay, Event::Deliver(Box::new(parcel), None));
        }
    }

    /// Laws that concern one node after each of its steps, and the one master (M1).
    fn check_node(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get(&id) else { return };
        let Some(process) = host.ready() else { return };
        let verdict = &mut self.observer.verdict;
        self.observer.promises.holds(id, process.node.acceptor().promised(), verdict);
        if let Some(broken) = &process.machine.broken {
            verdict.fail(|| format!("{broken} on {id}"));
        }
        if self.steps.is_multiple_of(64) {
            crate::invariants::bounds::check(&process.node, &self.config, verdict);
        }
        let leader = process.node.leader();
        if leader.lease_until().is_some_and(|until| until > host.clock.read(self.now).at) {
            self.observer.ballots.leased(id, leader.ballot(), verdict);
        }
        let leads = |host: &Host| {
            let now = host.clock.read(self.now);
            host.ready().is_some_and(|p| p.node.leader().is_master(now) || p.node.can_lease_read(now))
        };
        if leads(host) {
            for other in self.hosts.values().filter(|other| other.id != id) {
                verdict.check(!leads(other), || {
                    let ballot = |host: &Host| host.ready().map(|p| p.node.leader().ballot());
                    format!(
                        "M1: {id} in {:?} and {} in {:?} hold the master lease at the same time",
                        ballot(host),
                        other.id,
                        ballot(other)
                    )
                });
            }
        }
    }
}
