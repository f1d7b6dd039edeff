//! This node's own commands until they are executed: kept, sent to the master, sent again.
//!
//! Invariant Q1: commands leave in the order of their numbers, and a number leaves the queue only when it was executed or given up,
//! so the lowest one kept (`low`) is the lowest one that still matters.

use crate::types::NodeId;
use crate::value::{Command, CommandId, Origin};
use bytes::Bytes;
use std::collections::VecDeque;

/// Commands on their way.
#[derive(Clone, Debug)]
pub struct Requests {
    origin: Origin,
    /// The number of the first command kept.
    low: u64,
    pending: VecDeque<Pending>,
}

#[derive(Clone, Debug)]
struct Pending {
    payload: Bytes,
    was_sent: bool,
    given_up: bool,
}

impl Requests {
    /// Nothing was asked yet in this life.
    #[must_use]
    pub fn new(node: NodeId, incarnation: u64) -> Requests {
        Requests { origin: Origin { node, incarnation }, low: 1, pending: VecDeque::new() }
    }

    /// Whose commands these are.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// The number after the last one.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.low + self.pending.len() as u64
    }

    /// Keeps a new command, numbered [`next`](Requests::next).
    pub fn push(&mut self, payload: Bytes) {
        self.pending.push_back(Pending { payload, was_sent: false, given_up: false });
    }

    /// Nobody waits for this one any more. `Some(true)`: it was never sent, so it certainly never runs.
    pub fn give_up(&mut self, seq: u64) -> Option<bool> {
        let index = usize::try_from(seq.checked_sub(self.low)?).ok()?;
        let pending = self.pending.get_mut(index)?;
        // It keeps its number, so that later ones stay in order, but does nothing if it is sent from now on.
        pending.payload = Bytes::new();
        pending.given_up = true;
        let certain = !pending.was_sent;
        while self.pending.front().is_some_and(|first| first.given_up) {
            self.pending.pop_front();
            self.low += 1;
        }
        Some(certain)
    }

    /// The first command that was never sent.
    #[must_use]
    pub fn first_unsent(&self) -> Option<u64> {
        // Commands are sent in order: the unsent ones are at the end.
        let unsent = self.pending.iter().rev().take_while(|pending| !pending.was_sent).count();
        (unsent > 0).then(|| self.next() - unsent as u64)
    }

    /// Commands below `seq` were executed.
    pub fn executed_below(&mut self, seq: u64) {
        while self.low < seq && self.pending.pop_front().is_some() {
            self.low += 1;
        }
    }

    /// The commands from `seq` on, in groups of about `bytes_max`; they count as sent.
    pub fn take(&mut self, seq: u64, bytes_max: usize, groups_max: usize) -> Vec<Vec<Command>> {
        let (origin, low) = (self.origin, self.low);
        let skip = usize::try_from(seq.saturating_sub(low)).unwrap_or(usize::MAX);
        let mut groups: Vec<Vec<Command>> = Vec::new();
        let mut bytes = usize::MAX;
        for (index, pending) in self.pending.iter_mut().enumerate().skip(skip) {
            if bytes > bytes_max {
                if groups.len() == groups_max {
                    break;
                }
                groups.push(Vec::new());
                bytes = 0;
            }
            bytes += pending.payload.len() + 48;
            pending.was_sent = true;
            let id = CommandId { origin, seq: low + index as u64 };
            if let Some(group) = groups.last_mut() {
                group.push(Command { id, low, payload: pending.payload.clone() });
            }
        }
        groups
    }
}
