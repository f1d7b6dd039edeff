//! Numbers of variable length: seven bits a byte, the lowest first, the top bit says that more follows.

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How many bytes a number takes.
pub(crate) const fn length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// The most bytes a number takes.
pub(crate) const BYTES_MAX: usize = 10;

/// Writes a number at the start of `out`; gives the number of bytes.
pub(crate) fn write(out: &mut [u8; BYTES_MAX], number: u64) -> usize {
    write_at(out, 0, number)
}

/// Writes a number into `out` from `at` on; gives where it ends. There must be room for [`BYTES_MAX`].
#[inline]
pub(crate) fn write_at(out: &mut [u8], mut at: usize, mut number: u64) -> usize {
    while number >= 0x80 {
        out[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    out[at] = number as u8;
    at + 1
}

/// Takes a number off the front. Nothing if it does not end, is too large, or is longer than it need be.
#[inline]
pub(crate) fn take(rest: &mut &[u8]) -> Option<u64> {
    // Most are lengths, and short.
    if let [byte @ ..0x80, after @ ..] = *rest {
        *rest = after;
        return Some(u64::from(*byte));
    }
    let mut number = 0_u64;
    for (i, byte) in rest.iter().take(BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7F);
        if i == BYTES_MAX - 1 && bits > 1 {
            return None;
        }
        number |= bits << (7 * i);
        if byte & 0x80 == 0 {
            if bits == 0 && i > 0 {
                return None;
            }
            *rest = &rest[i + 1..];
            return Some(number);
        }
    }
    None
}

/// Small numbers of either sign as small numbers without.
pub(crate) const fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// The reverse of [`zigzag`].
pub(crate) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn survives(number in any::<u64>(), shift in 0..64) {
            let number = number >> shift;
            let mut out = Vec::new();
            put(&mut out, number);
            let mut fixed = [0; BYTES_MAX];
            prop_assert_eq!(write(&mut fixed, number), out.len());
            prop_assert_eq!(&fixed[..out.len()], &out[..]);
            let mut wide = [0; 3 + BYTES_MAX];
            prop_assert_eq!(write_at(&mut wide, 3, number), 3 + out.len());
            prop_assert_eq!(&wide[3..3 + out.len()], &out[..]);
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(number));
            prop_assert!(rest.is_empty());
            prop_assert_eq!(zigzag(unzigzag(number)), number);
        }
    }

    #[test]
    fn only_the_shortest_form_counts() {
        assert_eq!(take(&mut &[0x80, 0][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xFF; 10][..]), None);
        assert_eq!(take(&mut &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1][..]), Some(u64::MAX));
    }
}
