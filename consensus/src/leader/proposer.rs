//! What a leader does in one adopted ballot: slots, batches, decisions.
//!
//! Invariants:
//! * L1: a slot is proposed only in the adopted ballot, once, with the highest-ballot value seen for it, and never at or below the phase-1
//!   watermark.
//! * R2: new slots stay within the window above what this node's replica applied.
//! * W1: the announced watermark covers only slots that this node's replica applied *and* that lie at or below the phase-1 watermark
//!   or were decided in this ballot.

use crate::types::{Ballot, Watermark};
use crate::value::{Command, Origin, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The slots of one ballot.
#[derive(Clone, Debug)]
pub struct Proposer {
    /// The adopted ballot.
    pub ballot: Ballot,
    /// Decisions up to here were known to the quorum in phase 1.
    pub phase1_watermark: u64,
    /// This ballot's start entry.
    pub start_slot: u64,
    /// The next free slot.
    pub next_slot: u64,
    /// Decided in this ballot without a gap above the phase-1 watermark.
    pub decided_through: u64,
    /// Decided in this ballot; kept until the replica applied it.
    pub decided: BTreeMap<u64, Arc<Value>>,
    queue: VecDeque<Command>,
    origins: BTreeMap<Origin, Expected>,
}

/// What the leader knows of one origin's commands.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// The next command number.
    next: u64,
    /// The lowest number that still matters to the origin.
    low: u64,
    /// The number that the origin was last asked for.
    asked: Option<u64>,
}

impl Proposer {
    /// Nothing is proposed yet; inherited slots end before `start_slot`.
    #[must_use]
    pub fn new(ballot: Ballot, phase1_watermark: u64, start_slot: u64) -> Proposer {
        Proposer {
            ballot,
            phase1_watermark,
            start_slot,
            next_slot: start_slot + 1,
            decided_through: phase1_watermark,
            decided: BTreeMap::new(),
            queue: VecDeque::new(),
            origins: BTreeMap::new(),
        }
    }

    /// Takes commands of one origin into the queue: each once and in order, so that a command never overtakes an earlier one of the
    /// same client. When an earlier one is missing: its number, the first time that this is noticed (the origin also repeats itself).
    pub fn enqueue(&mut self, commands: Vec<Command>, queue_max: usize) -> Option<u64> {
        for mut command in commands {
            let first = Expected { next: command.low, low: command.low, asked: None };
            let known = self.origins.entry(command.id.origin).or_insert(first);
            known.low = known.low.max(command.low);
            known.next = known.next.max(known.low);
            if command.id.seq < known.next {
                continue; // a repeat: it is already on its way, or its origin does not wait for it
            }
            if command.id.seq > known.next {
                let is_news = known.asked != Some(known.next);
                known.asked = Some(known.next);
                return is_news.then_some(known.next);
            }
            if self.queue.len() >= queue_max {
                return None; // it comes again from its origin, after a while
            }
            known.next += 1;
            // A late copy may carry an older `low` than the one that let it pass here: the ledger must let it pass, too.
            command.low = known.low;
            self.queue.push_back(command);
        }
        None
    }

    /// Whether commands wait for a slot.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the window allows another slot.
    #[must_use]
    pub fn has_room(&self, applied: u64, window: u64) -> bool {
        self.next_slot <= applied + window
    }

    /// The next batch; empty when nothing waits.
    pub fn batch(&mut self, commands_max: usize, bytes_max: usize) -> Vec<Command> {
        let mut bytes = 0;
        let mut count = 0;
        for command in self.queue.iter().take(commands_max) {
            bytes += command.payload.len() + 48;
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        self.queue.drain(..count).collect()
    }

    /// A slot was decided in this ballot.
    pub fn decide(&mut self, slot: u64, value: Arc<Value>) {
        if slot > self.decided_through {
            self.decided.insert(slot, value);
        }
        while self.decided.contains_key(&(self.decided_through + 1)) {
            self.decided_through += 1;
        }
    }

    /// The replica applied up to here: values up to it need not be kept.
    pub fn applied(&mut self, slot: u64) {
        let keep_from = slot.min(self.decided_through) + 1;
        if self.decided.first_key_value().is_some_and(|(first, _)| *first < keep_from) {
            self.decided = self.decided.split_off(&keep_from);
        }
    }

    /// What may be announced as decided when the replica has applied up to `applied`.
    #[must_use]
    pub fn commit(&self, applied: u64) -> Watermark {
        Watermark { ballot: self.ballot, slot: applied.min(self.decided_through) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeId;
    use crate::value::CommandId;
    use bytes::Bytes;

    fn command(seq: u64, low: u64) -> Command {
        let origin = Origin { node: NodeId(4), incarnation: 1 };
        Command { id: CommandId { origin, seq }, low, payload: Bytes::from_static(b"x") }
    }

    fn proposer() -> Proposer {
        Proposer::new(Ballot { view: 1, round: 1, leader: NodeId(1) }, 0, 1)
    }

    #[test]
    fn a_gap_is_asked_for_once_and_repeats_are_dropped() {
        let mut proposer = proposer();
        assert_eq!(proposer.enqueue(vec![command(1, 1)], 10), None);
        assert_eq!(proposer.enqueue(vec![command(3, 1)], 10), Some(2));
        assert_eq!(proposer.enqueue(vec![command(3, 1)], 10), None);
        assert_eq!(proposer.enqueue(vec![command(1, 1), command(2, 1), command(3, 1)], 10), None);
        assert_eq!(proposer.batch(10, 1_000).len(), 3);
    }

    #[test]
    fn a_full_queue_is_no_gap() {
        let mut proposer = proposer();
        assert_eq!(proposer.enqueue(vec![command(1, 1), command(2, 1)], 1), None);
        assert_eq!(proposer.batch(10, 1_000).len(), 1);
        assert_eq!(proposer.enqueue(vec![command(2, 1)], 1), None);
        assert_eq!(proposer.batch(10, 1_000).len(), 1);
    }

    #[test]
    fn a_late_copy_gets_the_low_that_let_it_pass() {
        let mut proposer = proposer();
        assert_eq!(proposer.enqueue(vec![command(71, 70)], 10), Some(70));
        // An old copy of 70, sent when 66 to 69 still mattered. The ledger has to be told that they do not.
        assert_eq!(proposer.enqueue(vec![command(70, 66)], 10), None);
        assert_eq!(proposer.batch(10, 1_000), vec![command(70, 70)]);
    }
}
