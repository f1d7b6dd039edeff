//! Reads see everything that was acknowledged before they began; stale reads everything that was acknowledged before the age they admit.
//!
//! A check by slots: stronger and earlier than the history's, which is checked at the end.

use super::Verdict;
use consensus::NodeId;

/// What was acknowledged, by true time.
#[derive(Debug, Default)]
pub struct Freshness {
    /// Rising in both.
    acknowledged: Vec<(u64, u64)>,
}

impl Freshness {
    /// A write that ran in `slot` was acknowledged.
    pub fn acknowledged(&mut self, now: u64, slot: u64) {
        if slot > self.floor() {
            self.acknowledged.push((now, slot));
        }
    }

    /// Everything up to here is acknowledged or lies before something that is.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.acknowledged.last().map_or(0, |(_, slot)| *slot)
    }

    /// A linearizable read is answered; `floor` was taken when it was asked.
    pub fn read(&self, node: NodeId, how: &str, floor: u64, applied: u64, verdict: &mut Verdict) {
        verdict.check(applied >= floor, || {
            format!("linearizability: a {how} read on {node} sees slot {applied}, but {floor} was acknowledged before")
        });
    }

    /// A stale read is answered that may miss what was acknowledged after `since`.
    pub fn stale(&self, node: NodeId, since: u64, applied: u64, verdict: &mut Verdict) {
        let known = self.acknowledged.partition_point(|(at, _)| *at < since);
        let floor = known.checked_sub(1).and_then(|last| self.acknowledged.get(last)).map_or(0, |a| a.1);
        verdict.check(applied >= floor, || {
            format!("staleness: a local read on {node} sees slot {applied}, but {floor} was acknowledged longer ago than it admits")
        });
    }
}
