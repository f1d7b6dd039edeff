//! A4, after a restart: an acceptor does not remember whom it granted a lease, so it promises to nobody but the leader of its last promise until its longest
//! lease has run out. Checked on what it says: a promise that is said too early may cost nothing in this run, and a lock in another.

use super::Verdict;
use consensus::{Ballot, Config, Durable, NodeId};
use std::collections::BTreeMap;

/// Whom each restarted acceptor has to wait for, and until when, in true time.
#[derive(Debug, Default)]
pub struct Silence {
    bound: BTreeMap<NodeId, (Ballot, u64)>,
    /// What each master gave up; the word of it may be on its way for long.
    released: BTreeMap<NodeId, Ballot>,
}

impl Silence {
    /// `node` starts with what its disk holds.
    pub fn booted(&mut self, node: NodeId, durable: &Durable, config: &Config, now: u64) {
        let lease_us = u64::try_from(durable.lease_max.as_micros()).unwrap_or(u64::MAX);
        // Its clock may be fast: then it is free a little earlier.
        let fast_us =
            lease_us / 1_000_000 * config.drift_ppm + lease_us % 1_000_000 * config.drift_ppm / 1_000_000;
        let until = now + lease_us.saturating_sub(2 * fast_us + 1);
        self.bound.insert(node, (durable.promise, until));
    }

    /// A master gave its lease up and said so.
    pub fn released(&mut self, ballot: Ballot) {
        let known = self.released.entry(ballot.leader).or_insert(ballot);
        *known = ballot.max(*known);
    }

    /// `node` says that it grants a lease in `ballot`: a majority was free for that one, so whom it waited for is master no more.
    pub fn granted(&mut self, node: NodeId, ballot: Ballot) {
        if self.bound.get(&node).is_some_and(|(promise, _)| ballot > *promise) {
            self.bound.remove(&node);
        }
    }

    /// `node` says that it promised `ballot`.
    pub fn promised(&mut self, node: NodeId, ballot: Ballot, now: u64, verdict: &mut Verdict) {
        let Some((promise, until)) = self.bound.get(&node) else { return };
        let is_released = self.released.get(&promise.leader).is_some_and(|released| released >= promise);
        let is_free = now >= *until || is_released || ballot.leader == promise.leader;
        verdict.check(is_free, || {
            format!(
                "A4: {node}, restarted and bound by {promise}, promises {ballot} {} µs early",
                until - now
            )
        });
    }
}
