//! Numbers as text, as C's `printf` writes them.

/// As Lua writes numbers: `%.14g`.
pub(super) fn to_text(number: f64) -> String {
    general(number, 14, false)
}

/// What `printf` writes for numbers that are none.
pub(super) fn special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() && number.is_sign_negative() => Some("-nan"),
        _ if number.is_nan() => Some("nan"),
        f64::INFINITY => Some("inf"),
        f64::NEG_INFINITY => Some("-inf"),
        _ => None,
    }
}

/// `%e` with so many digits behind the point.
pub(super) fn scientific(number: f64, digits: usize) -> String {
    if let Some(special) = special(number) {
        return special.to_string();
    }
    let text = format!("{number:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `%g` with so many digits; `keeps_zeros` is its `#`.
pub(super) fn general(number: f64, digits: usize, keeps_zeros: bool) -> String {
    if let Some(special) = special(number) {
        return special.to_string();
    }
    let digits = digits.max(1);
    let text = scientific(number, digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if keeps_zeros {
            return if text.contains('.') { text.to_string() } else { format!("{text}.") };
        }
        if !text.contains('.') {
            return text.to_string();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    };
    if power < -4 || power >= digits as i32 {
        return format!("{}e{exponent}", trim(mantissa));
    }
    let behind = usize::try_from(digits as i32 - 1 - power).unwrap_or(0);
    trim(&format!("{number:.behind$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_c() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1e15, "1e+15"),
            (1e14, "1e+14"),
            (12_345_678_901_234.0, "12345678901234"),
            (1e100, "1e+100"),
            (1.0 / 3.0, "0.33333333333333"),
            (1e-5, "1e-05"),
            (0.000_123, "0.000123"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "inf"),
            (99_999_999_999_999.9, "1e+14"),
        ];
        for (number, text) in cases {
            assert_eq!(to_text(number), text);
        }
        assert_eq!(scientific(12345.678, 2), "1.23e+04");
        assert_eq!(general(100_000.0, 6, true), "100000.");
    }
}
