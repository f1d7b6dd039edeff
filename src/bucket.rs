//! A token bucket: so many bytes a second, and a little at once after a pause.

use std::time::{Duration, Instant};

/// What a pause saves up, at most.
const SAVED: Duration = Duration::from_millis(50);

/// Lets bytes pass at a rate. It reads no clock.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Bytes a second; 0: no limit.
    rate: f64,
    /// What may pass now. Below 0: the last took more than there was, and the next waits for it.
    level: f64,
    /// When the level was right.
    at: Instant,
}

impl Bucket {
    /// A full one. `rate` is in bytes a second; 0: no limit.
    #[must_use]
    pub fn new(rate: u64, now: Instant) -> Bucket {
        let rate = rate as f64;
        Bucket { rate, level: rate * SAVED.as_secs_f64(), at: now }
    }

    /// How long until something may pass; nothing: now.
    pub fn wait(&mut self, now: Instant) -> Option<Duration> {
        if self.rate == 0.0 {
            return None;
        }
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * self.rate;
        self.level = (self.level + gained).min(self.rate * SAVED.as_secs_f64());
        self.at = self.at.max(now);
        // Rounded up: who waits for this long does not come too early.
        (self.level <= 0.0)
            .then(|| Duration::from_secs_f64(-self.level / self.rate) + Duration::from_micros(1))
    }

    /// So many bytes passed. More than there was room for: then the next waits longer.
    pub fn take(&mut self, bytes: usize) {
        self.level -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1 << 20;

    /// Takes pieces as fast as it is allowed to; how many in `time`.
    fn pieces_in(bucket: &mut Bucket, bytes: usize, mut now: Instant, time: Duration) -> usize {
        let (end, mut count) = (now + time, 0);
        while now < end {
            match bucket.wait(now) {
                None => {
                    bucket.take(bytes);
                    count += 1;
                }
                Some(wait) => now += wait,
            }
        }
        count
    }

    #[test]
    fn the_rate_is_kept_whatever_the_size_of_a_piece() {
        for (bytes, expected) in [(MEGABYTE, 640), (16 << 10, 640 * 64), (256 * MEGABYTE, 3)] {
            let start = Instant::now();
            let mut bucket = Bucket::new(64 * MEGABYTE as u64, start);
            let count = pieces_in(&mut bucket, bytes, start, Duration::from_secs(10));
            // And what a full bucket had at first, and the last piece.
            let more = (64 * MEGABYTE) / 20 / bytes + 1;
            assert!((expected..=expected + more).contains(&count), "{count} pieces of {bytes}");
        }
    }

    #[test]
    fn a_long_pause_saves_up_little() {
        let start = Instant::now();
        let mut bucket = Bucket::new(MEGABYTE as u64, start);
        let later = start + Duration::from_secs(3_600);
        let count = pieces_in(&mut bucket, 1_024, later, Duration::from_millis(1));
        assert!(count <= 1_024 / 20 + 2, "{count} KiB at once");
    }

    #[test]
    fn a_clock_that_stands_still_lets_nothing_pass_for_ever() {
        let start = Instant::now();
        let mut bucket = Bucket::new(MEGABYTE as u64, start);
        bucket.take(MEGABYTE);
        assert!(bucket.wait(start).is_some_and(|wait| wait > Duration::from_millis(900)));
        assert!(bucket.wait(start).is_some(), "asking changes nothing");
        assert_eq!(bucket.wait(start + Duration::from_secs(1)), None);
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut bucket = Bucket::new(0, Instant::now());
        bucket.take(usize::MAX);
        assert_eq!(bucket.wait(Instant::now()), None);
    }
}
