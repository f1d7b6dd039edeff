//! When a snapshot is due.
//!
//! One is never begun while another is being written, nor soon after the disk refused one; and otherwise as soon as the journal is out of
//! proportion to the data.

#[cfg(test)]
mod tests;

use super::Snapshots;
use std::time::{Duration, Instant};
use tracing::warn;

/// A snapshot is taken when the journal has so many times the bytes of the last one: what a node keeps in memory to help others, and replays at a start, is then in
/// proportion to its data.
const JOURNAL_PER_SNAPSHOT: u64 = 4;
/// But not below this, however little data there is,
const JOURNAL_BYTES_LEAST: u64 = 64 << 20;
/// not so soon after the last one, because a node that writes much would do little else,
const QUIET: Duration = Duration::from_secs(10);
/// and always above this.
const JOURNAL_BYTES_MOST: u64 = 256 << 20;
/// The same, while a peer copies an earlier one: it wants to go on behind that with the log when it has it, and the file must stay until then.
const JOURNAL_BYTES_COPYING: u64 = 512 << 20;
/// A peer that wanted a piece so lately is still copying.
const COPYING: Duration = Duration::from_secs(10);
/// A disk that refused a snapshot is left alone for a while.
const RETRY_AFTER: Duration = Duration::from_secs(10);

impl Snapshots {
    /// Whether one should be taken now.
    #[must_use]
    pub fn is_due(&self, journal_bytes: u64) -> bool {
        journal_bytes > JOURNAL_BYTES_LEAST && self.is_due_at(journal_bytes, Instant::now())
    }

    fn is_due_at(&self, journal_bytes: u64, now: Instant) -> bool {
        if self.is_writing {
            return false;
        }
        let is_within = |time: Duration, at: Option<Instant>| at.is_some_and(|at| now < at + time);
        let proportional = self.newest_bytes.saturating_mul(JOURNAL_PER_SNAPSHOT);
        let most = if is_within(COPYING, self.asked_at.get()) {
            JOURNAL_BYTES_COPYING
        } else if is_within(QUIET, self.finished_at) {
            JOURNAL_BYTES_MOST
        } else {
            proportional.clamp(JOURNAL_BYTES_LEAST, JOURNAL_BYTES_MOST)
        };
        journal_bytes > most && self.may_try_at(now)
    }

    /// Not so soon after a failure.
    #[must_use]
    pub fn may_try(&self) -> bool {
        self.may_try_at(Instant::now())
    }

    fn may_try_at(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| at <= now)
    }

    /// One cannot be written now: it is not tried again for a while.
    pub fn put_off(&mut self, why: &str) {
        warn!(error = why, "a snapshot could not be written; it is tried again soon");
        self.retry_at = Some(Instant::now() + RETRY_AFTER);
    }
}
