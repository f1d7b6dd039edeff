//! Lua's library of strings, with its work counted. `format` is in a file of its own; `gsub` with a function is in the prelude.

use super::arena::LIVE_MAX;
use super::call::Call;
use super::pattern::Matcher;
use super::value::{Entry, Fault, Value};

/// Bytes that mean something in a pattern.
const SPECIAL: &[u8] = b"^$*+?.([%-";

pub(super) const ENTRIES: &[Entry] = &[
    ("string", "len", |call| Ok(vec![Value::Number(call.string(1)?.len() as f64)])),
    ("string", "sub", |call| {
        let text = call.string(1)?;
        let (from, to) = range(text.len(), call.integer(2)?, call.integer_or(3, -1)?);
        if call.is_string(1) {
            return Ok(vec![Value::Piece(1, from, to)]);
        }
        Ok(vec![Value::bytes(&text[from..to])])
    }),
    ("string", "reverse", |call| mapped(call, |text| text.iter().rev().copied().collect())),
    ("string", "lower", |call| mapped(call, <[u8]>::to_ascii_lowercase)),
    ("string", "upper", |call| mapped(call, <[u8]>::to_ascii_uppercase)),
    ("string", "rep", |call| {
        let text = call.string(1)?;
        let times = usize::try_from(call.integer(2)?).unwrap_or(0);
        let bytes = text.len().saturating_mul(times);
        if bytes > LIVE_MAX {
            return Err(Fault::text("resulting string too large"));
        }
        call.spend_bytes(bytes)?;
        Ok(vec![Value::Str(text.repeat(times).into())])
    }),
    ("string", "byte", |call| {
        let text = call.string(1)?;
        let first = call.integer_or(2, 1)?;
        let (from, to) = range(text.len(), first, call.integer_or(3, if first == 0 { 1 } else { first })?);
        if to - from > 4000 {
            return Err(Fault::text("string slice too long"));
        }
        call.spend(to - from)?;
        Ok(text[from..to].iter().map(|byte| Value::Number(f64::from(*byte))).collect())
    }),
    ("string", "char", |call| {
        let bytes = (1..=call.len())
            .map(|at| u8::try_from(call.integer(at)?).map_err(|_| Fault::argument(at, "invalid value")));
        Ok(vec![Value::Str(bytes.collect::<Result<Vec<u8>, Fault>>()?.into())])
    }),
    ("string", "find", |call| find(call, true)),
    ("string", "match", |call| find(call, false)),
    ("string", "dump", |_| Err(Fault::text("unable to dump given function"))),
    ("native", "gsub", gsub),
    ("native", "step", step),
];

fn mapped(call: &Call<'_>, map: fn(&[u8]) -> Vec<u8>) -> Result<Vec<Value>, Fault> {
    let text = call.string(1)?;
    call.spend_bytes(text.len() * 4)?;
    Ok(vec![Value::Str(map(&text).into())])
}

/// The bytes from one position to another, both counted from 1, from the end if negative.
fn range(length: usize, from: i64, to: i64) -> (usize, usize) {
    let length = length as i64;
    let place = |at: i64| if at < 0 { length.saturating_add(at).saturating_add(1) } else { at };
    let (from, to) = (place(from).max(1), place(to).min(length));
    if from > to { (0, 0) } else { (from as usize - 1, to as usize) }
}

/// Where a search begins, counted from 0.
fn beginning(length: usize, at: i64) -> usize {
    let length = length as i64;
    let at = if at < 0 { length.saturating_add(at) } else { at - 1 };
    at.clamp(0, length) as usize
}

