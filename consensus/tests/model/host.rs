//! The long-lived roles of a node as values, and what they say to each other at once.
//!
//! As in a real host, what a role wants durable is on the disk before anything that it says is heard.

use super::NOW;
use std::collections::VecDeque;
use std::sync::Arc;
use warlock_consensus::acceptor::Acceptor;
use warlock_consensus::replica::Replica;
use warlock_consensus::*;

/// The long-lived roles of a node as values.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) id: NodeId,
    pub(super) acceptor: Acceptor,
    pub(super) replica: Replica,
    /// What its machine was given.
    pub(super) applied: Vec<Arc<Value>>,
    /// What its disk holds, where that matters.
    pub(super) disk: Option<Durable>,
}

type Inbox = VecDeque<(Address, RoleId, Message)>;

impl Host {
    /// Hands messages to the roles until they have nothing more to say to each other; returns what leaves for scouts, commanders and other
    /// nodes.
    pub(super) fn run(&mut self, mut inbox: Inbox) -> Vec<Envelope> {
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
    pub(super) fn write_down(&mut self) -> Vec<Envelope> {
        if self.replica.deadline().is_none_or(|due| due > NOW.at) {
            return Vec::new();
        }
        let mut inbox = VecDeque::new();
        let outputs = self.replica.on_timeout(NOW);
        let mut leaving = self.perform(outputs, &mut inbox);
        leaving.extend(self.run(inbox));
        leaving
    }

    pub(super) fn perform(&mut self, outputs: Outputs, inbox: &mut Inbox) -> Vec<Envelope> {
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
