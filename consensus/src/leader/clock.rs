//! Cluster time as the master stamps it.
//!
//! Each master's clock is a line of its own: it starts where the line of the master before it stands, as far as a quorum knows, advances with
//! the monotonic clock, and is pulled toward the wall clock slowly. Because a new line never starts ahead of the newest one before
//! it, neither a step of a wall clock nor a change of master makes anything expire early (E3). That time never goes back (E2) is the
//! ledger's: it takes the highest stamp so far.
//!
//! A cluster's first line starts at a wall clock, and two masters that do not know of each other would start at two. So a master that knows of no
//! line has no time (its stamps are 0) until its start entry is applied and the ledger still stands at 0: then no command has run
//! before, and none of another line can run after.

use crate::message::ClockReport;
use crate::types::{Now, Time};

/// A running cluster clock.
#[derive(Clone, Debug, Default)]
pub struct ClusterClock {
    /// 0: no time yet.
    base_us: u64,
    base_at: Time,
}

impl ClusterClock {
    /// A new master takes over from the newest line that the quorum knows.
    ///
    /// Acceptors that have been running since they saw it know how much has passed. If all of them restarted, wall clocks have to tell, provided that
    /// those that saw it are a majority of the quorum. In both cases the least that anybody who saw it says counts, so that one wall clock that
    /// jumped ahead, or one fast clock, changes nothing. Otherwise time stood still while nobody led: what expires then expires late, never early.
    pub fn adopt(&mut self, reports: &[ClockReport], now: Now) {
        let newest = reports.iter().map(|report| (report.master, report.stamp_ms)).max().unwrap_or_default();
        let saw_newest: Vec<&ClockReport> =
            reports.iter().filter(|report| report.master == newest.0).collect();
        let is_known =
            saw_newest.iter().any(|report| report.is_monotonic) || saw_newest.len() * 2 > reports.len();
        let least_ms = saw_newest.iter().map(|report| report.estimate_ms).min().filter(|_| is_known);
        let start_ms = match newest {
            (_, 0) => 0,
            (_, stamp_ms) => least_ms.map_or(stamp_ms, |estimate_ms| estimate_ms.max(stamp_ms)),
        };
        *self = ClusterClock { base_us: start_ms.saturating_mul(1000), base_at: now.at };
    }

    /// Whether there is a time.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.base_us > 0
    }

    /// Nothing has run in this cluster yet: its time begins at this wall clock.
    pub fn begin(&mut self, now: Now) {
        *self = ClusterClock { base_us: now.wall_ms.max(1).saturating_mul(1000), base_at: now.at };
    }

    /// The ledger stands at this time: the line is at least there.
    pub fn see(&mut self, cluster_ms: u64, now: Now) {
        let passed_us = if self.is_set() { now.at.0.saturating_sub(self.base_at.0) } else { 0 };
        if cluster_ms.saturating_mul(1000) > self.base_us.saturating_add(passed_us) {
            *self = ClusterClock { base_us: cluster_ms.saturating_mul(1000), base_at: now.at };
        }
    }

    /// Believes the wall clock: only for showing that the tests notice.
    pub fn trust_wall(&mut self, now: Now) {
        *self = ClusterClock { base_us: now.wall_ms.saturating_mul(1000), base_at: now.at };
    }

    /// Cluster time now, in milliseconds; 0 while there is none.
    pub fn stamp(&mut self, now: Now, pull_ppm: u64) -> u64 {
        if !self.is_set() {
            return 0;
        }
        let passed_us = now.at.0.saturating_sub(self.base_at.0);
        let straight_us = self.base_us.saturating_add(passed_us);
        let wall_us = now.wall_ms.saturating_mul(1000);
        let pull_us = passed_us.saturating_mul(pull_ppm) / 1_000_000;
        let pulled_us =
            wall_us.clamp(straight_us.saturating_sub(pull_us), straight_us.saturating_add(pull_us));
        if pull_us > 0 {
            // Settled as soon as it is a microsecond: a wall clock that jumps from one side to the other must not turn the pull of a
            // long time around at once.
            *self = ClusterClock { base_us: pulled_us, base_at: now.at };
        }
        pulled_us / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Ballot, NodeId};

    fn report(round: u64, stamp_ms: u64, estimate_ms: u64, is_monotonic: bool) -> ClockReport {
        let master = Ballot { view: 1, round, leader: NodeId(1) };
        ClockReport { master, stamp_ms, estimate_ms, is_monotonic }
    }

    fn adopted(reports: &[ClockReport]) -> u64 {
        let mut clock = ClusterClock::default();
        let now = Now { at: Time(5_000_000), wall_ms: 77 };
        clock.adopt(reports, now);
        clock.stamp(now, 500)
    }

    #[test]
    fn time_begins_at_the_wall_clock_but_not_before_it_may() {
        assert_eq!(adopted(&[ClockReport::default(), ClockReport::default()]), 0);
        let mut clock = ClusterClock::default();
        let now = Now { at: Time(5_000_000), wall_ms: 77 };
        clock.see(0, now);
        assert!(!clock.is_set());
        clock.begin(now);
        assert_eq!(clock.stamp(now, 500), 77);
    }

    #[test]
    fn the_newest_masters_clock_counts_even_if_an_older_one_is_ahead() {
        assert_eq!(adopted(&[report(1, 900, 2_000, true), report(2, 800, 1_500, true)]), 1_500);
    }

    #[test]
    fn a_wall_clock_that_jumped_ahead_changes_nothing() {
        assert_eq!(adopted(&[report(1, 900, 3_600_900, false), report(1, 900, 1_200, false)]), 1_200);
        // A lone witness is not believed: time stood still.
        assert_eq!(adopted(&[report(2, 900, 3_600_900, false), report(1, 700, 1_200, false)]), 900);
    }

    #[test]
    fn a_wall_clock_that_turns_around_does_not_turn_the_pull_around_at_once() {
        let mut clock = ClusterClock::default();
        clock.see(1_000_000, Now { at: Time(0), wall_ms: 0 });
        let mut last = 0;
        for ms in 1..=900 {
            last = clock.stamp(Now { at: Time(ms * 1_000), wall_ms: 0 }, 10_000);
        }
        let next = clock.stamp(Now { at: Time(901_000), wall_ms: u64::MAX / 2_000 }, 10_000);
        assert!(next <= last + 2, "jumped from {last} to {next}");
    }
}
