//! Sends pieces of snapshots to peers: each when it is asked for, one at a time to a peer, and all of them no faster than `snapshot-rate`.
//!
//! A piece that must wait holds nothing up: the request is kept, and the node's loop comes back when the piece may leave.

use crate::bucket::Bucket;
use consensus::NodeId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A piece of a snapshot on the wire, at most.
const PIECE_BYTES_MAX: u64 = 1 << 20;
const PIECE_BYTES_MIN: u64 = 16 << 10;
/// At a low rate pieces are smaller, so that there are so many in a second: a peer that hears nothing for long asks again, and then asks another.
const PIECES_A_SECOND: u64 = 10;

/// A peer wants what follows `offset` of the snapshot of `slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub to: NodeId,
    pub slot: u64,
    pub offset: u64,
}

/// See the module's description.
pub struct Courier {
    bucket: Bucket,
    piece_bytes: usize,
    /// In the order in which the peers asked; one of each.
    waiting: VecDeque<Wanted>,
    sent_bytes: u64,
}

impl Courier {
    /// One that sends `rate` bytes a second; 0: as fast as peers ask.
    pub fn new(rate: u64, now: Instant) -> Courier {
        let piece = if rate == 0 { PIECE_BYTES_MAX } else { rate / PIECES_A_SECOND };
        let piece = piece.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        Courier {
            bucket: Bucket::new(rate, now),
            piece_bytes: usize::try_from(piece).unwrap_or(usize::MAX),
            waiting: VecDeque::new(),
            sent_bytes: 0,
        }
    }

    /// How much to send at once.
    pub fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    /// A peer asks. What it asked before, and did not get yet, it does not want any more; it keeps its turn.
    pub fn want(&mut self, wanted: Wanted) {
        match self.waiting.iter_mut().find(|waiting| waiting.to == wanted.to) {
            Some(waiting) => *waiting = wanted,
            None => self.waiting.push_back(wanted),
        }
    }

    /// The next request that may be answered now.
    pub fn next(&mut self, now: Instant) -> Option<Wanted> {
        if self.bucket.wait(now).is_some() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// A piece left.
    pub fn sent(&mut self, bytes: usize) {
        self.bucket.take(bytes);
        self.sent_bytes += bytes as u64;
    }

    /// How long until the next request may be answered, if one waits.
    pub fn due_in(&mut self, now: Instant) -> Option<Duration> {
        (!self.waiting.is_empty()).then(|| self.bucket.wait(now).unwrap_or_default())
    }

    /// All that was sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(to: u64, offset: u64) -> Wanted {
        Wanted { to: NodeId(to), slot: 7, offset }
    }

    #[test]
    fn peers_take_turns_and_wait_for_the_rate() {
        let start = Instant::now();
        let mut courier = Courier::new(1 << 20, start);
        courier.want(wanted(2, 0));
        courier.want(wanted(3, 0));
        courier.want(wanted(2, 100)); // it asks again, and keeps its turn
        assert_eq!(courier.next(start), Some(wanted(2, 100)));
        courier.sent(courier.piece_bytes());
        assert_eq!(courier.next(start), None, "there is no more for now");
        let wait = courier.due_in(start).unwrap_or_default();
        assert!(wait > Duration::from_millis(40) && wait < Duration::from_millis(60), "{wait:?}");
        courier.want(wanted(2, 200));
        assert_eq!(courier.next(start + wait), Some(wanted(3, 0)), "the other is next");
        assert_eq!(courier.next(start + wait), Some(wanted(2, 200)));
        assert_eq!(courier.due_in(start + wait), None, "nobody waits");
        assert_eq!(courier.sent_bytes(), (1 << 20) / 10);
    }

    #[test]
    fn pieces_are_small_when_the_rate_is() {
        let piece = |rate| Courier::new(rate, Instant::now()).piece_bytes();
        assert_eq!(piece(0), 1 << 20);
        assert_eq!(piece(64 << 20), 1 << 20);
        assert_eq!(piece(2 << 20), (2 << 20) / 10);
        assert_eq!(piece(64 << 10), 16 << 10);
    }
}
