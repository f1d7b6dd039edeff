//! Every limit and interval of the engine, in one place.

use crate::planted::Bug;
use std::time::Duration;

/// The highest `accept_ahead_max` that any node may have. The same in every release: a leader takes a report that goes further for nonsense.
pub const ACCEPT_AHEAD_LIMIT: u64 = 65_536;

/// How a node's roles behave. The length of the master lease is not here: it is part of the view, so that all members agree on it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Heartbeats per lease. Several may be lost before the lease is.
    pub heartbeats_per_lease: u32,
    /// After this long without an answer a P1a or P2a is sent again; doubles up to eight times.
    pub resend: Duration,
    /// The first back-off before a scout: a random time below this. Doubles with each failure, up to `backoff_max`.
    pub backoff_min: Duration,
    /// The longest back-off.
    pub backoff_max: Duration,
    /// Slots that may be proposed ahead of the last one that this master's replica applied.
    pub window: u64,
    /// Commands in one slot, at most.
    pub batch_commands_max: usize,
    /// Bytes in one slot, at most (a single larger command still gets a slot of its own).
    pub batch_bytes_max: usize,
    /// Commands that wait at the leader for a slot, at most; more are dropped and come again from their origin.
    pub queue_max: usize,
    /// Own commands that a replica keeps until they are executed, at most.
    pub pending_max: usize,
    /// How far above its node's durable decisions an acceptor accepts. Bounds P1b and the journal.
    pub accept_ahead_max: u64,
    /// Decided values that a replica keeps below its snapshot, for peers that lag a little.
    pub log_keep: u64,
    /// The same in bytes: whichever is less.
    pub log_keep_bytes: usize,
    /// Bytes in one answer to a `Fetch`, or in one page of a P1b, at most.
    pub page_bytes_max: usize,
    /// Slots after which a replica writes its decided watermark down; also after `durable_after`.
    pub durable_every: u64,
    /// The longest time a decided watermark stays unwritten.
    pub durable_after: Duration,
    /// A request, a fetch or a read index without an answer is sent again after this.
    pub retry: Duration,
    /// A peer that went silent in the middle of a snapshot is waited for as long as its pieces took to come, and not longer than this.
    pub source_silent_max: Duration,
    /// A member not heard for this long is moved to `down`, when that makes the majority smaller.
    pub down_after: Duration,
    /// A follower is in step when it lags by at most this many slots.
    pub in_step: u64,
    /// A leader that cannot catch up to the watermark it saw scouts again after this.
    pub catch_up_max: Duration,
    /// Clocks run at 1 ± this many parts per million (ρ).
    pub drift_ppm: u64,
    /// Cluster time is pulled toward the wall clock at most at this rate, in parts per million (σ).
    pub pull_ppm: u64,
    /// The safety rule that is broken on purpose, if any.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<Bug>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            heartbeats_per_lease: 5,
            resend: Duration::from_millis(100),
            backoff_min: Duration::from_millis(60),
            backoff_max: Duration::from_millis(2_000),
            window: 64,
            batch_commands_max: 4_096,
            batch_bytes_max: 1 << 20,
            queue_max: 262_144,
            pending_max: 262_144,
            accept_ahead_max: 1_024,
            log_keep: 4_096,
            log_keep_bytes: 64 << 20,
            page_bytes_max: 1 << 20,
            durable_every: 64,
            durable_after: Duration::from_millis(200),
            retry: Duration::from_millis(300),
            source_silent_max: Duration::from_secs(60),
            down_after: Duration::from_secs(30),
            in_step: 256,
            catch_up_max: Duration::from_secs(3),
            drift_ppm: 2_000,
            pull_ppm: 500,
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }
}

impl Config {
    /// Checks the relations between the settings.
    ///
    /// # Errors
    /// A sentence that names the setting and what it must be.
    pub fn validate(&self) -> Result<(), String> {
        let checks = [
            (self.heartbeats_per_lease >= 2, "heartbeats_per_lease must be at least 2"),
            (self.window >= 1, "window must be at least 1"),
            (self.batch_commands_max >= 1, "batch_commands_max must be at least 1"),
            (self.durable_every >= 1, "durable_every must be at least 1"),
            (
                self.accept_ahead_max >= self.window + self.durable_every,
                "accept_ahead_max must be at least window + durable_every, or acceptors stall",
            ),
            (self.accept_ahead_max <= ACCEPT_AHEAD_LIMIT, "accept_ahead_max must be at most 65536"),
            (self.drift_ppm < 100_000, "drift_ppm must be below 100000"),
            (self.pull_ppm < 100_000, "pull_ppm must be below 100000"),
            (self.backoff_min <= self.backoff_max, "backoff_min must not exceed backoff_max"),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            Some((_, what)) => Err((*what).to_string()),
            None => Ok(()),
        }
    }

    /// How long a master counts on a lease of length `lease`: `L·(1−ρ)/(1+ρ)`, so that it stops before any acceptor whose clock
    /// is within the drift bound lets go.
    #[must_use]
    pub fn lease_counted(&self, lease: Duration) -> Duration {
        if self.has_bug(Bug::LeaseIgnoresDrift) {
            return lease;
        }
        let micros = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX / 2_000_000);
        Duration::from_micros(
            micros.saturating_mul(1_000_000 - self.drift_ppm) / (1_000_000 + self.drift_ppm),
        )
    }

    /// Whether `bug` is planted in this run. The constant `false` without the feature `planted-bugs`.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn has_bug(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether `bug` is planted in this run. The constant `false` without the feature `planted-bugs`.
    #[cfg(not(feature = "planted-bugs"))]
    #[must_use]
    pub const fn has_bug(&self, _bug: Bug) -> bool {
        false
    }
}
