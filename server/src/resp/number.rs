//! Numbers as Redis reads and writes them.

use std::io::Write;

/// Reads a whole decimal integer as strictly as Redis: an optional minus, no plus, no leading zeros, no blanks.
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Downwards, because the lowest number has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// The text of a double, on the stack.
pub(super) struct DoubleText {
    bytes: [u8; DoubleText::BYTES_MAX],
    length: usize,
}

impl DoubleText {
    /// A sign, 17 digits, a point and seven zeros are the longest text; an exponent makes it shorter again.
    const BYTES_MAX: usize = 32;

    /// Formats as Redis 7.2 does: the shortest digits that read back as the same double, plain where that is
    /// readable, else with an exponent of as few digits as needed (`1e+20`). Redis 7.0 prints 17 digits instead
    /// (`3.1000000000000001`), but we announce 7.2.
    pub(super) fn new(value: f64) -> Self {
        let mut text = DoubleText { bytes: [0; Self::BYTES_MAX], length: 0 };
        /// Half of the range of i64, as in Redis: inside it the cast is exact for whole numbers.
        const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;
        if value.is_nan() {
            text.push_all(b"nan");
        } else if value.is_infinite() {
            text.push_all(if value > 0.0 { b"inf" } else { b"-inf" });
        } else if value == 0.0 {
            text.push_all(if value.is_sign_negative() { b"-0" } else { b"0" });
        } else if (-WHOLE_MAX..=WHOLE_MAX).contains(&value) && value.fract() == 0.0 {
            text.push_all(itoa::Buffer::new().format(value as i64).as_bytes());
        } else {
            text.push_fraction(value);
        }
        text
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Appends a finite, non-zero value that is not a smallish whole number.
    fn push_fraction(&mut self, value: f64) {
        if value < 0.0 {
            self.push(b'-');
        }
        let (digits, count, exponent) = shortest_digits(value.abs());
        let digits = digits.get(..count).unwrap_or_default();
        let count = count as i32;
        // The value is `digits` as a whole number, times ten to the power of `scale`.
        let scale = exponent - (count - 1);
        if scale >= 0 && exponent.abs() < count + 7 {
            self.push_all(digits);
            self.push_zeros(scale);
        } else if scale < 0 && (scale > -7 || exponent.abs() < 4) {
            let point = count + scale;
            if point <= 0 {
                self.push_all(b"0.");
                self.push_zeros(-point);
                self.push_all(digits);
            } else {
                let (whole, fraction) = digits.split_at_checked(point as usize).unwrap_or((digits, &[]));
                self.push_all(whole);
                self.push(b'.');
                self.push_all(fraction);
            }
        } else {
            let (first, others) = digits.split_at_checked(1).unwrap_or((digits, &[]));
            self.push_all(first);
            if !others.is_empty() {
                self.push(b'.');
                self.push_all(others);
            }
            self.push_all(if exponent < 0 { b"e-" } else { b"e+" });
            self.push_all(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
        }
    }

    fn push_all(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    fn push_zeros(&mut self, count: i32) {
        (0..count).for_each(|_| self.push(b'0'));
    }

    fn push(&mut self, byte: u8) {
        debug_assert!(self.length < Self::BYTES_MAX, "a double's text fits");
        if let Some(free) = self.bytes.get_mut(self.length) {
            *free = byte;
            self.length += 1;
        }
    }
}

/// The shortest decimal digits that give `value` back, how many they are, and the exponent of the first one.
fn shortest_digits(value: f64) -> ([u8; 20], usize, i32) {
    // The standard library finds the shortest digits: `1.25e-7`.
    let mut scientific = [0_u8; 32];
    let mut free = &mut scientific[..];
    let written = write!(free, "{value:e}");
    debug_assert!(written.is_ok(), "17 digits, a point and an exponent fit");
    let unused = free.len();
    let text = scientific.get(..scientific.len() - unused).unwrap_or_default();

    let mut parts = text.split(|byte| *byte == b'e');
    let mantissa = parts.next().unwrap_or_default();
    let exponent = parts.next().and_then(parse_integer).unwrap_or_default();
    let mut digits = [0_u8; 20];
    let mut count = 0;
    for (free, digit) in digits.iter_mut().zip(mantissa.iter().filter(|byte| byte.is_ascii_digit())) {
        *free = *digit;
        count += 1;
    }
    (digits, count, exponent as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        let good: &[(&str, i64)] = &[
            ("0", 0),
            ("7", 7),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, value) in good {
            assert_eq!(parse_integer(text.as_bytes()), Some(*value), "{text}");
        }
        let bad = ["", "-", "+1", "01", "-0", "00", " 1", "1 ", "1a", "0x1", "--1", "1.0"];
        let too_large = ["9223372036854775808", "-9223372036854775809", "99999999999999999999999999"];
        for text in bad.iter().chain(&too_large) {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_read_like_redis() {
        let cases: &[(f64, &str)] = &[
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (3.1, "3.1"),
            (0.1, "0.1"),
            (100.0, "100"),
            (1e17, "100000000000000000"),
            (4.611686018427388e18, "4611686018427387904"),
            (1e19, "1e+19"),
            (1e20, "1e+20"),
            (1.2345678901234568e20, "123456789012345680000"),
            (1.5e300, "1.5e+300"),
            (-1e-7, "-1e-7"),
            (0.000001, "0.000001"),
            (0.0012345678901234567, "0.0012345678901234567"),
            (0.00012345678901234567, "1.2345678901234567e-4"),
            (1.2345678e-10, "1.2345678e-10"),
            (1.25e-7, "1.25e-7"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (std::f64::consts::PI, "3.141592653589793"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (value, text) in cases {
            assert_eq!(DoubleText::new(*value).as_bytes().escape_ascii().to_string(), *text);
        }
    }
}
