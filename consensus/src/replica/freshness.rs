//! How old this node's state is at most, for reads that may be stale by a bounded time.
//!
//! A heartbeat that echoes the number of an earlier answer of ours, sent by a master inside its lease, was sent after that answer; so its
//! read index covers everything that was acknowledged before we sent the answer. (Its watermark does not: the master's own clients are
//! answered before the watermark is announced.) Invariant F1: age counts from when that answer was sent, and only once the machine has
//! reached the heartbeat's read index.

use crate::types::{Ballot, Time};
use std::collections::VecDeque;

/// Answers to heartbeats that the master may still echo.
const REMEMBERED: usize = 32;

/// What a live master vouches for.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    answers: VecDeque<(Ballot, u64, Time)>,
    /// Vouched for once the machine reaches the slot.
    promised: VecDeque<(u64, Time)>,
    as_of: Option<Time>,
}

impl Freshness {
    /// A heartbeat was answered at `answered_at`; it echoed one of our earlier answers, or none.
    pub fn heard(&mut self, ballot: Ballot, seq: u64, echo: Option<u64>, read_index: u64, answered_at: Time) {
        let echoed = |(known, number, _): &&(Ballot, u64, Time)| *known == ballot && Some(*number) == echo;
        if let Some((_, _, at)) = self.answers.iter().find(echoed) {
            self.promised.push_back((read_index, *at));
        }
        if self.answers.back().is_none_or(|(known, number, _)| (*known, *number) < (ballot, seq)) {
            self.answers.push_back((ballot, seq, answered_at)); // a late copy is not the answer that is echoed
        }
        if self.answers.len() > REMEMBERED {
            self.answers.pop_front();
        }
        if self.promised.len() > REMEMBERED {
            self.promised.pop_front();
        }
    }

    /// The machine stands at `applied`.
    pub fn applied(&mut self, applied: u64) {
        let as_of = &mut self.as_of;
        self.promised.retain(|(slot, at)| {
            if *slot <= applied {
                *as_of = (*as_of).max(Some(*at));
            }
            *slot > applied
        });
    }

    /// Everything acknowledged before this time is in the machine.
    #[must_use]
    pub fn as_of(&self) -> Option<Time> {
        self.as_of
    }
}
