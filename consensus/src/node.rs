//! All roles of one node in one value, for hosts that want it so.
//!
//! The node routes a message to its role and hands the role's outputs back untouched; how messages travel, also between roles of this
//! node, stays the host's business. It keeps no state of its own beyond the roles.

use crate::acceptor::Acceptor;
use crate::commander::Commander;
use crate::config::Config;
use crate::leader::Leader;
use crate::message::{Address, Message, RoleId};
use crate::record::{Durable, Record};
use crate::replica::Replica;
use crate::role::{Outputs, Role, Spawn};
use crate::scout::Scout;
use crate::types::{Ballot, NodeId, Now, Slot, Time};
use crate::value::Origin;
use crate::view::ViewState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where a node's machine stands when the node starts.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The slot that the newest durable snapshot covers; 0: none.
    pub slot: u64,
    /// Cluster time there.
    pub stamp_ms: u64,
    /// The configuration stored with the snapshot.
    pub view: Option<ViewState>,
}

/// All roles of one node.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    replica: Replica,
    leader: Leader,
    acceptor: Acceptor,
    scouts: BTreeMap<Ballot, Scout>,
    commanders: BTreeMap<(Ballot, Slot), Commander>,
}

impl Node {
    /// Puts a node together from what is durable. The outputs hold the new incarnation, which must be durable before anything else is
    /// asked of the node, and the decided values above the snapshot, to be applied.
    ///
    /// A node that never had data gets an empty [`Durable`] whose `view` says what it may know: the first view, when it founds a
    /// cluster; the current one, when it was added.
    pub fn recover(
        id: NodeId,
        config: &Arc<Config>,
        mut durable: Durable,
        standing: Standing,
        seed: u64,
        now: Now,
    ) -> (Node, Outputs) {
        let mut outputs = Outputs::default();
        durable.incarnation += 1;
        outputs.persist.push(Record::Incarnation(durable.incarnation));
        if let Some(view) = &standing.view {
            match &mut durable.view {
                Some(known) => {
                    known.learn(view);
                }
                None => durable.view = Some(view.clone()),
            }
        }
        let leader = Leader::recover(id, config.clone(), &durable, seed, now);
        let (replica, replica_outputs) = Replica::recover(id, config.clone(), &durable, &standing, now);
        outputs.append(replica_outputs);
        let acceptor = Acceptor::recover(id, config.clone(), durable, standing.slot, now);
        let node =
            Node { id, replica, leader, acceptor, scouts: BTreeMap::new(), commanders: BTreeMap::new() };
        (node, outputs)
    }

    /// Hands a message to its role. Messages to a role that is gone, and messages that only a sibling may send, are dropped.
    pub fn deliver(&mut self, from: Address, to: RoleId, message: Message, now: Now) -> Outputs {
        let is_foreign = from.node != self.id;
        if is_foreign && (message.is_local() || !message.is_sane()) {
            return Outputs::default();
        }
        let outputs = match to {
            RoleId::Replica => self.replica.on_message(from, message, now),
            RoleId::Leader => self.leader.on_message(from, message, now),
            RoleId::Acceptor => self.acceptor.on_message(from, message, now),
            RoleId::Scout(ballot) => match self.scouts.get_mut(&ballot) {
                Some(scout) => scout.on_message(from, message, now),
                None => Outputs::default(),
            },
            RoleId::Commander(ballot, slot) => match self.commanders.get_mut(&(ballot, slot)) {
                Some(commander) => commander.on_message(from, message, now),
                None => Outputs::default(),
            },
            RoleId::Host => Outputs::default(),
        };
        self.retire(&outputs.retires);
        outputs
    }

    /// When `on_timeout` must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let long_lived = [self.replica.deadline(), self.leader.deadline(), self.acceptor.deadline()];
        let scouts = self.scouts.values().map(Role::deadline);
        let commanders = self.commanders.values().map(Role::deadline);
        long_lived.into_iter().chain(scouts).chain(commanders).flatten().min()
    }

    /// Calls one role whose deadline has passed. Call again until it says `None`.
    pub fn on_timeout(&mut self, now: Now) -> Option<(RoleId, Outputs)> {
        let is_due = |role: &dyn Role| role.deadline().is_some_and(|deadline| deadline <= now.at);
        let (who, outputs) = if is_due(&self.acceptor) {
            (RoleId::Acceptor, self.acceptor.on_timeout(now))
        } else if is_due(&self.leader) {
            (RoleId::Leader, self.leader.on_timeout(now))
        } else if is_due(&self.replica) {
            (RoleId::Replica, self.replica.on_timeout(now))
        } else if let Some((ballot, scout)) = self.scouts.iter_mut().find(|(_, s)| is_due(*s)) {
            (RoleId::Scout(*ballot), scout.on_timeout(now))
        } else if let Some(((ballot, slot), commander)) = self.commanders.iter_mut().find(|(_, c)| is_due(*c))
        {
            (RoleId::Commander(*ballot, *slot), commander.on_timeout(now))
        } else {
            return None;
        };
        self.retire(&outputs.retires);
        Some((who, outputs))
    }

    /// Starts a role that the leader asked for, once what it asked to persist with it is durable. A role that was retired meanwhile
    /// does no harm: its ballot is over.
    pub fn spawn(&mut self, role: Spawn, now: Now) -> (RoleId, Outputs) {
        match role {
            Spawn::Scout(mut scout) => {
                let (id, outputs) = (RoleId::Scout(scout.ballot()), scout.start(now));
                self.scouts.insert(scout.ballot(), *scout);
                (id, outputs)
            }
            Spawn::Commander(mut commander) => {
                let (ballot, slot) = (commander.ballot(), commander.slot());
                let outputs = commander.start(now);
                self.commanders.insert((ballot, slot), *commander);
                (RoleId::Commander(ballot, slot), outputs)
            }
        }
    }

    fn retire(&mut self, retires: &[RoleId]) {
        for role in retires {
            match role {
                RoleId::Scout(ballot) => drop(self.scouts.remove(ballot)),
                RoleId::Commander(ballot, slot) => drop(self.commanders.remove(&(*ballot, *slot))),
                _ => {}
            }
        }
    }

    /// This node's member id.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// This life of this node, as the origin of command ids.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.replica.origin()
    }

    /// Whether a read that arrived before `now` may be answered from this node's machine: it is the master, inside its lease, and its
    /// start entry is applied. Touches no mailbox.
    #[must_use]
    pub fn can_lease_read(&self, now: Now) -> bool {
        self.leader.can_read(now)
    }

    /// How old this node's machine is at most, if a live master vouches for it; for reads that may be stale.
    #[must_use]
    pub fn local_read_age(&self, now: Now) -> Option<Duration> {
        self.replica.age(now)
    }

    /// The master's node, as far as this node knows.
    #[must_use]
    pub fn master(&self) -> Option<NodeId> {
        self.replica.master()
    }

    /// The ballot of the master, as far as this node knows. While it knows of none: the last one of its own leader.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        let own = self.leader.ballot();
        match self.replica.master_ballot() {
            Some(ballot) if ballot.leader != self.id => ballot,
            _ => own,
        }
    }

    /// The replica, to look at.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The leader, to look at.
    #[must_use]
    pub fn leader(&self) -> &Leader {
        &self.leader
    }

    /// The acceptor, to look at.
    #[must_use]
    pub fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    /// Scouts and commanders that are at work.
    #[must_use]
    pub fn at_work(&self) -> (usize, usize) {
        (self.scouts.len(), self.commanders.len())
    }
}
