//! Linearizable reads on a node that is not the master: by read index, one request for all readers that wait.
//!
//! Invariant I1: a reader joins only a request that was not yet sent, so the master's answer was made after the reader came.

use crate::config::Config;
use crate::planted::Bug;
use std::collections::BTreeMap;

/// Readers that wait.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// For the next request.
    waiting: Vec<u64>,
    /// For the request under way.
    asked: Vec<u64>,
    seq: u64,
    /// For the machine to reach a slot.
    until_applied: BTreeMap<u64, Vec<u64>>,
}

impl Reads {
    /// A reader came.
    pub fn push(&mut self, read: u64, config: &Config) {
        if config.has_bug(Bug::JoinSentReadIndex) && !self.asked.is_empty() {
            self.asked.push(read);
        } else {
            self.waiting.push(read);
        }
    }

    /// The number of a new request for everybody that waits, if one is due.
    pub fn ask(&mut self) -> Option<u64> {
        if !self.asked.is_empty() || self.waiting.is_empty() {
            return None;
        }
        self.asked = std::mem::take(&mut self.waiting);
        self.seq += 1;
        Some(self.seq)
    }

    /// The number of the request under way.
    #[must_use]
    pub fn under_way(&self) -> Option<u64> {
        (!self.asked.is_empty()).then_some(self.seq)
    }

    /// The master answered: the readers of that request wait for `slot`.
    pub fn answered(&mut self, seq: u64, slot: u64) {
        if seq == self.seq && !self.asked.is_empty() {
            let readers = std::mem::take(&mut self.asked);
            self.until_applied.entry(slot).or_default().extend(readers);
        }
    }

    /// Readers that may be answered now that the machine stands at `applied`.
    pub fn ready(&mut self, applied: u64) -> Vec<u64> {
        if self.until_applied.first_key_value().is_none_or(|(slot, _)| *slot > applied) {
            return Vec::new();
        }
        let later = self.until_applied.split_off(&(applied + 1));
        std::mem::replace(&mut self.until_applied, later).into_values().flatten().collect()
    }
}
