//! E2: cluster time never goes back. E3: it never runs faster than true time, but for drift and pull, so no time to live is cut short.

use super::Verdict;
use consensus::{Ballot, Config, Value};
use std::collections::BTreeMap;

/// Rounding to milliseconds, on both sides.
const ROUNDING_US: u64 = 4_000;
/// How long an acceptor that a new master asks for the time may have heard nothing.
const UNHEARD_US: u64 = 2_000_000;
const MILLION: i128 = 1_000_000;

/// How much cluster time may gain at once. A slow master's line is continued by acceptors whose clocks may run fast: since they last heard of
/// it, the two may have parted by twice the drift, and by the pull.
#[must_use]
pub fn slack_us(config: &Config) -> u64 {
    ROUNDING_US + UNHEARD_US * 2 * (config.drift_ppm + config.pull_ppm) / 1_000_000
}

/// The stamps of applied slots, against true time.
#[derive(Debug)]
pub struct ClusterTime {
    /// How fast it may run, times 10^12.
    rate: i128,
    slack_us: u64,
    check_rate: bool,
    made: BTreeMap<(u64, Ballot), u64>,
    /// The lowest lead of cluster time over true time so far, and its slot.
    lowest: Option<(i128, u64)>,
    /// Cluster time after the last slot: stamps below it change nothing.
    cluster_ms: u64,
    /// When the newest value so far was made.
    latest: u64,
}

impl ClusterTime {
    /// `check_rate`: the run's wall clocks allow E3.
    #[must_use]
    pub fn new(config: &Config, check_rate: bool) -> ClusterTime {
        let rate = (MILLION + i128::from(config.drift_ppm)) * (MILLION + i128::from(config.pull_ppm));
        ClusterTime {
            rate,
            slack_us: slack_us(config),
            check_rate,
            made: BTreeMap::new(),
            lowest: None,
            cluster_ms: 0,
            latest: 0,
        }
    }

    /// The leader of `ballot` makes a value for `slot`.
    pub fn made(&mut self, slot: u64, ballot: Ballot, now: u64) {
        if self.check_rate {
            self.made.entry((slot, ballot)).or_insert(now);
        }
    }

    /// The value is the first that anybody applied in `slot`; the machine then stood at `cluster_ms`. A value that `begins` nothing (a
    /// no-op, commands that did not run) measures nothing.
    pub fn applied(
        &mut self,
        slot: u64,
        value: &Value,
        begins: bool,
        cluster_ms: u64,
        verdict: &mut Verdict,
    ) {
        if !self.check_rate || value.stamp_ms == 0 || !begins {
            return;
        }
        let Some(made) = self.made.get(&(slot, value.made_in)).copied() else { return };
        let lead = |stamp_ms: u64, at: u64| {
            i128::from(stamp_ms) * 1_000 * MILLION * MILLION - i128::from(at) * self.rate
        };
        self.latest = self.latest.max(made);
        if value.stamp_ms >= cluster_ms && cluster_ms > self.cluster_ms {
            self.cluster_ms = cluster_ms;
            if let Some((lowest, since)) = self.lowest {
                let fast = (lead(value.stamp_ms, self.latest) - lowest) / (MILLION * MILLION);
                verdict.check(fast <= i128::from(self.slack_us), || {
                    format!("E3: cluster time gained {fast} µs on true time between slots {since} and {slot}")
                });
            }
        }
        // Whatever this slot begins to count, it counts from the time that it found.
        let found = lead(cluster_ms, made);
        if self.lowest.is_none_or(|(lowest, _)| found < lowest) {
            self.lowest = Some((found, slot));
        }
    }

    /// When a slot's value was made, if that is known.
    #[must_use]
    pub fn made_at(&self, slot: u64, value: &Value) -> Option<u64> {
        self.made.get(&(slot, value.made_in)).copied()
    }

    /// A node's cluster time around one slot.
    pub fn stepped(&self, node: consensus::NodeId, before: u64, after: u64, verdict: &mut Verdict) {
        verdict.check(after >= before, || format!("E2: {node}'s cluster time went from {before} to {after}"));
    }

    /// Forgets when earlier slots were made.
    pub fn forget_below(&mut self, slot: u64) {
        self.made = self.made.split_off(&(slot, Ballot::ZERO));
    }
}
