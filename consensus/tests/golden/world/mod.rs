//! Several nodes, their disks, the network between them and the time, all in the hands of the script.
//!
//! Here it starts and stops, and time passes; no two nodes may serve from a lease at once (M1), at any step. `network` carries the messages, `perform` does
//! what roles want done.

mod network;
mod perform;
mod process;

pub use network::Filter;

use crate::disk::Disk;
use crate::log::Log;
use crate::words;
use bytes::Bytes;
use network::Mail;
use process::{Host, Process, Snapshot, Tape};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::random::Jitter;
use warlock_consensus::*;

/// The settings of a cluster that are not the engine's.
pub struct Settings {
    pub nodes: u64,
    pub lease: Duration,
    pub chunk: usize,
}

/// The whole cluster.
pub struct World {
    pub log: Log,
    pub is_verbose: bool,
    config: Arc<Config>,
    chunk: usize,
    now: Now,
    first: Arc<View>,
    hosts: BTreeMap<NodeId, Host>,
    queue: VecDeque<Mail>,
    held: Vec<Filter>,
    lost: Vec<Filter>,
    /// What each slot was decided to be, by whoever applied it first (R1).
    chosen: BTreeMap<u64, Arc<Value>>,
    /// All snapshots ever taken, by their content.
    snapshots: BTreeMap<Bytes, Snapshot>,
}

impl World {
    pub fn new(settings: &Settings, config: Config) -> World {
        config.validate().unwrap();
        let contact = |id: u64| (NodeId(id), Bytes::from(format!("n{id}")));
        let first = View::first((1..=settings.nodes).map(contact), settings.lease);
        let mut world = World {
            log: Log::default(),
            is_verbose: false,
            config: Arc::new(config),
            chunk: settings.chunk,
            now: Now { at: Time(1_000_000), wall_ms: 1_700_000_000_000 },
            first: Arc::new(first.clone()),
            hosts: BTreeMap::new(),
            queue: VecDeque::new(),
            held: Vec::new(),
            lost: Vec::new(),
            chosen: BTreeMap::new(),
            snapshots: BTreeMap::new(),
        };
        for id in first.members.keys() {
            world.add(*id, ViewState::first(first.clone()));
        }
        world
    }

    fn add(&mut self, id: NodeId, view: ViewState) {
        let durable = Durable { view: Some(view), ..Durable::default() };
        self.hosts.insert(id, Host { disk: Disk::new(durable), snapshot: None, process: None });
        self.start(id);
    }

    /// A node that knows what `from` knows of the configuration, and nothing else.
    pub fn join(&mut self, id: NodeId, from: NodeId) {
        let view = self.node(from).leader().view().clone();
        self.add(id, view);
    }

    fn host(&mut self, id: NodeId) -> &mut Host {
        self.hosts.get_mut(&id).unwrap_or_else(|| panic!("there is no {id}"))
    }

    fn process(&mut self, id: NodeId) -> &mut Process {
        self.host(id).process.as_mut().unwrap_or_else(|| panic!("{id} does not run"))
    }

    fn node(&self, id: NodeId) -> &Node {
        let host = self.hosts.get(&id).unwrap_or_else(|| panic!("there is no {id}"));
        &host.process.as_ref().unwrap_or_else(|| panic!("{id} does not run")).node
    }

    fn running(&self) -> Vec<NodeId> {
        self.hosts.iter().filter(|(_, host)| host.process.is_some()).map(|(id, _)| *id).collect()
    }

    // ---- start, crash, disk, snapshots ----

    /// The first back-off of a node's life: the lower its id, the sooner it tries to lead.
    fn seed(&self, id: NodeId) -> u64 {
        let step = self.config.backoff_min / 8;
        let turn = u32::try_from((id.0 - 1) % 8).unwrap();
        let fits = |seed: &u64| {
            let first = Jitter::new(*seed).below(self.config.backoff_min);
            first >= step * turn && first < step * (turn + 1)
        };
        (id.0 * 1_000..).find(fits).unwrap()
    }

