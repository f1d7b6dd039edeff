//! Several nodes, their disks, the network between them and the time, all in the hands of the script.
//!
//! Messages travel in flights: everything under way that may be delivered is delivered in the order in which it was sent; what that
//! causes makes up the next flight.

use crate::disk::{Disk, Waiting};
use crate::log::Log;
use crate::words;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::random::Jitter;
use warlock_consensus::*;

/// More flights than this without time passing are an endless conversation.
const FLIGHTS_MAX: usize = 1_000;

/// Remembers what it executed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tape(Vec<Bytes>);

impl Machine for Tape {
    fn apply(&mut self, _stamp: &Stamp, _id: CommandId, payload: &Bytes) -> Bytes {
        self.0.push(payload.clone());
        payload.clone()
    }
}

/// The state of a node's machine at some slot.
#[derive(Clone)]
struct Snapshot {
    ledger: Ledger,
    machine: Tape,
}

impl Snapshot {
    fn bytes(&self) -> Bytes {
        Bytes::from(format!("{:?} {:?}", self.ledger, self.machine))
    }

    fn view(&self) -> Option<ViewState> {
        let current = self.ledger.view()?.clone();
        Some(ViewState { current, established: true, previous: None })
    }
}

struct Process {
    node: Node,
    ledger: Ledger,
    machine: Tape,
    next_seq: u64,
    /// Clients that wait for a command.
    waiting: BTreeMap<u64, String>,
    reads: Vec<String>,
    fetched: Vec<u8>,
    was_master: bool,
}

struct Host {
    disk: Disk,
    snapshot: Option<Snapshot>,
    process: Option<Process>,
}

struct Mail {
    from: Address,
    to: Address,
    message: Message,
}

/// Picks messages between nodes. What roles of one node tell each other is picked only by its kind.
#[derive(Clone, Default)]
pub struct Filter {
    pub from: Option<BTreeSet<NodeId>>,
    pub to: Option<BTreeSet<NodeId>>,
    pub kinds: Option<BTreeSet<String>>,
    /// Its wording contains this.
    pub text: Option<String>,
    /// A p2a or p2b of this data slot.
    pub slot: Option<u64>,
    /// Both ends lie among these.
    pub among: Option<BTreeSet<NodeId>>,
    /// One end lies among these, the other does not.
    pub across: Option<BTreeSet<NodeId>>,
}

