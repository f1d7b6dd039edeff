//! What an acceptor has seen of cluster time, which it reports in phase 1 so that the next master's clock goes on from there.
//!
//! Each master's clock is a line of its own, so only the newest master's counts; what is remembered never goes back to an older master
//! or a lower stamp (for E2).

use crate::message::ClockReport;
use crate::types::{Ballot, Now, Time};

/// The newest master's last stamp and when it was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StampSeen {
    master: Ballot,
    stamp_ms: u64,
    since: Since,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    /// In this life: the monotonic clock then.
    Monotonic(Time),
    /// In an earlier life: the wall clock then.
    Wall(u64),
}

impl Default for Since {
    fn default() -> Self {
        Since::Wall(0)
    }
}

impl StampSeen {
    /// A stamp that the journal tells of, with the wall clock of that time.
    pub(super) fn in_an_earlier_life((master, stamp_ms, wall_ms): (Ballot, u64, u64)) -> StampSeen {
        StampSeen { master, stamp_ms, since: Since::Wall(wall_ms) }
    }

    pub(super) fn see(&mut self, master: Ballot, stamp_ms: u64, now: Now) {
        // A master without a time says nothing about any line.
        if stamp_ms > 0 && (master, stamp_ms) > (self.master, self.stamp_ms) {
            *self = StampSeen { master, stamp_ms, since: Since::Monotonic(now.at) };
        }
    }

    pub(super) fn report(&self, now: Now) -> ClockReport {
        if self.stamp_ms == 0 {
            return ClockReport::default();
        }
        let (passed_ms, is_monotonic) = match self.since {
            Since::Monotonic(then) => (u64::try_from(now.at.since(then).as_millis()).unwrap_or(0), true),
            Since::Wall(then_ms) => (now.wall_ms.saturating_sub(then_ms), false),
        };
        let estimate_ms = self.stamp_ms.saturating_add(passed_ms);
        ClockReport { master: self.master, stamp_ms: self.stamp_ms, estimate_ms, is_monotonic }
    }
}
