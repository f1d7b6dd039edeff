//! `string.format`, and texts of values.

use super::arena::LIVE_MAX;
use super::call::Call;
use super::number;
use super::value::{Entry, Fault, Value};

pub(super) const ENTRIES: &[Entry] = &[
    ("string", "format", format),
    // What `tostring` says of a value without `__tostring`.
    ("native", "text", |call| {
        let kind = call.type_name(1);
        Ok(vec![match kind {
            "nil" => Value::text("nil"),
            "boolean" => Value::text(if call.truth(1) { "true" } else { "false" }),
            "string" => Value::Argument(1),
            "number" => Value::Str(number::to_text(call.number(1)?).into()),
            "no value" => return Err(Fault::argument(1, "value expected")),
            // Not an address of this process: the same on every node.
            _ => Value::Str(format!("{kind}: 0x{:012x}", call.address(1)).into()),
        }])
    }),
];

/// What stands between `%` and the letter.
#[derive(Default)]
struct Spec {
    is_left: bool,
    has_sign: bool,
    has_space: bool,
    is_alternate: bool,
    has_zeros: bool,
    width: usize,
    precision: Option<usize>,
}

impl Spec {
    fn parse<'t>(text: &'t [u8]) -> Result<(Spec, &'t [u8]), Fault> {
        let mut spec = Spec::default();
        let mut rest = text;
        while let Some((flag @ (b'-' | b'+' | b' ' | b'#' | b'0'), behind)) = rest.split_first() {
            match flag {
                b'-' => spec.is_left = true,
                b'+' => spec.has_sign = true,
                b' ' => spec.has_space = true,
                b'#' => spec.is_alternate = true,
                _ => spec.has_zeros = true,
            }
            rest = behind;
        }
        if text.len() - rest.len() > 5 {
            return Err(Fault::text("invalid format (repeated flags)"));
        }
        let number = |text: &mut &'t [u8]| {
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits > 2 {
                return Err(Fault::text("invalid format (width or precision too long)"));
            }
            let (number, behind) = text.split_at(digits);
            *text = behind;
            Ok(number.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0')))
        };
        spec.width = number(&mut rest)?;
        if let Some((b'.', behind)) = rest.split_first() {
            rest = behind;
            spec.precision = Some(number(&mut rest)?);
        }
        Ok((spec, rest))
    }

    /// Puts sign, zeros and spaces around the digits of a number.
    fn pad_number(&self, is_negative: bool, prefix: &str, digits: &str, may_have_zeros: bool) -> String {
        let sign = match () {
            () if is_negative => "-",
            () if self.has_sign => "+",
            () if self.has_space => " ",
            () => "",
        };
        let length = sign.len() + prefix.len() + digits.len();
        let missing = self.width.saturating_sub(length);
        if self.has_zeros && !self.is_left && may_have_zeros {
            return format!("{sign}{prefix}{}{digits}", "0".repeat(missing));
        }
        self.pad(format!("{sign}{prefix}{digits}").as_bytes()).into_iter().map(char::from).collect()
    }

    fn pad(&self, text: &[u8]) -> Vec<u8> {
        let spaces = vec![b' '; self.width.saturating_sub(text.len())];
        if self.is_left { [text, &spaces].concat() } else { [&spaces, text].concat() }
    }

    /// `%d` and its relatives: digits already in their base.
    fn integer(&self, is_negative: bool, prefix: &str, digits: &str) -> String {
        let digits = match self.precision {
            Some(0) if digits == "0" => String::new(),
            Some(precision) => format!("{}{digits}", "0".repeat(precision.saturating_sub(digits.len()))),
            None => digits.to_string(),
        };
        self.pad_number(is_negative, prefix, &digits, self.precision.is_none())
    }

    fn float(&self, number: f64, letter: u8) -> String {
        let precision = self.precision.unwrap_or(6);
        let is_negative = number.is_sign_negative();
        let size = number.abs();
        let mut digits = match (letter.to_ascii_lowercase(), number::special(size)) {
            (_, Some(special)) => special.to_string(),
            (b'e', None) => number::scientific(size, precision),
            (b'f', None) => format!("{size:.precision$}"),
            _ => number::general(size, precision, self.is_alternate),
        };
        if letter.is_ascii_uppercase() {
            digits.make_ascii_uppercase();
        }
        self.pad_number(is_negative, "", &digits, size.is_finite())
    }
}