/// `find` and `match`.
fn find(call: &mut Call<'_>, is_find: bool) -> Result<Vec<Value>, Fault> {
    let (text, pattern) = (call.string(1)?, call.string(2)?);
    let from = beginning(text.len(), call.integer_or(3, 1)?);
    let nothing = Ok(vec![Value::Nil]);
    if is_find && (call.truth(4) || !pattern.iter().any(|byte| SPECIAL.contains(byte))) {
        let Some(at) = position(call, &text[from..], &pattern)? else { return nothing };
        let (first, last) = (from + at + 1, from + at + pattern.len());
        return Ok(vec![Value::Number(first as f64), Value::Number(last as f64)]);
    }
    let (is_anchored, pattern) = anchored(&pattern);
    let mut matcher = Matcher::new(call, &text, pattern);
    let Some((start, end)) = matcher.first_from(from, is_anchored)? else { return nothing };
    let mut results = Vec::new();
    if is_find {
        results.extend([Value::Number(start as f64 + 1.0), Value::Number(end as f64)]);
        if !matcher.has_captures() {
            return Ok(results);
        }
    }
    results.extend(matcher.captured(start, end)?);
    Ok(results)
}

fn anchored(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    }
}

/// Where a text is inside another.
fn position(call: &Call<'_>, text: &[u8], wanted: &[u8]) -> Result<Option<usize>, Fault> {
    let Some((first, rest)) = wanted.split_first() else { return Ok(Some(0)) };
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| byte == first) {
        call.spend(1 + at / 8)?;
        let here = from + at;
        let behind = &text[here + 1..];
        let same = behind.iter().zip(rest).take_while(|(a, b)| a == b).count();
        call.spend(same / 4)?;
        if same == rest.len() {
            return Ok(Some(here));
        }
        if behind.len() < rest.len() {
            return Ok(None);
        }
        from = here + 1;
    }
    call.spend_bytes(text.len() - from)?;
    Ok(None)
}

/// `gsub` with a text: text, pattern, replacement, how often at most.
fn gsub(call: &mut Call<'_>) -> Result<Vec<Value>, Fault> {
    let (text, pattern, replacement) = (call.string(1)?, call.string(2)?, call.string(3)?);
    let (is_anchored, pattern) = anchored(&pattern);
    let most = if call.has(4) { usize::try_from(call.integer(4)?).unwrap_or(0) } else { text.len() + 1 };
    let mut matcher = Matcher::new(call, &text, pattern);
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while count < most {
        let found = matcher.match_at(at)?;
        if let Some(end) = found {
            count += 1;
            let before = out.len();
            replace(&mut out, &matcher, &text, &replacement, at, end)?;
            call.spend_bytes(out.len() - before)?;
            if out.len() > LIVE_MAX {
                return Err(Fault::text("resulting string too large"));
            }
        }
        match found {
            Some(end) if end > at => at = end,
            _ if at < text.len() => {
                out.push(text[at]);
                at += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
    Ok(vec![Value::Str(out.into()), Value::Number(count as f64)])
}

fn replace(
    out: &mut Vec<u8>,
    matcher: &Matcher<'_, '_>,
    text: &[u8],
    replacement: &[u8],
    from: usize,
    to: usize,
) -> Result<(), Fault> {
    let mut bytes = replacement.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => out.extend_from_slice(&text[from..to]),
            Some(digit @ b'1'..=b'9') => match matcher.capture(usize::from(digit - b'1'), from, to)? {
                Value::Piece(_, from, to) => out.extend_from_slice(&text[from..to]),
                Value::Str(bytes) => out.extend_from_slice(&bytes),
                Value::Number(number) => out.extend(super::number::to_text(number).bytes()),
                _ => {}
            },
            Some(other) => out.push(*other),
            // C's text ends with a zero byte.
            None => out.push(0),
        }
    }
    Ok(())
}

/// One step of `gmatch` or of `gsub` with a function: text, pattern, where to begin (counted from 1), whether only there. Gives the first and last
/// position of the match and its captures, or nothing.
fn step(call: &mut Call<'_>) -> Result<Vec<Value>, Fault> {
    let (text, pattern) = (call.string(1)?, call.string(2)?);
    let from = usize::try_from(call.integer(3)? - 1).unwrap_or(0);
    if from > text.len() {
        return Ok(vec![Value::Nil]);
    }
    let mut matcher = Matcher::new(call, &text, &pattern);
    let Some((start, end)) = matcher.first_from(from, call.truth(4))? else { return Ok(vec![Value::Nil]) };
    let mut results = vec![Value::Number(start as f64 + 1.0), Value::Number(end as f64)];
    results.extend(matcher.captured(start, end)?);
    Ok(results)
}