impl Filter {
    fn picks(&self, mail: &Mail) -> bool {
        let (from, to) = (&mail.from.node, &mail.to.node);
        let is_kind = |kinds: &BTreeSet<String>| kinds.contains(words::kind(&mail.message));
        if self.slot.is_some() && self.slot != words::slot_of(&mail.message) {
            return false;
        }
        if self.text.as_ref().is_some_and(|text| !words::message(&mail.message).contains(text)) {
            return false;
        }
        if from == to {
            return self.kinds.as_ref().is_some_and(is_kind)
                && self.from.as_ref().is_none_or(|set| set.contains(from))
                && self.to.as_ref().is_none_or(|set| set.contains(to));
        }
        self.from.as_ref().is_none_or(|set| set.contains(from))
            && self.to.as_ref().is_none_or(|set| set.contains(to))
            && self.kinds.as_ref().is_none_or(is_kind)
            && self.among.as_ref().is_none_or(|set| set.contains(from) && set.contains(to))
            && self.across.as_ref().is_none_or(|set| set.contains(from) != set.contains(to))
    }
}

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

    // ---- what roles want done ----

    fn perform(&mut self, id: NodeId, role: RoleId, outputs: Outputs) {
        let Outputs { persist, sends, spawns, calls, retires: _ } = outputs;
        for call in calls {
            self.call(id, call);
        }
        let host = self.host(id);
        if host.disk.is_held || self.is_verbose {
            let unsynced = if self.host(id).disk.is_held { " (not synced)" } else { "" };
            for record in &persist {
                self.log.fact(id, format!("wrote {}{unsynced}", words::record(record)));
            }
        }
        let wrote = !persist.is_empty();
        if let Some(waiting) = self.host(id).disk.append(role, persist, sends, spawns) {
            self.release(id, waiting, wrote);
        }
    }

    fn release(&mut self, id: NodeId, waiting: Waiting, wrote: bool) {
        for spawn in waiting.spawns {
            let now = self.now;
            let (role, outputs) = self.process(id).node.spawn(spawn, now);
            self.perform(id, role, outputs);
        }
        let is_acceptor = waiting.role == RoleId::Acceptor;
        for envelope in waiting.sends {
            self.say(id, envelope, wrote && is_acceptor);
        }
    }

    fn say(&mut self, id: NodeId, envelope: Envelope, wrote: bool) {
        let Envelope { from, to, role, message } = envelope;
        let is_within_node = to.nodes() == [id];
        if self.is_verbose || !words::is_routine(&message, is_within_node) {
            let is_answer = matches!(message, Message::P1b(_) | Message::P2b { .. });
            let durable = if wrote && is_answer { " (durable)" } else { "" };
            self.log.say(id, to.nodes(), format!("{}{durable}", words::message(&message)));
        }
        for node in to.nodes() {
            let to = Address { node: *node, role };
            self.queue.push_back(Mail { from, to, message: message.clone() });
        }
    }

    fn mail_to_replica(&mut self, id: NodeId, message: Message) {
        let from = Address { node: id, role: RoleId::Host };
        self.queue.push_back(Mail { from, to: Address { node: id, role: RoleId::Replica }, message });
    }

    fn call(&mut self, id: NodeId, call: HostCall) {
        match call {
            HostCall::Apply { slot, value } => self.apply(id, slot, &value),
            HostCall::ReadReady { reads } => {
                for read in reads {
                    let process = self.process(id);
                    let name = process.reads[usize::try_from(read).unwrap()].clone();
                    let seen: Vec<_> =
                        process.machine.0.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
                    let text = format!("answered read {name}: [{}]", seen.join(" "));
                    self.log.fact(id, text);
                }
            }
            HostCall::Abandoned { seq, certain } => {
                let sure = if certain { "certainly did not run" } else { "may have run" };
                self.log.fact(id, format!("command {seq} {sure}"));
            }
            HostCall::SendSnapshot { to, slot, offset } => self.send_snapshot(id, to, slot, offset),
            HostCall::StoreChunk { offset, data, .. } => {
                let fetched = &mut self.process(id).fetched;
                fetched.truncate(usize::try_from(offset).unwrap());
                assert_eq!(fetched.len() as u64, offset, "pieces come without gaps");
                fetched.extend_from_slice(&data);
            }
            HostCall::Install { slot } => self.install(id, slot),
            HostCall::ViewChanged(view) => self.log.fact(id, format!("learned {}", words::view_state(&view))),
            HostCall::Removed => self.log.fact(id, "is removed"),
            HostCall::MayStop => self.log.fact(id, "may stop"),
        }
    }

    fn apply(&mut self, id: NodeId, slot: u64, value: &Arc<Value>) {
        let known = self.chosen.entry(slot).or_insert_with(|| value.clone());
        assert_eq!(known, value, "R1: slot {slot} is decided twice");
        let config = self.config.clone();
        let process = self.process(id);
        let mut outcomes = Vec::new();
        process.ledger.apply(slot, value, &mut process.machine, &config, &mut outcomes);
        let origin = process.node.origin();
        let (mut kinds, mut answered) = (Vec::new(), Vec::new());
        for (command, outcome) in outcomes {
            if command.origin == origin && outcome != Outcome::Skipped {
                answered.extend(process.waiting.remove(&command.seq));
            }
            kinds.push(outcome);
        }
        let message = Message::Applied {
            slot,
            stamp_ms: process.ledger.cluster_ms(),
            executed_below: process.ledger.executed_below(origin),
        };
        self.log.fact(id, format!("applied {slot}:{}", words::applied(value, &kinds)));
        for payload in answered {
            self.log.fact(id, format!("answered {payload}"));
        }
        self.mail_to_replica(id, message);
    }

    fn send_snapshot(&mut self, id: NodeId, to: NodeId, slot: u64, offset: u64) {
        let chunk = self.chunk;
        let Some(snapshot) = &self.host(id).snapshot else { return };
        let (bytes, newest) = (snapshot.bytes(), snapshot.ledger.applied());
        let offset = if newest == slot { usize::try_from(offset).unwrap().min(bytes.len()) } else { 0 };
        let data = bytes.slice(offset..(offset + chunk).min(bytes.len()));
        let total = bytes.len() as u64;
        let message = Message::SnapshotChunk { slot: newest, offset: offset as u64, total, data };
        let from = Address { node: id, role: RoleId::Replica };
        self.say(id, Envelope { from, to: Targets::One(to), role: RoleId::Replica, message }, false);
    }

    fn install(&mut self, id: NodeId, slot: u64) {
        let bytes = Bytes::from(std::mem::take(&mut self.process(id).fetched));
        let Some(snapshot) = self.snapshots.get(&bytes).cloned() else {
            self.log.fact(id, format!("got a damaged snapshot of {slot}"));
            return self.mail_to_replica(id, Message::InstallFailed { slot });
        };
        self.store(id, snapshot.clone());
        self.log.fact(id, format!("installed the snapshot of {slot}"));
        let process = self.process(id);
        let (stamp_ms, view) = (snapshot.ledger.cluster_ms(), snapshot.view());
        let executed_below = snapshot.ledger.executed_below(process.node.origin());
        (process.ledger, process.machine) = (snapshot.ledger, snapshot.machine);
        self.mail_to_replica(id, Message::Installed { slot, stamp_ms, executed_below, view });
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

    // ---- the network ----

    pub fn hold(&mut self, filter: Filter) {
        self.held.push(filter);
    }

    pub fn lose(&mut self, filter: Filter) {
        self.lost.push(filter);
    }

    /// The network is whole again, and nothing is held.
    pub fn heal(&mut self) {
        self.held.clear();
        self.lost.clear();
    }

    /// Loses what is under way. Says how much.
    pub fn drop_mail(&mut self, filter: &Filter) {
        let (goes, stays) = std::mem::take(&mut self.queue).into_iter().partition(|mail| filter.picks(mail));
        self.queue = stays;
        self.list("lost", &goes);
    }

    pub fn duplicate(&mut self, filter: &Filter) {
        let copies: VecDeque<Mail> = self
            .queue
            .iter()
            .filter(|mail| filter.picks(mail))
            .map(|mail| Mail { from: mail.from, to: mail.to, message: mail.message.clone() })
            .collect();
        self.list("duplicated", &copies);
        self.queue.extend(copies);
    }

    fn list(&mut self, what: &str, mails: &VecDeque<Mail>) {
        for mail in mails {
            if self.is_verbose || !words::is_routine(&mail.message, mail.from.node == mail.to.node) {
                let text = format!("{} — {what}", words::message(&mail.message));
                self.log.say(mail.from.node, &[mail.to.node], text);
            }
        }
        self.log.end_round();
    }

    /// Delivers what may be delivered and is picked, flight after flight.
    pub fn deliver(&mut self, picked: Option<&Filter>, flights_max: Option<usize>) {
        for _ in 0..flights_max.unwrap_or(FLIGHTS_MAX) {
            let mut flight = Vec::new();
            for mail in std::mem::take(&mut self.queue) {
                if self.lost.iter().any(|filter| filter.picks(&mail)) {
                    continue;
                }
                let is_held = self.held.iter().any(|filter| filter.picks(&mail));
                let is_within_node = mail.from.node == mail.to.node;
                if is_held || picked.is_some_and(|filter| !is_within_node && !filter.picks(&mail)) {
                    self.queue.push_back(mail);
                } else {
                    flight.push(mail);
                }
            }
            if flight.is_empty() {
                return;
            }
            for mail in flight {
                self.receive(mail);
            }
            self.log.end_round();
        }
        assert!(flights_max.is_some(), "the cluster talks without end");
    }

    fn receive(&mut self, mail: Mail) {
        let Mail { from, to, message } = mail;
        let now = self.now;
        let Some(process) = self.hosts.get_mut(&to.node).and_then(|host| host.process.as_mut()) else {
            return;
        };
        if to.role == RoleId::Host {
            return;
        }
        let before = process.node.leader().state_name();
        let adopted = match &message {
            Message::Adopted(adopted) => Some(words::adopted(adopted)),
            Message::Preempted { .. } | Message::ScoutRefused { .. } => {
                self.log.fact(to.node, words::message(&message));
                None
            }
            _ => None,
        };
        let outputs = process.node.deliver(from, to.role, message, now);
        if let Some(text) = adopted
            && process.node.leader().state_name() == "leading"
        {
            self.log.fact(to.node, text);
        }
        self.note_state(to.node, before);
        self.perform(to.node, to.role, outputs);
        self.note_masters();
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
