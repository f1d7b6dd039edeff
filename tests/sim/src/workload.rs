//! Clients: each waits for its answer before it asks again, changes its node now and then, and gives up when its patience ends.

use crate::history::State;
use crate::locks::clients::Holder;
use crate::locks::real::caller;
use crate::machine::{Request, encode};
use crate::swarm::MS;
use crate::world::{Event, World};
use consensus::{CommandId, Message, NodeId};

/// Registers with this number and above belong to the liveness phase.
const LAST_KEYS: u16 = 60_000;

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    /// The node that it talks to.
    node: NodeId,
    /// What it waits for.
    operation: Option<usize>,
    /// The lock's token, while it believes that it holds it.
    token: Option<u64>,
    /// What it knows of its locks, in runs about them.
    pub(crate) holder: Holder,
    /// Asks one thing and stops: the liveness phase's.
    is_last: bool,
}

/// How operations are spread over registers.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    counts: Vec<(u16, u64)>,
    next: u16,
}

impl World {
    pub(crate) fn start_clients(&mut self) {
        for index in 0..self.swarm.clients {
            let node = NodeId(1 + index % self.swarm.nodes);
            let holder = Holder::default();
            self.clients.push(Client { node, operation: None, token: None, holder, is_last: false });
            let delay = self.rng.between(0, 300 * MS);
            self.at(delay, Event::Client(self.clients.len() - 1));
        }
    }

    /// The liveness phase: a last write and a last read on every node that serves.
    pub(crate) fn last_requests(&mut self) {
        let nodes: Vec<NodeId> =
            self.hosts.values().filter(|host| host.serves()).map(|host| host.id).collect();
        for node in nodes {
            for request in [Request::Put(self.rng.bits() | 1), Request::Get] {
                let holder = Holder::default();
                self.clients.push(Client { node, operation: None, token: None, holder, is_last: true });
                let client = self.clients.len() - 1;
                let key = LAST_KEYS + u16::try_from(node.0).unwrap_or(0);
                self.ask(client, key, request, false);
            }
        }
    }

    /// Whether no client waits.
    pub(crate) fn all_answered(&self) -> bool {
        self.clients.iter().all(|client| client.operation.is_none())
    }

