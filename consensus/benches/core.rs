//! The speed of the engine alone: one thread, no disk, no network, no serialisation.
//!
//! Three nodes in one value; messages go by value through queues, as a host would pass them on. A command takes the whole way: `Submit` to a
//! replica, request to the leader, commander, three acceptors, decision, announcement, three replicas, three ledgers with a trivial
//! machine. `cargo bench -p warlock-consensus`; `-- --plain` runs a fixed number of commands for a profiler and prints the cost of one.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)]

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::*;

/// Adds up the payload bytes: nothing that costs.
#[derive(Default)]
struct Sum(u64);

impl Machine for Sum {
    fn apply(&mut self, _stamp: &Stamp, _id: CommandId, payload: &Bytes) -> Bytes {
        self.0 += payload.len() as u64;
        Bytes::new()
    }
}

struct Hosted {
    node: Node,
    ledger: Ledger,
    machine: Sum,
    outcomes: Vec<(CommandId, Outcome)>,
    next_seq: u64,
}

type Mail = (Address, Address, Message);

struct Cluster {
    config: Arc<Config>,
    nodes: Vec<Hosted>,
    queue: VecDeque<Mail>,
    now: Now,
    master: usize,
    payload: Bytes,
    messages: u64,
    slots_since_snapshot: u64,
}

impl Cluster {
    /// Three nodes, of which one is the master.
    fn new() -> Cluster {
        let contact = |id| (NodeId(id), Bytes::from(format!("n{id}")));
        let first = View::first((1..=3).map(contact), Duration::from_secs(10));
        let now = Now { at: Time(1_000_000), wall_ms: 1_700_000_000_000 };
        let mut cluster = Cluster {
            config: Arc::new(Config::default()),
            nodes: Vec::new(),
            queue: VecDeque::new(),
            now,
            master: 0,
            payload: Bytes::from_static(b"0123456789abcdef"),
            messages: 0,
            slots_since_snapshot: 0,
        };
        for id in 1..=3 {
            let durable = Durable { view: Some(ViewState::first(first.clone())), ..Durable::default() };
            let (node, outputs) =
                Node::recover(NodeId(id), &cluster.config, durable, Standing::default(), id, now);
            let (ledger, machine) = (Ledger::new(Arc::new(first.clone())), Sum::default());
            cluster.nodes.push(Hosted { node, ledger, machine, outcomes: Vec::new(), next_seq: 1 });
            cluster.perform(id as usize - 1, outputs);
        }
        while cluster.nodes.iter().all(|hosted| !hosted.node.can_lease_read(cluster.now)) {
            cluster.pass(Duration::from_millis(10));
        }
        cluster.master = cluster.nodes.iter().position(|h| h.node.can_lease_read(cluster.now)).unwrap();
        cluster.pass(Duration::from_millis(10));
        cluster
    }

    fn perform(&mut self, index: usize, outputs: Outputs) {
        let Outputs { persist, sends, spawns, calls, .. } = outputs;
        drop(persist); // a disk that takes no time
        for Envelope { from, to, role, message } in sends {
            let (last, others) = to.nodes().split_last().unwrap();
            for node in others {
                self.queue.push_back((from, Address { node: *node, role }, message.clone()));
            }
            self.queue.push_back((from, Address { node: *last, role }, message));
        }
        let hosted = &mut self.nodes[index];
        for call in calls {
            if let HostCall::Apply { slot, value } = call {
                hosted.outcomes.clear();
                hosted.ledger.apply(slot, &value, &mut hosted.machine, &self.config, &mut hosted.outcomes);
                let message = Message::Applied {
                    slot,
                    stamp_ms: hosted.ledger.cluster_ms(),
                    executed_below: hosted.ledger.executed_below(hosted.node.origin()),
                };
                let id = hosted.node.id();
                let from = Address { node: id, role: RoleId::Host };
                self.queue.push_back((from, Address { node: id, role: RoleId::Replica }, message));
            }
        }
        for spawn in spawns {
            let (_, outputs) = self.nodes[index].node.spawn(spawn, self.now);
            self.perform(index, outputs);
        }
    }

