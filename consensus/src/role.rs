//! The contract between roles and whatever drives them (the host: tokio, the simulator, a test).
//!
//! A role never acts, it answers: a message or a timeout goes in, [`Outputs`] come out. What a role says leaves
//! the node only after what it wants persisted is durable: the two are fields of one value, so a host cannot see the one without the
//! other.

use crate::commander::Commander;
use crate::message::{Address, Envelope, Message, RoleId, Targets};
use crate::record::Record;
use crate::scout::Scout;
use crate::types::{NodeId, Now, Time};
use crate::value::Value;
use crate::view::ViewState;
use bytes::Bytes;
use std::sync::Arc;

/// A pure state machine.
pub trait Role {
    /// A message arrived. Never blocks, never fails, never looks at a clock. A stale, duplicate or absurd message changes
    /// nothing.
    fn on_message(&mut self, from: Address, message: Message, now: Now) -> Outputs;
    /// `deadline()` has passed.
    fn on_timeout(&mut self, now: Now) -> Outputs;
    /// When the host must call `on_timeout`, if ever. Asked again after every call.
    fn deadline(&self) -> Option<Time>;
}

/// What a role wants done.
#[derive(Debug, Default)]
#[must_use = "what a role wants done must be done"]
pub struct Outputs {
    /// Appended to the journal in the order in which roles return them, and durable BEFORE `sends` leave and `spawns` start. What a
    /// role sends waits for everything that *the same role* asked to persist before, too: an acceptor that answers a duplicate
    /// has nothing new to persist, but its first answer's record may still be on its way to the disk.
    pub persist: Vec<Record>,
    /// Nobody is in a hurry for what is persisted here: the host may put it on the disk a little later, together with more.
    pub may_wait: bool,
    /// Messages, also to roles of the same node.
    pub sends: Vec<Envelope>,
    /// The leader starts scouts and commanders.
    pub spawns: Vec<Spawn>,
    /// Scouts and commanders that the leader needs no more. Takes effect at once.
    pub retires: Vec<RoleId>,
    /// What the host itself has to do. Need not wait for `persist`.
    pub calls: Vec<HostCall>,
}

/// A role that the leader starts.
#[derive(Debug)]
pub enum Spawn {
    /// Phase 1 of one ballot.
    Scout(Box<Scout>),
    /// Phase 2 of one slot.
    Commander(Box<Commander>),
}

/// What a role asks of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// Apply this value; slots come without gaps and in order. Then tell the replica [`Message::Applied`].
    Apply {
        /// The slot.
        slot: u64,
        /// The decided value.
        value: Arc<Value>,
    },
    /// These reads may be answered from the machine now.
    ReadReady {
        /// The host's names for them.
        reads: Vec<u64>,
    },
    /// An abandoned command: `certain` says that it was never sent on, so it certainly did not run and never will.
    Abandoned {
        /// Its number.
        seq: u64,
        /// Certainly not done.
        certain: bool,
    },
    /// Send a piece of a snapshot that covers at least `slot` (the newest, if the one asked for is gone, and then from its
    /// beginning) as a [`Message::SnapshotChunk`] to that replica.
    SendSnapshot {
        /// Who asked.
        to: NodeId,
        /// The snapshot asked for; 0: the newest.
        slot: u64,
        /// From this byte on.
        offset: u64,
    },
    /// Keep this piece of a snapshot; pieces of one snapshot come without gaps.
    StoreChunk {
        /// The snapshot.
        slot: u64,
        /// Where the piece begins; 0 discards what was kept before.
        offset: u64,
        /// The piece.
        data: Bytes,
    },
    /// All pieces are there: make it durable, load it, then tell the replica [`Message::Installed`].
    Install {
        /// The snapshot.
        slot: u64,
    },
    /// The configuration changed: links may have to be opened or closed.
    ViewChanged(ViewState),
    /// This node is a member no more: stop serving clients. Its acceptor goes on answering.
    Removed,
    /// The new view can do without this removed node's acceptor: it may stop.
    MayStop,
}

impl Outputs {
    /// Adds a message from `from` to a role on one node.
    pub fn send(&mut self, from: Address, to: Address, message: Message) {
        self.sends.push(Envelope { from, to: Targets::One(to.node), role: to.role, message });
    }

    /// Adds one message from `from` to the same role on several nodes.
    pub fn broadcast(&mut self, from: Address, to: Arc<[NodeId]>, role: RoleId, message: Message) {
        self.sends.push(Envelope { from, to: Targets::Many(to), role, message });
    }

    /// Adds everything that `other` wants after everything that this wants.
    pub fn append(&mut self, mut other: Outputs) {
        self.persist.append(&mut other.persist);
        self.sends.append(&mut other.sends);
        self.spawns.append(&mut other.spawns);
        self.retires.append(&mut other.retires);
        self.calls.append(&mut other.calls);
    }

    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.persist.is_empty()
            && self.sends.is_empty()
            && self.spawns.is_empty()
            && self.retires.is_empty()
            && self.calls.is_empty()
    }
}