    /// Who still waits, for a complaint.
    pub(crate) fn who_waits(&self) -> String {
        let waiting = self.clients.iter().enumerate().filter_map(|(index, client)| {
            let operation = self.history.get(client.operation?)?;
            let kind = operation.request;
            Some(format!("client {index} on {} for {:?} ({kind:?})", client.node, operation.id))
        });
        waiting.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn client_turn(&mut self, index: usize) {
        if self.healed_at.is_some() {
            return;
        }
        let serving: Vec<NodeId> = self.hosts.values().filter(|h| h.serves()).map(|h| h.id).collect();
        let Some(client) = self.clients.get(index).filter(|client| client.operation.is_none()) else {
            return;
        };
        let node = if !serving.contains(&client.node) || self.rng.chance(80_000) {
            match self.rng.pick(&serving) {
                Some(node) => *node,
                None => {
                    self.at(50 * MS, Event::Client(index));
                    return;
                }
            }
        } else {
            client.node
        };
        let held = client.token;
        if let Some(client) = self.clients.get_mut(index) {
            client.node = node;
        }
        if self.swarm.has_locks {
            self.lock_turn(index);
            return;
        }
        if self.rng.chance(100_000) {
            let request = match held {
                Some(token) => Request::Release(token),
                None => Request::Acquire(self.rng.between(5, 1_500)),
            };
            if let Request::Release(token) = request {
                self.observer.locks.released(token, self.now);
                self.clients[index].token = None;
            }
            self.ask(index, 0, request, false);
            return;
        }
        let Some(key) = self.draw_key() else { return };
        let is_read = self.rng.chance(self.swarm.reads);
        let is_stale = is_read && self.rng.chance(self.swarm.stale_reads);
        let request = if is_read { Request::Get } else { self.draw_write(key) };
        self.ask(index, key, request, is_stale);
    }

    fn draw_key(&mut self) -> Option<u16> {
        let keys = &mut self.nemesis.keys;
        while (keys.counts.len() as u64) < self.swarm.keys {
            keys.next += 1;
            keys.counts.push((keys.next, 0));
        }
        let index = usize::try_from(self.rng.between(0, self.swarm.keys - 1)).ok()?;
        let (key, count) = keys.counts.get_mut(index)?;
        *count += 1;
        let drawn = *key;
        if *count >= self.swarm.ops_per_key {
            keys.counts.remove(index);
        }
        Some(drawn)
    }

    fn draw_write(&mut self, key: u16) -> Request {
        let value = self.rng.bits() | 1;
        match self.rng.between(0, 5) {
            0 | 1 => Request::Put(value),
            2 => Request::Increment,
            3 => Request::Append(value),
            _ => {
                // What some node holds is likely to be what the register holds.
                let some = self.hosts.values().filter_map(|host| host.ready()).map(|p| p.machine.get(key));
                Request::CompareAndSet(some.max().unwrap_or(0), value)
            }
        }
    }

    pub(crate) fn ask(&mut self, index: usize, key: u16, request: Request, is_stale: bool) {
        let floor = match request {
            Request::Acquire(_) => self.observer.locks.floor(),
            _ => self.observer.freshness.floor(),
        };
        let operation = self.history.invoke(index, key, request, self.now, floor, is_stale);
        let node = self.clients[index].node;
        self.clients[index].operation = Some(operation);
        let Some(host) = self.hosts.get(&node) else { return };
        let life = host.life;
        let delay = if self.rng.coin() { 0 } else { self.rng.between(0, 3 * MS) };
        self.trace.note(self.now, || format!("client {index} asks {node}: {request:?} on {key}"));
        self.at(delay, Event::Arrive(index, operation, node, life));
        if self.healed_at.is_none() {
            self.at(self.swarm.patience, Event::Impatient(index, operation));
        }
    }

    /// A request arrives at its node.
    pub(crate) fn arrive(&mut self, client: usize, operation: usize, node: NodeId, life: u64) {
        let Some(asked) = self.history.get(operation).filter(|o| o.state == State::Waiting) else { return };
        let (request, key, is_stale, floor) = (asked.request, asked.key, asked.is_stale, asked.floor);
        let pending_max = self.config.pending_max;
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let is_same = host.life == life && host.serves();
        let now = host.clock.read(self.now);
        let process =
            host.process.as_mut().filter(|p| is_same && p.node.replica().pending_len() + 8 < pending_max);
        let Some(process) = process else {
            self.given_up(operation, State::Never);
            return;
        };
        self.trace.mix(self.now, node.0, 0xC1 ^ (client as u64) << 8);
        if request != Request::Get {
            let seq = process.next_seq;
            process.next_seq += 1;
            process.waiting.insert(seq, operation);
            let id = CommandId { origin: process.node.origin(), seq };
            if let Some(asked) = self.history.get_mut(operation) {
                asked.id = Some(id);
            }
            if let Request::Lock(ask) = request {
                self.observer.holds.asks(caller(id), ask);
            }
            self.mail(node, 0, Message::Submit { first_seq: seq, payloads: vec![encode(key, request)] });
            return;
        }
        let (held, applied) = (process.machine.get(key), process.ledger.applied());
        if is_stale {
            let lease = process.node.replica().view().current.lease;
            match process.node.local_read_age(now).filter(|age| *age <= lease) {
                Some(age) => {
                    let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX / 4);
                    let age = age + age * 2 * self.config.drift_ppm / 1_000_000 + 10;
                    let since = self.now.saturating_sub(age);
                    self.observer.freshness.stale(node, since, applied, &mut self.observer.verdict);
                    self.stats.local_reads += 1;
                    self.answered(operation, held);
                }
                None => {
                    self.stats.local_refused += 1;
                    self.given_up(operation, State::Never);
                }
            }
        } else if process.node.can_lease_read(now) {
            self.observer.freshness.read(node, "lease", floor, applied, &mut self.observer.verdict);
            self.stats.lease_reads += 1;
            self.answered(operation, held);
        } else {
            let read = process.next_read;
            process.next_read += 1;
            process.reads.insert(read, operation);
            self.mail(node, 0, Message::Read { read });
        }
    }

    /// Reads that may be answered now.
    pub(crate) fn answer_reads(&mut self, node: NodeId, reads: &[u64]) {
        for read in reads {
            let Some(process) = self.hosts.get_mut(&node).and_then(|host| host.process.as_mut()) else {
                return;
            };
            let Some(operation) = process.reads.remove(read) else { continue };
            let Some(asked) = self.history.get(operation).filter(|o| o.state == State::Waiting) else {
                continue;
            };
            let (held, applied) = (process.machine.get(asked.key), process.ledger.applied());
            self.observer.freshness.read(
                node,
                "read-index",
                asked.floor,
                applied,
                &mut self.observer.verdict,
            );
            self.stats.index_reads += 1;
            self.answered(operation, held);
        }
    }

