//! What is agreed upon: commands with their ids, gathered into a value per slot.

use crate::types::{Ballot, NodeId};
use crate::view::View;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One life of one node as a source of commands. The incarnation is durable before its first use, so a
/// restarted node never gives out an id twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The node that took the command from its client.
    pub node: NodeId,
    /// Which of the node's lives it was.
    pub incarnation: u64,
}

/// Names one command for ever: re-sent to any master, it runs once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandId {
    /// Who gave the id out.
    pub origin: Origin,
    /// Counts the origin's commands from 1, without gaps. Commands of one origin run in this order.
    pub seq: u64,
}

/// What a client wants executed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Command {
    /// Makes a re-sent command recognisable.
    pub id: CommandId,
    /// The origin needs no reply any more for ids below this one: their replies may be forgotten.
    pub low: u64,
    /// Opaque to consensus. Empty: do nothing (a command that its client gave up).
    pub payload: Bytes,
}

/// What one slot holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Value {
    /// The ballot of the master that *made* this value. Part of the value: it stays when a later leader proposes the
    /// value again, so applying it gives the same on every node. (The ballot in which a slot is decided is not.)
    pub made_in: Ballot,
    /// Cluster time in milliseconds, stamped by the master that made the value.
    pub stamp_ms: u64,
    /// The content.
    pub body: Body,
}

/// The kinds of content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Fills a gap that a dead leader left.
    Noop,
    /// A new master's first own entry, after everything that it inherited. Lease reads begin when the master's
    /// own replica has applied it. In a view that is not established it carries the view (`ViewStart`): once it is decided,
    /// the view is established, because every acceptor that took it holds all earlier slots.
    Start {
        /// The view that this entry establishes, if it does.
        establishes: Option<Arc<View>>,
    },
    /// A batch of commands, in order.
    Commands(Vec<Command>),
    /// In a reconfiguration slot: the next view.
    Reconfig(Arc<View>),
}

impl Value {
    /// About how many bytes the value takes in memory and on the wire.
    #[must_use]
    pub fn weight(&self) -> usize {
        match &self.body {
            Body::Commands(commands) => commands.iter().map(|c| c.payload.len() + 48).sum::<usize>() + 48,
            _ => 64,
        }
    }
}
