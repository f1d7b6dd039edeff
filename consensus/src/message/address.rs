//! Who says something to whom: roles, addresses, and the envelope around a message.
//!
//! Short-lived roles have their ballot (and slot) in their address, and no ballot is used twice (L2): an answer never reaches a later scout or commander.

use super::Message;
use crate::types::{Ballot, NodeId, Slot};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A role on a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RoleId {
    /// Keeps the decided sequence and feeds it to the machine.
    Replica,
    /// Wants to lead, or leads.
    Leader,
    /// Promises and accepts.
    Acceptor,
    /// Phase 1 of one ballot.
    Scout(Ballot),
    /// Phase 2 of one slot in one ballot.
    Commander(Ballot, Slot),
    /// Not a role: what drives the roles.
    Host,
}

impl fmt::Debug for RoleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoleId::Replica => f.write_str("replica"),
            RoleId::Leader => f.write_str("leader"),
            RoleId::Acceptor => f.write_str("acceptor"),
            RoleId::Scout(ballot) => write!(f, "scout {ballot}"),
            RoleId::Commander(ballot, slot) => write!(f, "commander {ballot}/{slot:?}"),
            RoleId::Host => f.write_str("host"),
        }
    }
}

/// Where a message comes from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The member.
    pub node: NodeId,
    /// The role on it.
    pub role: RoleId,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.node, self.role)
    }
}

/// The nodes that one message goes to: a host encodes it once for all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Targets {
    /// One node.
    One(NodeId),
    /// Several nodes.
    Many(Arc<[NodeId]>),
}

impl Targets {
    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        match self {
            Targets::One(node) => std::slice::from_ref(node),
            Targets::Many(nodes) => nodes,
        }
    }
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Envelope {
    /// Who says it.
    pub from: Address,
    /// To which nodes.
    pub to: Targets,
    /// To which role on each of them.
    pub role: RoleId,
    /// What is said.
    pub message: Message,
}
