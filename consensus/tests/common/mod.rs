//! A minimal host for tests: several nodes in one value, instant disks, messages in a queue that the test controls.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::*;

/// Counts what it executed.
#[derive(Default)]
pub struct Counter(pub Vec<Bytes>);

impl Machine for Counter {
    fn apply(&mut self, _stamp: &Stamp, _id: CommandId, payload: &Bytes) -> Bytes {
        self.0.push(payload.clone());
        payload.clone()
    }
}

pub struct TestNode {
    pub node: Node,
    pub ledger: Ledger,
    pub machine: Counter,
    pub journal: Vec<Record>,
    pub ready: Vec<u64>,
    pub next_seq: u64,
}

pub struct Mail {
    pub from: Address,
    pub to: Address,
    pub message: Message,
}

pub struct Cluster {
    pub config: Arc<Config>,
    pub nodes: BTreeMap<NodeId, TestNode>,
    pub mail: VecDeque<Mail>,
    pub now: Now,
    pub admin: Vec<Message>,
}

impl Cluster {
    pub fn new(count: u64, config: Config) -> Cluster {
        let config = Arc::new(config);
        let first = View::first(
            (1..=count).map(|id| (NodeId(id), Bytes::from(format!("n{id}")))),
            Duration::from_secs(1),
        );
        let now = Now { at: Time(1_000_000), wall_ms: 1_700_000_000_000 };
        let mut cluster =
            Cluster { config, nodes: BTreeMap::new(), mail: VecDeque::new(), now, admin: Vec::new() };
        for id in 1..=count {
            let durable = Durable { view: Some(ViewState::first(first.clone())), ..Durable::default() };
            cluster.start(NodeId(id), durable, Ledger::new(Arc::new(first.clone())));
        }
        cluster
    }

    pub fn start(&mut self, id: NodeId, durable: Durable, ledger: Ledger) {
        let standing = Standing { slot: ledger.applied(), ..Standing::default() };
        let (node, outputs) = Node::recover(id, &self.config, durable, standing, id.0, self.now);
        let node = TestNode {
            node,
            ledger,
            machine: Counter::default(),
            journal: Vec::new(),
            ready: Vec::new(),
            next_seq: 1,
        };
        self.nodes.insert(id, node);
        self.perform(id, outputs);
    }

    /// Does what a role wants: the disk is instant, so everything happens in order.
    pub fn perform(&mut self, id: NodeId, outputs: Outputs) {
        let host = Address { node: id, role: RoleId::Host };
        let Outputs { persist, sends, spawns, calls, .. } = outputs;
        let node = self.nodes.get_mut(&id).unwrap();
        node.journal.extend(persist);
        for envelope in sends {
            for target in envelope.to.nodes() {
                self.mail.push_back(Mail {
                    from: envelope.from,
                    to: Address { node: *target, role: envelope.role },
                    message: envelope.message.clone(),
                });
            }
        }
        for call in calls {
            match call {
                HostCall::Apply { slot, value } => {
                    let mut outcomes = Vec::new();
                    node.ledger.apply(slot, &value, &mut node.machine, &self.config, &mut outcomes);
                    let message = Message::Applied {
                        slot,
                        stamp_ms: node.ledger.cluster_ms(),
                        executed_below: node.ledger.executed_below(node.node.origin()),
                    };
                    let to = Address { node: id, role: RoleId::Replica };
                    self.mail.push_back(Mail { from: host, to, message });
                }
                HostCall::ReadReady { reads } => node.ready.extend(reads),
                _ => {}
            }
        }
        for spawn in spawns {
            let (_, outputs) = self.nodes.get_mut(&id).unwrap().node.spawn(spawn, self.now);
            self.perform(id, outputs);
        }
    }

    pub fn deliver(&mut self, mail: Mail) {
        if mail.to.role == RoleId::Host {
            self.admin.push(mail.message);
        } else if let Some(node) = self.nodes.get_mut(&mail.to.node) {
            let outputs = node.node.deliver(mail.from, mail.to.role, mail.message, self.now);
            self.perform(mail.to.node, outputs);
        }
    }

    pub fn settle(&mut self) {
        let mut steps = 0;
        while let Some(mail) = self.mail.pop_front() {
            self.deliver(mail);
            steps += 1;
            assert!(steps < 1_000_000, "the cluster talks without end");
        }
    }

    /// Lets time pass, with everything that is due, and delivers every message at once.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now.at.plus(duration);
        loop {
            self.settle();
            let due = self.nodes.values().filter_map(|n| n.node.deadline()).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.advance_to(due.max(self.now.at));
            let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
            for id in ids {
                while let Some((_, outputs)) = self.nodes.get_mut(&id).unwrap().node.on_timeout(self.now) {
                    self.perform(id, outputs);
                }
            }
        }
        self.advance_to(end);
    }

    fn advance_to(&mut self, at: Time) {
        self.now.wall_ms += (at.0 - self.now.at.0) / 1000;
        self.now.at = at;
    }

    pub fn host_says(&mut self, id: u64, message: Message) {
        let id = NodeId(id);
        let from = Address { node: id, role: RoleId::Host };
        let role = match message {
            Message::Reconfigure { .. } | Message::Transfer { .. } => RoleId::Leader,
            _ => RoleId::Replica,
        };
        self.mail.push_back(Mail { from, to: Address { node: id, role }, message });
    }

    pub fn submit(&mut self, id: u64, payload: &str) {
        let node = self.nodes.get_mut(&NodeId(id)).unwrap();
        let first_seq = node.next_seq;
        node.next_seq += 1;
        let payloads = vec![Bytes::from(payload.to_string())];
        self.host_says(id, Message::Submit { first_seq, payloads });
    }

    pub fn masters(&self) -> Vec<u64> {
        self.nodes.values().filter(|n| n.node.can_lease_read(self.now)).map(|n| n.node.id().0).collect()
    }
}
