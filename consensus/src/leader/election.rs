//! When to try to lead: back-off, and the probe that comes before a scout.
//!
//! A node probes first: only when a quorum says that it would promise does it raise its ballot. So a node that was cut off, or that cannot hear
//! a majority, disturbs nobody, also when it comes back.

use crate::config::Config;
use crate::random::Jitter;
use crate::types::{Ballot, NodeId, Time};
use crate::view::ViewState;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// When the next attempt is due.
#[derive(Clone, Debug)]
pub struct Backoff {
    jitter: Jitter,
    max_now: Duration,
    due: Time,
}

impl Backoff {
    /// The first attempt is due after `quiet` and a random time.
    #[must_use]
    pub fn new(config: &Config, seed: u64, now: Time, quiet: Duration) -> Backoff {
        let mut backoff = Backoff { jitter: Jitter::new(seed), max_now: config.backoff_min, due: now };
        backoff.wait(now, quiet);
        backoff
    }

    /// When the next attempt is due.
    #[must_use]
    pub fn due(&self) -> Time {
        self.due
    }

    /// The next attempt comes a random time after `quiet` has passed.
    pub fn wait(&mut self, now: Time, quiet: Duration) {
        self.due = now.plus(quiet).plus(self.jitter.below(self.max_now));
    }

    /// The next attempt comes a random time after `at`.
    pub fn wait_until(&mut self, at: Time) {
        self.due = at.plus(self.jitter.below(self.max_now));
    }

    /// The next attempt comes at once.
    pub fn hurry(&mut self, now: Time) {
        self.due = now;
    }

    /// An attempt failed: back off further.
    pub fn grow(&mut self, config: &Config) {
        self.max_now = (self.max_now * 2).min(config.backoff_max);
    }

    /// There was progress: back to the shortest back-off.
    pub fn reset(&mut self, config: &Config) {
        self.max_now = config.backoff_min;
    }
}

/// Asking around before raising the ballot.
#[derive(Clone, Debug)]
pub struct Probing {
    /// The ballot that a scout would use.
    pub ballot: Ballot,
    /// When to give up.
    pub until: Time,
    willing: BTreeSet<NodeId>,
    bound: BTreeMap<NodeId, Duration>,
}

/// What the answers so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not enough answers.
    Open,
    /// A quorum would promise.
    Willing,
    /// A quorum cannot be had before this has passed.
    Bound(Duration),
}

impl Probing {
    /// Nobody has answered yet.
    #[must_use]
    pub fn new(ballot: Ballot, until: Time) -> Probing {
        Probing { ballot, until, willing: BTreeSet::new(), bound: BTreeMap::new() }
    }

    /// An acceptor answered.
    pub fn answer(&mut self, from: NodeId, wait: Duration, view: &ViewState) -> Verdict {
        if wait.is_zero() {
            self.bound.remove(&from);
            self.willing.insert(from);
        } else {
            self.willing.remove(&from);
            self.bound.insert(from, wait);
        }
        if view.is_phase1_quorum(&self.willing) {
            return Verdict::Willing;
        }
        let mut possible = view.phase1_voters();
        possible.retain(|voter| !self.bound.contains_key(voter));
        if view.is_phase1_quorum(&possible) {
            return Verdict::Open;
        }
        Verdict::Bound(self.bound.values().max().copied().unwrap_or_default())
    }
}