fn format(call: &mut Call<'_>) -> Result<Vec<Value>, Fault> {
    let template = call.string(1)?;
    let mut out = Vec::new();
    let mut rest = &template[..];
    let mut at = 1;
    while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
        out.extend_from_slice(&rest[..percent]);
        rest = &rest[percent + 1..];
        if let Some((b'%', behind)) = rest.split_first() {
            out.push(b'%');
            rest = behind;
            continue;
        }
        let (spec, behind) = Spec::parse(rest)?;
        let (&letter, behind) = behind.split_first().unwrap_or((&0, &[]));
        rest = behind;
        at += 1;
        let before = out.len();
        one(call, &mut out, &spec, letter, at)?;
        call.spend(5)?;
        call.spend_bytes(out.len() - before)?;
        if out.len() > LIVE_MAX {
            return Err(Fault::text("resulting string too large"));
        }
    }
    out.extend_from_slice(rest);
    call.spend_bytes(out.len())?;
    Ok(vec![Value::Str(out.into())])
}

fn one(call: &Call<'_>, out: &mut Vec<u8>, spec: &Spec, letter: u8, at: i32) -> Result<(), Fault> {
    match letter {
        b'c' => {
            // The cast keeps the lower byte, as in C.
            let byte = call.integer(at)? as u8;
            out.extend(spec.pad(&[byte]));
        }
        b'd' | b'i' => {
            let number = super::outcome::to_integer(call.number(at)?);
            out.extend(spec.integer(number < 0, "", &number.unsigned_abs().to_string()).bytes());
        }
        b'u' | b'o' | b'x' | b'X' => {
            // The cast wraps, as in C.
            let number = super::outcome::to_integer(call.number(at)?) as u64;
            let (prefix, digits) = match letter {
                b'u' => ("", number.to_string()),
                b'o' => (if spec.is_alternate { "0" } else { "" }, format!("{number:o}")),
                b'x' => (if spec.is_alternate && number != 0 { "0x" } else { "" }, format!("{number:x}")),
                _ => (if spec.is_alternate && number != 0 { "0X" } else { "" }, format!("{number:X}")),
            };
            let spec = Spec { has_sign: false, has_space: false, ..*spec };
            out.extend(spec.integer(false, prefix, &digits).bytes());
        }
        b'e' | b'E' | b'f' | b'g' | b'G' => {
            // Large and small numbers have many digits to find.
            let number = call.number(at)?;
            let power = if number.is_normal() { number.abs().log2().abs() as usize } else { 0 };
            call.spend(40 + power + 2 * spec.precision.unwrap_or(6))?;
            out.extend(spec.float(number, letter).bytes());
        }
        b'q' => quote(out, &call.string(at)?),
        b's' => {
            let text = call.string(at)?;
            match spec.precision {
                // A long text without a precision is taken as it is.
                None if text.len() >= 100 => out.extend_from_slice(&text),
                precision => {
                    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                    out.extend(spec.pad(&text[..end.min(precision.unwrap_or(usize::MAX))]));
                }
            }
        }
        other => {
            let option = if other == 0 { String::new() } else { char::from(other).to_string() };
            return Err(Fault::text(format!("invalid option '%{option}' to 'format'")));
        }
    }
    Ok(())
}

fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'\n' => out.extend([b'\\', byte]),
            b'\r' => out.extend(b"\\r"),
            0 => out.extend(b"\\000"),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}
