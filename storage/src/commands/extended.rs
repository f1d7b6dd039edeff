//! The floating-point numbers of INCRBYFLOAT.
//!
//! Redis computes with C's `long double`, which on x86-64 has 64 bits of mantissa, and prints 17 digits behind the point. Rust has no such
//! type, 53 bits give visibly different answers (0.1 + 0.2), and every node must give the same one: so the few operations are
//! done here, in integers. Exact up to the type's own rounding (to nearest, ties to even); denormal numbers count as zero.

use std::cmp::Ordering;

/// `± mantissa · 2^exponent`; the top bit of the mantissa is set unless the number is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    is_negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// The largest exponent of a finite number, and the smallest of one that is not denormal.
const EXPONENT_MAX: i32 = 16383 - 63;
const EXPONENT_MIN: i32 = -16382 - 63;
/// Longer texts are no numbers, as in Redis.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Digits behind the point.
const DECIMALS: u32 = 17;

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A finite number.
    Finite(Extended),
    /// An infinity: a number, but not one to add to.
    Infinite,
}

impl Extended {
    const ZERO: Extended = Extended { is_negative: false, mantissa: 0, exponent: 0 };

    /// `mantissa · 2^exponent`, rounded to 64 bits. `has_more`: the true value is a little larger. Nothing if it is too large.
    fn round(is_negative: bool, mantissa: u128, exponent: i32, has_more: bool) -> Option<Extended> {
        if mantissa == 0 {
            return Some(Extended { is_negative, ..Extended::ZERO });
        }
        let excess = 64 - mantissa.leading_zeros() as i32;
        let mut exponent = exponent + excess;
        let mut kept = if excess <= 0 { mantissa << -excess } else { mantissa >> excess };
        if excess > 0 {
            let half = 1_u128 << (excess - 1);
            let rest = mantissa & ((half << 1) - 1);
            let rounds_up = match rest.cmp(&half) {
                Ordering::Less => false,
                Ordering::Equal => has_more || kept & 1 == 1,
                Ordering::Greater => true,
            };
            kept += u128::from(rounds_up);
            if kept >> 64 != 0 {
                kept >>= 1;
                exponent += 1;
            }
        }
        match exponent {
            ..EXPONENT_MIN => Some(Extended { is_negative, ..Extended::ZERO }),
            // The cast is exact: `kept` has 64 bits.
            EXPONENT_MIN..=EXPONENT_MAX => Some(Extended { is_negative, mantissa: kept as u64, exponent }),
            _ => None,
        }
    }

    /// The number that a text is: decimal, with or without point and exponent. (C would take hexadecimal, too.)
    pub(crate) fn parse(text: &[u8]) -> Option<Parsed> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Parsed::Infinite);
        }
        let (digits, exponent) = match text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e')) {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &[][..]),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut number = Natural::default();
        for digit in whole.iter().chain(fraction) {
            if !digit.is_ascii_digit() {
                return None;
            }
            number.multiply_add(10, u32::from(digit - b'0'));
        }
        if number.is_zero() {
            return Some(Parsed::Finite(Extended { is_negative, ..Extended::ZERO }));
        }
        let scale = exponent - fraction.len() as i32;
        from_decimal(is_negative, number, scale).map(Parsed::Finite)
    }

    /// The sum. Nothing if it is too large.
    pub(crate) fn add(self, other: Extended) -> Option<Extended> {
        if self.mantissa == 0 || other.mantissa == 0 {
            return Some(if self.mantissa == 0 { other } else { self });
        }
        let (large, small) = if (self.exponent, self.mantissa) >= (other.exponent, other.mantissa) {
            (self, other)
        } else {
            (other, self)
        };
        // 62 bits below the mantissas keep enough of the smaller one; what falls off them is remembered as one bit.
        let shift = (large.exponent - small.exponent) as u32;
        let wide = u128::from(small.mantissa) << 62;
        let moved = wide.checked_shr(shift).unwrap_or(0);
        let lost = moved.checked_shl(shift).unwrap_or(0) != wide;
        let moved = moved | u128::from(lost);
        let base = u128::from(large.mantissa) << 62;
        if large.is_negative == small.is_negative {
            Extended::round(large.is_negative, base + moved, large.exponent - 62, false)
        } else if base == moved {
            Some(Extended::ZERO)
        } else {
            Extended::round(large.is_negative, base - moved, large.exponent - 62, false)
        }
    }

    /// With 17 digits behind the point, without the zeros at the end.
    pub(crate) fn to_text(self) -> String {
        let digits = if self.exponent >= 0 {
            let mut whole = Natural::from(u128::from(self.mantissa));
            whole.shift_left(self.exponent as u32);
            whole.multiply_add(10_u32.pow(9), 0);
            whole.multiply_add(10_u32.pow(DECIMALS - 9), 0);
            whole.to_decimal()
        } else {
            // At most 64 + 57 bits.
            let scaled = u128::from(self.mantissa) * 10_u128.pow(DECIMALS);
            let shift = self.exponent.unsigned_abs();
            let whole = scaled.checked_shr(shift).unwrap_or(0);
            let rest = if shift > 127 { 0 } else { scaled - (whole << shift) };
            let half = if shift > 127 { u128::MAX } else { 1 << (shift - 1) };
            (whole + u128::from(rest > half || (rest == half && whole & 1 == 1))).to_string()
        };
        let digits = format!("{digits:0>width$}", width = DECIMALS as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS as usize);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let sign = if self.is_negative && !(whole == "0" && fraction.is_empty()) { "-" } else { "" };
        format!("{sign}{whole}{point}{fraction}")
    }
}

