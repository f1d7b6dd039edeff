//! Integers in arguments and values, as strictly as Redis reads them.

use super::errors;
use crate::machine::DATABASES;
use crate::reply::Reply;

/// The integer that `text` is: an optional minus and digits without leading zeros; nothing else, no space, no plus.
#[inline]
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let is_regular = match digits {
        [b'0'] => !is_negative,
        [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_regular {
        return None;
    }
    let magnitude =
        digits.iter().fold(0_u64, |sum, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
    // 19 digits and a first one fit into 64 bits, except beyond 1.8 · 10^19, which 19 digits cannot reach.
    if is_negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// The integer that an argument is, or Redis's error.
pub(crate) fn integer(arg: &[u8]) -> Result<i64, Reply> {
    parse_integer(arg).ok_or(errors::NOT_AN_INTEGER)
}

/// A database's number in an argument.
pub fn database(arg: &[u8]) -> Result<u8, Reply> {
    let number = integer(arg)?;
    // Redis reads it as an `int` first.
    i32::try_from(number).map_err(|_| errors::NOT_AN_INT)?;
    u8::try_from(number).ok().filter(|db| usize::from(*db) < DATABASES).ok_or(errors::DB_INDEX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_integers() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("9999999999999999999", None),
            ("10000000000000000000", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text:?}");
        }
    }
}
