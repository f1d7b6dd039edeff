//! What a node's clocks say at an instant of true time.
//!
//! The monotonic clock never goes back while the machine is up and runs at a rate within the drift bound; the wall clock runs at the
//! same rate and may be stepped.

use consensus::{Now, Time};

/// True time at which every run's wall clocks start, in milliseconds since 1970.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// A node's two clocks. True time is in microseconds since the start of the run.
#[derive(Clone, Debug)]
pub struct Clock {
    /// True time and clock reading of the last change of rate.
    base_true: u64,
    base_at: u64,
    /// Parts per million that the clock runs fast.
    rate_ppm: i64,
    /// The wall clock's error in milliseconds at the base.
    wall_error_ms: i64,
    /// Wall milliseconds at the base, without the error.
    base_wall_us: u64,
}

impl Clock {
    /// A clock that shows `at` now.
    #[must_use]
    pub fn new(now: u64, at: u64, rate_ppm: i64, wall_error_ms: i64) -> Clock {
        Clock { base_true: now, base_at: at, rate_ppm, wall_error_ms, base_wall_us: now }
    }

    fn elapsed(&self, now: u64) -> u64 {
        let passed = i128::from(now.saturating_sub(self.base_true));
        let counted = passed + passed * i128::from(self.rate_ppm) / 1_000_000;
        u64::try_from(counted).unwrap_or(0)
    }

    /// What the clocks say at true time `now`.
    #[must_use]
    pub fn read(&self, now: u64) -> Now {
        let elapsed = self.elapsed(now);
        let wall = i128::from(EPOCH_MS)
            + i128::from(self.wall_error_ms)
            + i128::from((self.base_wall_us + elapsed) / 1_000);
        Now { at: Time(self.base_at + elapsed), wall_ms: u64::try_from(wall).unwrap_or(0) }
    }

    /// The first instant of true time, not before `now`, at which the monotonic clock shows `at` or more.
    #[must_use]
    pub fn when(&self, at: Time, now: u64) -> u64 {
        let Some(missing) = at.0.checked_sub(self.base_at) else { return now };
        let needed = i128::from(missing) * 1_000_000 / i128::from(1_000_000 + self.rate_ppm);
        let mut instant = (self.base_true + u64::try_from(needed).unwrap_or(u64::MAX / 4)).max(now);
        while self.read(instant).at < at {
            instant += 1;
        }
        instant
    }

    /// From now on the clock runs at another rate.
    pub fn change_rate(&mut self, now: u64, rate_ppm: i64) {
        let elapsed = self.elapsed(now);
        self.base_at += elapsed;
        self.base_wall_us += elapsed;
        self.base_true = now;
        self.rate_ppm = rate_ppm;
    }

    /// The machine was rebooted: the monotonic clock starts from another reading; the wall clock goes on.
    pub fn reboot(&mut self, now: u64, at: u64) {
        self.change_rate(now, self.rate_ppm);
        self.base_at = at;
    }

    /// Somebody sets the wall clock.
    pub fn step_wall(&mut self, by_ms: i64) {
        self.wall_error_ms += by_ms;
    }

    /// The wall clock is right again, up to `error_ms`, and stays so at the true rate.
    pub fn set_wall(&mut self, now: u64, error_ms: i64) {
        self.change_rate(now, self.rate_ppm);
        self.base_wall_us = now;
        self.wall_error_ms = error_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_never_goes_back_and_when_is_the_inverse_of_read() {
        let mut clock = Clock::new(0, 5_000, 20_000, -300);
        let before = clock.read(1_000_000);
        assert_eq!(before.at, Time(5_000 + 1_020_000));
        clock.change_rate(1_000_000, -20_000);
        assert_eq!(clock.read(1_000_000).at, before.at);
        let target = Time(before.at.0 + 777);
        let instant = clock.when(target, 0);
        assert!(clock.read(instant).at >= target);
        assert!(clock.read(instant - 1).at < target);
        clock.step_wall(3_600_000);
        assert_eq!(clock.read(1_000_000).wall_ms, before.wall_ms + 3_600_000);
        assert_eq!(clock.read(1_000_000).at, before.at);
    }
}