    /// A client is told an answer.
    pub(crate) fn answered(&mut self, operation: usize, told: u64) {
        self.trace.note(self.now, || format!("operation {operation} is answered: {told}"));
        if !self.history.finish(operation, State::Done(told)) {
            return;
        }
        let Some(asked) = self.history.get(operation) else { return };
        let (client, request, asked_at, floor) = (asked.client, asked.request, asked.invoked_at, asked.floor);
        if let (Request::Acquire(ttl_ms), true) = (request, told > 0) {
            // The holder counts from when it asked, and shortens by drift and pull.
            let rate = (1_000_000 + self.config.drift_ppm) * (1_000_000 + self.config.pull_ppm) / 1_000_000;
            let ttl = (ttl_ms * 1_000 * 1_000_000 / rate)
                .saturating_sub(crate::invariants::time::slack_us(&self.config));
            let until = if self.swarm.check_time { asked_at + ttl } else { 0 };
            self.observer.locks.granted(told, floor, self.now, until, &mut self.observer.verdict);
            self.stats.locks += 1;
            self.clients[client].token = Some(told);
        }
        self.next_turn(client, operation);
    }

    /// A client learns that it will get no answer.
    pub(crate) fn given_up(&mut self, operation: usize, state: State) {
        let Some(asked) = self.history.get(operation) else { return };
        let (client, is_read) = (asked.client, asked.request == Request::Get);
        let state = if is_read { State::Never } else { state };
        if self.history.finish(operation, state) {
            match state {
                State::Unknown => self.stats.unknown += 1,
                _ => self.stats.never += u64::from(!is_read),
            }
            self.trace.note(self.now, || format!("operation {operation} is given up: {state:?}"));
        }
        self.next_turn(client, operation);
    }

    pub(crate) fn next_turn(&mut self, client: usize, operation: usize) {
        let Some(waits) = self.clients.get_mut(client) else { return };
        if waits.operation == Some(operation) {
            waits.operation = None;
            let delay = self.rng.between(10, self.swarm.think);
            if !self.clients[client].is_last {
                self.at(delay, Event::Client(client));
            }
        }
    }

    /// A client's patience ends: the node is told, and what it says later decides between "unknown" and "never".
    pub(crate) fn impatient(&mut self, client: usize, operation: usize) {
        let is_waiting = self.history.get(operation).is_some_and(|o| o.state == State::Waiting);
        if !is_waiting || self.healed_at.is_some() {
            return;
        }
        let node = self.clients[client].node;
        let id = self.history.get(operation).and_then(|o| o.id);
        if let Some(process) = self.hosts.get_mut(&node).and_then(|host| host.process.as_mut())
            && let Some(id) = id.filter(|id| id.origin == process.node.origin())
            && !process.parked.contains_key(&id.seq)
        {
            process.waiting.remove(&id.seq);
            process.abandoned.insert(id.seq, operation);
            self.mail(node, 0, Message::Abandon { seq: id.seq });
        }
        let state = if id.is_none() { State::Never } else { State::Unknown };
        self.given_up(operation, state);
    }

    /// The replica says what became of an abandoned command.
    pub(crate) fn abandoned(&mut self, node: NodeId, seq: u64, certain: bool) {
        let Some(process) = self.hosts.get_mut(&node).and_then(|host| host.process.as_mut()) else { return };
        let Some(operation) = process.abandoned.remove(&seq) else { return };
        let id = CommandId { origin: process.node.origin(), seq };
        if certain {
            self.observer.acknowledged.never(id, &mut self.observer.verdict);
            self.stats.never += 1;
            self.history.finish(operation, State::Never);
        }
    }

    /// A node's clients lose their connection.
    pub(crate) fn drop_clients(&mut self, node: NodeId) {
        let Some(process) = self.hosts.get_mut(&node).and_then(|host| host.process.as_mut()) else { return };
        let mut writes = std::mem::take(&mut process.waiting);
        let parked = std::mem::take(&mut process.parked);
        writes.extend(parked.into_iter().filter_map(|(seq, operation)| Some((seq, operation?))));
        let reads = std::mem::take(&mut process.reads);
        process.abandoned.clear();
        for operation in writes.into_values().chain(reads.into_values()) {
            self.given_up(operation, State::Unknown);
        }
    }
}