    pub fn start(&mut self, id: NodeId) {
        let (config, seed, now, first) = (self.config.clone(), self.seed(id), self.now, self.first.clone());
        let host = self.host(id);
        assert!(host.process.is_none(), "{id} runs already");
        let Snapshot { ledger, machine } = host
            .snapshot
            .clone()
            .unwrap_or(Snapshot { ledger: Ledger::new(first), machine: Tape::default() });
        let standing = Standing {
            slot: ledger.applied(),
            stamp_ms: ledger.cluster_ms(),
            view: host.snapshot.as_ref().and_then(Snapshot::view),
        };
        let (node, mut outputs) = Node::recover(id, &config, host.disk.durable.clone(), standing, seed, now);
        host.process = Some(Process {
            node,
            ledger,
            machine,
            next_seq: 1,
            waiting: BTreeMap::new(),
            reads: Vec::new(),
            fetched: Vec::new(),
            was_master: false,
        });
        // The incarnation is durable before anything else is asked of the node.
        for record in std::mem::take(&mut outputs.persist) {
            host.disk.durable.apply(record);
        }
        self.perform(id, RoleId::Replica, outputs);
    }

    /// The process dies, and `kept` of its unsynced records survive. What it sent stays under way.
    pub fn crash(&mut self, id: NodeId, kept: usize) {
        let host = self.host(id);
        assert!(host.process.take().is_some(), "{id} does not run");
        let lost = host.disk.crash(kept);
        host.disk.is_held = false;
        self.queue.retain(|mail| mail.from.node != id || mail.to.node != id);
        let records = if lost > 0 { format!(", {lost} unsynced records lost") } else { String::new() };
        self.log.fact(id, format!("crashed{records}"));
    }

    /// The machine is lost with its disk: this member never comes back.
    pub fn wipe(&mut self, id: NodeId) {
        self.crash(id, 0);
        self.hosts.remove(&id);
    }

    pub fn hold_disk(&mut self, id: NodeId, is_held: bool) {
        if !is_held {
            self.sync(id);
        }
        self.host(id).disk.is_held = is_held;
    }

    pub fn sync(&mut self, id: NodeId) {
        let released = self.host(id).disk.sync();
        self.log.fact(id, "synced");
        self.log.end_round();
        for waiting in released {
            self.release(id, waiting, true);
        }
    }

    /// Takes a snapshot and compacts the journal.
    pub fn take_snapshot(&mut self, id: NodeId) {
        let process = self.process(id);
        let snapshot = Snapshot { ledger: process.ledger.clone(), machine: process.machine.clone() };
        let slot = snapshot.ledger.applied();
        self.store(id, snapshot);
        self.log.fact(id, format!("took a snapshot of {slot}"));
        self.mail_to_replica(id, Message::SnapshotTaken { slot });
    }

    fn store(&mut self, id: NodeId, snapshot: Snapshot) {
        let slot = snapshot.ledger.applied();
        self.snapshots.insert(snapshot.bytes(), snapshot.clone());
        let host = self.host(id);
        host.snapshot = Some(snapshot);
        host.disk.compact(slot);
    }

    // ---- what clients and administrators want ----

    pub fn submit(&mut self, id: NodeId, payloads: &[String]) {
        let process = self.process(id);
        let first_seq = process.next_seq;
        for payload in payloads {
            process.waiting.insert(process.next_seq, payload.clone());
            process.next_seq += 1;
        }
        let payloads = payloads.iter().map(|payload| Bytes::from(payload.clone())).collect();
        self.mail_to_replica(id, Message::Submit { first_seq, payloads });
    }

    pub fn abandon(&mut self, id: NodeId, seq: u64) {
        self.process(id).waiting.remove(&seq);
        self.mail_to_replica(id, Message::Abandon { seq });
    }

    pub fn read(&mut self, id: NodeId, name: String) {
        let process = self.process(id);
        let read = process.reads.len() as u64;
        process.reads.push(name);
        self.mail_to_replica(id, Message::Read { read });
    }

