//! What is asked of the lock machine, by clients and by nodes themselves.

use bytes::Bytes;
use storage::commands;
use storage::machine::{Caller, encode_command};
use storage::reply::Reply;

/// A request. `key` is the number of a lock; owners are clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// LOCK.ACQUIRE.
    Acquire {
        /// Which lock.
        key: u8,
        /// Whose name.
        owner: usize,
        /// For how long; 0: as long as the session.
        ttl_ms: u64,
        /// Shared.
        is_shared: bool,
        /// How long to wait; 0: not at all.
        wait_ms: u64,
        /// Lock-delay.
        delay_ms: u64,
        /// The session; 0: none.
        session: u64,
    },
    /// LOCK.RENEW.
    Renew {
        /// Which lock.
        key: u8,
        /// Which hold.
        token: u64,
        /// For how long.
        ttl_ms: u64,
    },
    /// LOCK.RELEASE, also as the undoing of a grant that nobody can be told.
    Release {
        /// Which lock.
        key: u8,
        /// Which hold.
        token: u64,
    },
    /// LOCK.DO … SET.
    Do {
        /// Which lock.
        key: u8,
        /// Which hold.
        token: u64,
    },
    /// LOCK.REVOKE.
    Revoke(u8),
    /// DEL.
    Delete(u8),
    /// FLUSHALL.
    Flush,
    /// SESSION.OPEN with this time to live.
    Open(u64),
    /// SESSION.ALIVE.
    Alive(u64),
    /// SESSION.CLOSE.
    Close(u64),
    /// The master's sweep.
    Sweep,
    /// The master's reaping.
    Reap,
    /// Its node cancels the wait of a client that is gone.
    Unwait(Caller),
    /// The waits of a node's lives before this one end.
    Forget(u64, u64),
}

/// The name of a lock.
#[must_use]
pub fn name(key: u8) -> String {
    format!("lock{key}")
}

/// The number in a lock's name.
#[must_use]
pub fn key_of(name: &[u8]) -> u8 {
    name.last().map_or(u8::MAX, |digit| digit.wrapping_sub(b'0'))
}

impl Ask {
    /// As it goes through the log.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        let text = match *self {
            Ask::Acquire { key, owner, ttl_ms, is_shared, wait_ms, delay_ms, session } => {
                let shared = if is_shared { "SHARED " } else { "" };
                let session = if session > 0 { format!("SESSION {session} ") } else { String::new() };
                format!(
                    "LOCK.ACQUIRE {} client{owner} {ttl_ms} {shared}{session}WAIT {wait_ms} DELAY {delay_ms}",
                    name(key)
                )
            }
            Ask::Renew { key, token, ttl_ms } => format!("LOCK.RENEW {} {token} {ttl_ms}", name(key)),
            Ask::Release { key, token } => format!("LOCK.RELEASE {} {token}", name(key)),
            Ask::Do { key, token } => format!("LOCK.DO {} {token} SET written {token}", name(key)),
            Ask::Revoke(key) => format!("LOCK.REVOKE {}", name(key)),
            Ask::Delete(key) => format!("DEL {}", name(key)),
            Ask::Flush => "FLUSHALL".into(),
            Ask::Open(ttl_ms) => format!("SESSION.OPEN {ttl_ms}"),
            Ask::Alive(id) => format!("SESSION.ALIVE {id}"),
            Ask::Close(id) => format!("SESSION.CLOSE {id}"),
            Ask::Sweep => return commands::sweep(1_000),
            Ask::Reap => return commands::reap(1_000),
            Ask::Unwait(caller) => return commands::unwait(caller, false),
            Ask::Forget(node, incarnation) => return commands::forget_waits(node, incarnation),
        };
        encode_command(0, &text.split(' ').collect::<Vec<_>>())
    }

    /// Whether it asks for a lock.
    #[must_use]
    pub fn is_acquire(&self) -> bool {
        matches!(self, Ask::Acquire { .. })
    }
}

/// The number in a reply: of a grant its token, of anything else itself; 0 if there is none.
#[must_use]
pub fn number(reply: &Reply) -> u64 {
    match reply {
        Reply::Granted(granted) => granted.token,
        Reply::Integer(number) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}
