//! Seeded jitter for back-off. The only randomness of the roles; its seed comes from the host.

use std::time::Duration;

/// A small deterministic generator (splitmix64). Not for secrets.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// Starts from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A duration in `[0, max)`; zero when `max` is.
    pub fn below(&mut self, max: Duration) -> Duration {
        let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
        if micros == 0 { Duration::ZERO } else { Duration::from_micros(self.next() % micros) }
    }
}
