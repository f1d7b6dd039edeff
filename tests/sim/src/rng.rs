//! The only source of chance in a run: xoshiro256++, seeded through splitmix64.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Starts from `seed`. Equal seeds give equal sequences.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng([split(&mut state), split(&mut state), split(&mut state), split(&mut state)])
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `[low, high]`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low { low } else { low + self.bits() % (high - low + 1) }
    }

    /// A number in `[low, high]`, small ones likelier: the logarithm is spread evenly.
    pub fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let top = self.between(low, high);
        let middle = self.between(low, top);
        self.between(low, middle)
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u64) -> bool {
        per_million > 0 && self.bits() % 1_000_000 < per_million
    }

    /// True or false, equally likely.
    pub fn coin(&mut self) -> bool {
        self.bits() & 1 == 1
    }

    /// One of `items`, if there are any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        let index = usize::try_from(self.bits() % items.len() as u64).unwrap_or(0);
        items.get(index)
    }

    /// A number that is true for a random half of the bits.
    pub fn mask(&mut self) -> u64 {
        self.bits()
    }
}

fn split(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_within_the_bounds() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..1_000 {
            let n = a.between(3, 9);
            assert_eq!(n, b.between(3, 9));
            assert!((3..=9).contains(&n));
        }
        assert!(!a.chance(0));
        assert!(a.chance(1_000_000));
        assert_eq!(a.pick::<u8>(&[]), None);
    }
}
