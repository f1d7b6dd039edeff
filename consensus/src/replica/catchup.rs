//! Getting decisions that were missed: from a peer's log or, when that is compacted, from its snapshot in pieces.

use crate::types::{NodeId, Time};
use crate::view::View;
use std::time::Duration;

/// The state of one replica's catching up.
#[derive(Clone, Debug, Default)]
pub struct CatchUp {
    /// When to ask (again).
    due: Option<Time>,
    /// Counts the attempts, to ask another peer each time.
    attempts: u64,
    peer: Option<NodeId>,
    /// The snapshot under way: its slot, the bytes already here, its length.
    snapshot: Option<(u64, u64, u64)>,
    /// The host loads this snapshot.
    installing: Option<u64>,
}

/// What to do with a piece of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// It is not the one that is needed.
    Ignore,
    /// Keep it, and ask for the next.
    Keep {
        /// Where the next piece begins.
        next: u64,
    },
    /// Keep it; it was the last.
    Last,
}

impl CatchUp {
    /// Something is missing: ask after `grace`, if it has not come by itself.
    pub fn want(&mut self, now: Time, grace: Duration) {
        if self.due.is_none() {
            self.due = Some(now.plus(grace));
        }
    }

    /// Ask at once.
    pub fn hurry(&mut self, now: Time) {
        self.due = Some(now);
    }

    /// Nothing is missing.
    pub fn satisfied(&mut self) {
        self.due = None;
        self.attempts = 0;
        self.peer = None;
    }

    /// When to ask.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// This peer is known to have what is missing.
    pub fn prefer(&mut self, peer: NodeId) {
        if self.peer.is_none() {
            self.peer = Some(peer);
        }
    }

    /// Whom to ask now; asks again after `retry`. Peers take turns, those that are not the master first: it has enough to do.
    pub fn next_peer(
        &mut self,
        me: NodeId,
        master: Option<NodeId>,
        view: &View,
        now: Time,
        retry: Duration,
    ) -> Option<NodeId> {
        self.due = Some(now.plus(retry));
        if let Some(peer) = self.peer.take().filter(|peer| *peer != me) {
            return Some(peer);
        }
        self.snapshot = None; // a peer that went silent in the middle: begin anew with another
        let mut peers: Vec<NodeId> = view.members.keys().filter(|id| **id != me).copied().collect();
        peers.sort_by_key(|peer| (Some(*peer) == master, *peer));
        let count = u64::try_from(peers.len()).unwrap_or(0);
        let index = usize::try_from(self.attempts.checked_rem(count)?).ok()?;
        self.attempts += 1;
        peers.get(index).copied()
    }

    /// A peer answered: it is alive, so go on with it.
    pub fn answered(&mut self, now: Time, retry: Duration) {
        self.due = Some(now.plus(retry));
    }

    /// A piece of a snapshot arrived.
    pub fn piece(&mut self, applied: u64, slot: u64, offset: u64, len: u64, total: u64) -> Piece {
        if self.installing.is_some() || slot <= applied || len == 0 || offset.saturating_add(len) > total {
            return Piece::Ignore;
        }
        let expected = match self.snapshot {
            Some((known, next, length)) if known == slot && length == total => next,
            Some((known, _, _)) if known > slot => return Piece::Ignore,
            _ => 0,
        };
        if offset != expected {
            return Piece::Ignore;
        }
        let next = offset + len;
        self.snapshot = Some((slot, next, total));
        if next == total { Piece::Last } else { Piece::Keep { next } }
    }

    /// The snapshot under way and how much of it is here.
    #[must_use]
    pub fn snapshot(&self) -> Option<(u64, u64)> {
        self.snapshot.map(|(slot, next, _)| (slot, next))
    }

    /// The host loads a snapshot.
    pub fn install(&mut self, slot: u64) {
        self.snapshot = None;
        self.installing = Some(slot);
    }

    /// Whether the host loads a snapshot now.
    #[must_use]
    pub fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// The host is done with it, well or not.
    pub fn installed(&mut self) {
        self.installing = None;
        self.due = None; // what lies above the snapshot is wanted at once
    }
}