fn parse_exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Far beyond what the type can hold, and far from overflowing.
    let number = digits.iter().fold(0, |sum: i32, digit| (sum * 10 + i32::from(digit - b'0')).min(100_000));
    Some(sign * number)
}

/// `number · 10^scale`. Nothing if it is too large or too small.
fn from_decimal(is_negative: bool, mut number: Natural, scale: i32) -> Option<Extended> {
    if !(-12_000..=5_000).contains(&scale) {
        return None;
    }
    let mut divisor = Natural::from(1);
    let scaled = if scale < 0 { &mut divisor } else { &mut number };
    (0..scale.unsigned_abs()).for_each(|_| scaled.multiply_add(10, 0));
    // A quotient of 66 or 67 bits: enough for 64 and the knowledge on which side of the half the rest is.
    let shift = 67 - (number.bits() as i32 - divisor.bits() as i32);
    if shift > 0 {
        number.shift_left(shift as u32)
    } else {
        divisor.shift_left(shift.unsigned_abs())
    }
    let mut quotient = 0_u128;
    // The divisor is moved up by 68 bits, then down again bit by bit: long division in base two.
    divisor.shift_left(68);
    for _ in 0..=68 {
        quotient <<= 1;
        if number.cmp(&divisor) != Ordering::Less {
            number.subtract(&divisor);
            quotient |= 1;
        }
        divisor.halve();
    }
    let rounded =
        Extended::round(is_negative, quotient << 1 | u128::from(!number.is_zero()), -shift - 1, false)?;
    // C calls a number that vanishes out of range, too.
    (rounded.mantissa != 0).then_some(rounded)
}

/// A natural number of any size: 32 bits each, the lowest first, no zeros at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Natural(Vec<u32>);

impl From<u128> for Natural {
    fn from(number: u128) -> Natural {
        let mut natural = Natural((0..4).map(|i| (number >> (32 * i)) as u32).collect());
        natural.trim();
        natural
    }
}

impl Natural {
    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: u32) {
        if self.is_zero() {
            return;
        }
        if !bits.is_multiple_of(32) {
            self.multiply_add(1 << (bits % 32), 0);
        }
        self.0.splice(0..0, std::iter::repeat_n(0, bits as usize / 32));
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for limb in self.0.iter_mut().rev() {
            let low = *limb & 1;
            *limb = *limb >> 1 | carry << 31;
            carry = low;
        }
        self.trim();
    }

    fn cmp(&self, other: &Natural) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = 0_i64;
        for (i, limb) in self.0.iter_mut().enumerate() {
            let difference = i64::from(*limb) - i64::from(other.0.get(i).copied().unwrap_or(0)) + borrow;
            *limb = difference as u32;
            borrow = difference >> 32;
        }
        self.trim();
    }

    fn to_decimal(&self) -> String {
        let mut rest = self.clone();
        let mut groups = Vec::new();
        while !rest.is_zero() {
            let mut remainder = 0_u64;
            for limb in rest.0.iter_mut().rev() {
                remainder = remainder << 32 | u64::from(*limb);
                *limb = (remainder / 1_000_000_000) as u32;
                remainder %= 1_000_000_000;
            }
            rest.trim();
            groups.push(remainder);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups.iter().rev().for_each(|group| text += &format!("{group:09}"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(a: &str, b: &str) -> String {
        let number = |text: &str| match Extended::parse(text.as_bytes()) {
            Some(Parsed::Finite(number)) => number,
            other => panic!("{text}: {other:?}"),
        };
        number(a).add(number(b)).map_or("overflow".into(), Extended::to_text)
    }

    #[test]
    fn as_redis_on_x86() {
        for (a, b, sum) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-0", "-0", "0"),
            ("1", "-0.9", "0.1"),
            ("1.5", "1.5", "3"),
            (".5", "1.", "1.5"),
            ("17179869184", "1.5", "17179869185.5"),
            ("1e30", "0", "1000000000000000000024696061952"),
            ("1e-17", "0", "0.00000000000000001"),
            ("4e-18", "0", "0"),
            ("-4e-18", "0", "0"),
            ("12345.1", "0", "12345.09999999999999964"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551617", "0", "18446744073709551616"),
        ] {
            assert_eq!(add(a, b), sum, "{a} + {b}");
        }
        assert_eq!(add("1e4932", "1e4932"), "overflow");
    }

    #[test]
    fn what_is_no_number() {
        for text in [
            "", "-", ".", "e1", "1e", "1e+", "abc", "1 ", " 1", "1.2.3", "0x1", "nan", "1e5000", "1e-5000",
            "--1",
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Extended::parse(b"-Inf"), Some(Parsed::Infinite));
    }
}
