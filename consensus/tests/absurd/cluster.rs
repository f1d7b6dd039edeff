//! A host that survives its roles: real nodes with instant disks, and the messages under way between them.
//!
//! A restarted node knows what it asked to persist, and nothing else. One message may not make a role do a great deal of work.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::*;

/// What one message may cause: a leader that heard of an accepted value as far ahead as an acceptor may be proposes something for each slot before it.
const WORK_MAX: usize = 65_536 + 10_000;

struct Idle;

impl Machine for Idle {
    fn apply(&mut self, _stamp: &Stamp, _id: CommandId, payload: &Bytes) -> Bytes {
        payload.clone()
    }
}

pub(super) struct Hosted {
    pub(super) node: Node,
    pub(super) ledger: Ledger,
    journal: Vec<Record>,
    next_seq: u64,
}

#[derive(Clone)]
pub(super) struct Mail {
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) message: Message,
}

pub(super) struct Cluster {
    config: Arc<Config>,
    pub(super) nodes: BTreeMap<NodeId, Hosted>,
    pub(super) mail: VecDeque<Mail>,
    now: Now,
    first: Arc<View>,
}

impl Cluster {
    pub(super) fn new(config: Config) -> Cluster {
        let contact = |id| (NodeId(id), Bytes::from(format!("n{id}")));
        let first = View::first((1..=3).map(contact), Duration::from_secs(1));
        let now = Now { at: Time(1_000_000), wall_ms: 1_700_000_000_000 };
        let (config, first) = (Arc::new(config), Arc::new(first));
        let mut cluster = Cluster { config, nodes: BTreeMap::new(), mail: VecDeque::new(), now, first };
        for id in 1..=3 {
            let view = Some(ViewState::first((*cluster.first).clone()));
            cluster.start(NodeId(id), Durable { view, ..Durable::default() }, Vec::new());
        }
        cluster
    }

    fn start(&mut self, id: NodeId, durable: Durable, journal: Vec<Record>) {
        let (node, outputs) = Node::recover(id, &self.config, durable, Standing::default(), id.0, self.now);
        let ledger = Ledger::new(self.first.clone());
        self.nodes.insert(id, Hosted { node, ledger, journal, next_seq: 1 });
        self.perform(id, outputs);
    }

    /// The node forgets what was not durable.
    pub(super) fn restart(&mut self, id: NodeId) {
        let journal = std::mem::take(&mut self.nodes.get_mut(&id).unwrap().journal);
        let view = Some(ViewState::first((*self.first).clone()));
        let mut durable = Durable { view, ..Durable::default() };
        journal.iter().cloned().for_each(|record| durable.apply(record));
        self.start(id, durable, journal);
    }

    /// Does what a role wants; the disk is instant.
    fn perform(&mut self, id: NodeId, outputs: Outputs) {
        let Outputs { persist, sends, spawns, calls, .. } = outputs;
        let count = spawns.len() + sends.len() + calls.len();
        assert!(
            count < WORK_MAX,
            "work: one message makes a role start {} roles and send {} messages",
            spawns.len(),
            sends.len()
        );
        let hosted = self.nodes.get_mut(&id).unwrap();
        hosted.journal.extend(persist);
        for Envelope { from, to, role, message } in sends {
            for node in to.nodes() {
                let to = Address { node: *node, role };
                self.mail.push_back(Mail { from, to, message: message.clone() });
            }
        }
        for call in calls {
            if let HostCall::Apply { slot, value } = call {
                // After a snapshot out of the blue the ledger cannot follow.
                if slot == hosted.ledger.applied() + 1 {
                    hosted.ledger.apply(slot, &value, &mut Idle, &self.config, &mut Vec::new());
                }
                let stamp_ms = hosted.ledger.cluster_ms();
                let executed_below = hosted.ledger.executed_below(hosted.node.origin());
                let from = Address { node: id, role: RoleId::Host };
                let to = Address { node: id, role: RoleId::Replica };
                let message = Message::Applied { slot, stamp_ms, executed_below };
                self.mail.push_back(Mail { from, to, message });
            }
        }
        for spawn in spawns {
            let (_, outputs) = self.nodes.get_mut(&id).unwrap().node.spawn(spawn, self.now);
            self.perform(id, outputs);
        }
    }

    pub(super) fn deliver(&mut self, mail: Mail) {
        if let Some(hosted) = self.nodes.get_mut(&mail.to.node) {
            let outputs = hosted.node.deliver(mail.from, mail.to.role, mail.message, self.now);
            self.perform(mail.to.node, outputs);
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now.at = self.now.at.plus(time);
        self.now.wall_ms += time.as_millis() as u64;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            for _ in 0..100 {
                let hosted = self.nodes.get_mut(&id).unwrap();
                let Some((_, outputs)) = hosted.node.on_timeout(self.now) else { break };
                self.perform(id, outputs);
            }
        }
    }

    pub(super) fn submit(&mut self, id: NodeId) {
        let hosted = self.nodes.get_mut(&id).unwrap();
        let message =
            Message::Submit { first_seq: hosted.next_seq, payloads: vec![Bytes::from_static(b"ordinary")] };
        hosted.next_seq += 1;
        let to = Address { node: id, role: RoleId::Replica };
        self.mail.push_back(Mail { from: Address { node: id, role: RoleId::Host }, to, message });
    }
}
