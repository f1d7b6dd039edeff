//! What a command says besides its reply: to a client that waited, or about something that happened.
//!
//! Events are no state: they are told once, on every node, in the order of the log, and a node that was not there (it installed a snapshot
//! instead) never hears them. Whoever needs more asks the state.

use super::locks::LockEvent;
use super::payload::encode_command;
use crate::reply::Reply;
use crate::row::SmallBytes;
use bytes::Bytes;

/// Who sent a command: a node in one of its lives, and the number that it gave the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The node.
    pub node: u64,
    /// Which of its lives.
    pub incarnation: u64,
    /// The command's number.
    pub seq: u64,
}

impl Caller {
    /// Nobody: its commands cannot wait.
    pub const NOBODY: Caller = Caller { node: 0, incarnation: 0, seq: 0 };
}

/// How a command is undone whose reply cannot be delivered. Almost every reply can: the command is made only where it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// A hold of a lock is given back.
    Release {
        /// The database.
        db: u8,
        /// The key.
        key: SmallBytes,
        /// The hold's token.
        token: u64,
    },
    /// By this command.
    Command(Bytes),
}

impl Undo {
    /// The command that does it.
    #[must_use]
    pub fn command(&self) -> Bytes {
        match self {
            Undo::Release { db, key, token } => {
                encode_command(*db, &[b"LOCK.RELEASE", &key[..], token.to_string().as_bytes()])
            }
            Undo::Command(command) => command.clone(),
        }
    }
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A command that waited has its reply: somebody served it, its time passed, or it was cancelled.
    Served {
        /// Who waited.
        caller: Caller,
        /// The reply.
        reply: Reply,
        /// How it is undone, if the reply cannot be delivered.
        undo: Option<Undo>,
    },
    /// A command that did not wait can be undone by another one, if its reply cannot be delivered.
    Undo {
        /// Who sent the first.
        caller: Caller,
        /// How.
        undo: Undo,
    },
    /// A message for everybody who listens to a channel.
    Published {
        /// The channel.
        channel: Bytes,
        /// The message.
        message: Bytes,
    },
    /// A key was written or removed. Told only if the node asks for it.
    Changed {
        /// Whose command did it.
        caller: Caller,
        /// The key, of whatever database.
        key: Bytes,
    },
    /// Every key of a database may have changed. Told only if the node asks for it.
    Flushed {
        /// Whose command did it.
        caller: Caller,
    },
    /// Somebody got a lock, or has it no longer.
    Lock(LockEvent),
}
