//! Seeded chance: the same seed throws the same dice for ever.

use std::time::Duration;
use warlock_consensus::{NodeId, Time};

pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// Mostly plausible, sometimes from the end of the range.
    pub(super) fn number(&mut self, bold: bool) -> u64 {
        if bold && self.below(4) == 0 {
            let ends =
                [u64::MAX, u64::MAX - 1, u64::MAX / 2, u64::MAX / 1000, 1 << 57, 1 << 56, 1 << 55, 1 << 40];
            return self.pick(&ends);
        }
        match self.below(4) {
            0 => self.below(4),
            1 => self.below(40),
            2 => self.below(2_000),
            _ => self.below(1_000_000),
        }
    }

    pub(super) fn duration(&mut self, bold: bool) -> Duration {
        if bold && self.below(6) == 0 {
            return self.pick(&[Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)]);
        }
        Duration::from_micros(self.number(false))
    }

    pub(super) fn time(&mut self, bold: bool) -> Time {
        Time(self.number(bold))
    }

    pub(super) fn node(&mut self, bold: bool) -> NodeId {
        NodeId(if self.below(8) == 0 { self.number(bold) } else { 1 + self.below(4) })
    }
}