    pub fn admin(&mut self, id: NodeId, message: Message) {
        let from = Address { node: id, role: RoleId::Host };
        self.queue.push_back(Mail { from, to: Address { node: id, role: RoleId::Leader }, message });
    }

    /// How old a local read on this node may be.
    pub fn age(&mut self, id: NodeId) {
        let age = self.node(id).local_read_age(self.now);
        let age = age.map_or("nobody vouches: no local read".to_string(), |age| {
            format!("local state is at most {} old", words::millis(age))
        });
        self.log.fact(id, age);
    }

    fn note_state(&mut self, id: NodeId, before: &str) {
        let leader = self.node(id).leader();
        let (after, ballot) = (leader.state_name(), leader.ballot());
        match (before, after) {
            ("leading", "following") => self.log.fact(id, format!("steps down from {ballot}")),
            ("scouting", "following") => self.log.fact(id, format!("gives {ballot} up")),
            _ => {}
        }
    }

    /// M1: at most one node serves from its lease; says who begins and who ends.
    fn note_masters(&mut self) {
        let now = self.now;
        let mut masters = Vec::new();
        for (id, host) in &mut self.hosts {
            let Some(process) = &mut host.process else { continue };
            let is_master = process.node.can_lease_read(now);
            if is_master {
                masters.push(*id);
            }
            if is_master != process.was_master {
                process.was_master = is_master;
                let text = if is_master { "is master" } else { "is master no more" };
                self.log.fact(*id, text);
            }
        }
        assert!(masters.len() <= 1, "M1: {masters:?} are masters at once");
    }

    // ---- time ----

    fn advance_to(&mut self, at: Time) {
        self.now.wall_ms += at.since(self.now.at).as_micros() as u64 / 1_000;
        self.now.at = at;
        self.note_masters();
    }

    fn fire(&mut self, id: NodeId) {
        loop {
            let now = self.now;
            let node = &mut self.process(id).node;
            let before = node.leader().state_name();
            let Some((role, outputs)) = node.on_timeout(now) else { return };
            self.note_state(id, before);
            self.perform(id, role, outputs);
            self.note_masters();
        }
    }

    /// Time passes: what is due happens, in the order of the nodes, and messages arrive at once.
    pub fn tick(&mut self, duration: Duration) {
        let start = self.now.at;
        let end = start.plus(duration);
        self.deliver(None, None);
        loop {
            let due = self.running().into_iter().filter_map(|id| self.node(id).deadline()).min();
            let Some(due) = due.map(|due| due.max(self.now.at)).filter(|due| *due <= end) else { break };
            self.log.at(due.since(start));
            self.advance_to(due);
            for id in self.running() {
                self.fire(id);
            }
            self.log.end_round();
            self.deliver(None, None);
        }
        self.log.at(end.since(start));
        self.advance_to(end);
    }

    /// Time passes until this node tries to lead; the others are slow and do nothing meanwhile. No message arrives.
    pub fn campaign(&mut self, id: NodeId) {
        let start = self.now.at;
        while matches!(self.node(id).leader().state_name(), "following" | "leading") {
            let due = self.node(id).deadline().unwrap_or_else(|| panic!("{id} does not want to lead"));
            self.advance_to(due.max(self.now.at));
            self.log.at(self.now.at.since(start));
            self.fire(id);
        }
    }

    // ---- looking ----

    pub fn status(&mut self, ids: &[NodeId]) {
        let all: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in if ids.is_empty() { &all } else { ids } {
            let text = match self.hosts.get(id).map(|host| &host.process) {
                Some(Some(process)) => {
                    let (leader, replica) = (process.node.leader(), process.node.replica());
                    let role = match leader.state_name() {
                        "following" => "following".to_string(),
                        name => format!("{name} {}", leader.ballot()),
                    };
                    format!(
                        "{role}; promised {}; applied {}, durable {}; {}",
                        process.node.acceptor().promised(),
                        replica.applied(),
                        replica.durable(),
                        words::view_state(replica.view()),
                    )
                }
                _ => "is not running".to_string(),
            };
            self.log.fact(*id, text);
        }
    }
}