    fn settle(&mut self) {
        while let Some((from, to, message)) = self.queue.pop_front() {
            if to.role == RoleId::Host {
                continue;
            }
            self.messages += 1;
            let index = to.node.0 as usize - 1;
            let outputs = self.nodes[index].node.deliver(from, to.role, message, self.now);
            self.perform(index, outputs);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.at = self.now.at.plus(time);
        for index in 0..self.nodes.len() {
            while let Some((_, outputs)) = self.nodes[index].node.on_timeout(self.now) {
                self.perform(index, outputs);
            }
        }
        self.settle();
    }

    /// A batch of commands at node `index`, through to the last ledger.
    fn round(&mut self, index: usize, batch: usize) {
        let hosted = &mut self.nodes[index];
        let message =
            Message::Submit { first_seq: hosted.next_seq, payloads: vec![self.payload.clone(); batch] };
        hosted.next_seq += batch as u64;
        let id = hosted.node.id();
        let from = Address { node: id, role: RoleId::Host };
        self.queue.push_back((from, Address { node: id, role: RoleId::Replica }, message));
        self.settle();
    }

    /// `rounds` batches, with time that passes as it would, and snapshots that keep the logs short.
    fn work(&mut self, index: usize, rounds: usize, batch: usize) {
        for round in 0..rounds {
            self.round(index, batch);
            self.slots_since_snapshot += 1;
            if round % 16 == 15 {
                // What is not urgent is announced after 5 ms.
                self.pass(Duration::from_millis(5));
            }
            if self.slots_since_snapshot >= 4_096 {
                self.slots_since_snapshot = 0;
                for index in 0..3 {
                    let (slot, id) = (self.nodes[index].ledger.applied(), self.nodes[index].node.id());
                    let from = Address { node: id, role: RoleId::Host };
                    let to = Address { node: id, role: RoleId::Replica };
                    self.queue.push_back((from, to, Message::SnapshotTaken { slot }));
                }
                self.settle();
            }
        }
        self.pass(Duration::from_millis(5));
        let executed = |hosted: &Hosted| hosted.machine.0;
        assert!(self.nodes.iter().all(|hosted| executed(hosted) == executed(&self.nodes[0])));
    }
}

const ROUNDS: usize = 256;

/// The client's node is the master.
#[divan::bench(args = [1, 64, 1024])]
fn at_the_master(bencher: Bencher, batch: usize) {
    let mut cluster = Cluster::new();
    let index = cluster.master;
    bencher.counter(ItemsCount::new(ROUNDS * batch)).bench_local(|| cluster.work(index, ROUNDS, batch));
}

/// The client's node forwards to the master, and waits for its own replica.
#[divan::bench(args = [1, 64, 1024])]
fn at_a_follower(bencher: Bencher, batch: usize) {
    let mut cluster = Cluster::new();
    let index = (cluster.master + 1) % 3;
    bencher.counter(ItemsCount::new(ROUNDS * batch)).bench_local(|| cluster.work(index, ROUNDS, batch));
}

/// How long this process ran on a processor: on a machine that does other things, too, that tells more than a clock on the wall.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ran = text.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(ran.unwrap_or(0))
}

/// A fixed amount of work for a profiler; the cost is counted in processor time.
fn plain(batch: usize) {
    let mut cluster = Cluster::new();
    let rounds = (4_000_000 / batch).clamp(10_000, 400_000);
    for (name, index) in [("master", cluster.master), ("follower", (cluster.master + 1) % 3)] {
        let (start, before) = (processor_time(), cluster.messages);
        cluster.work(index, rounds, batch);
        let commands = (rounds * batch) as f64;
        let seconds = (processor_time() - start).as_secs_f64();
        println!(
            "batch {batch:4} at the {name:8}: {:9.0} commands/s, {:6.0} ns per command, {:6.0} ns per slot, {:.1} messages per slot",
            commands / seconds,
            seconds * 1e9 / commands,
            seconds * 1e9 / rounds as f64,
            (cluster.messages - before) as f64 / rounds as f64
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == "--plain") {
        let batch = arguments.get(place + 1).and_then(|text| text.parse().ok());
        for batch in batch.map_or(vec![1, 64], |one| vec![one]) {
            plain(batch);
        }
        return;
    }
    divan::main();
}
