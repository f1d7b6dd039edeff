//! `cmsgpack`: MessagePack, in the shapes that Redis' library writes.

use super::call::Call;
use super::outcome::to_integer;
use super::value::{Entry, Fault, Value};
use bytes::Bytes;

/// How deeply tables are written; what is nested more deeply becomes nil.
const NESTED_MAX: usize = 16;
/// How deeply what is read may be nested.
const DEPTH_MAX: usize = 200;

pub(super) const ENTRIES: &[Entry] = &[
    ("cmsgpack", "pack", |call| {
        if call.len() == 0 {
            return Err(Fault::argument(0, "MessagePack pack needs input."));
        }
        let mut out = Vec::new();
        for at in 1..=call.len() {
            let value = call.value_to_depth(at, NESTED_MAX)?;
            pack(call, &value, &mut out)?;
        }
        Ok(vec![Value::Str(out.into())])
    }),
    ("cmsgpack", "unpack", |call| unpack(call, i64::MAX, 0).map(|(values, _)| values)),
    ("cmsgpack", "unpack_one", |call| unpack_from(call, 1, call.integer_or(2, 0)?)),
    ("cmsgpack", "unpack_limit", |call| unpack_from(call, call.integer(2)?, call.integer_or(3, 0)?)),
];

fn pack(call: &Call<'_>, value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    call.spend(4)?;
    match value {
        Value::Bool(truth) => out.push(if *truth { 0xC3 } else { 0xC2 }),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9.2e18 => {
            pack_integer(to_integer(*number), out);
        }
        Value::Number(number) => {
            // A number that fits into four bytes takes four.
            let short = *number as f32;
            if f64::from(short) == *number {
                out.push(0xCA);
                out.extend(short.to_be_bytes());
            } else {
                out.push(0xCB);
                out.extend(number.to_be_bytes());
            }
        }
        Value::Str(text) => {
            call.spend_bytes(text.len())?;
            head(out, text.len(), (0xA0, 32), &[0xD9, 0xDA, 0xDB]);
            out.extend_from_slice(text);
        }
        Value::Map(pairs) => {
            if let Some(items) = list(pairs) {
                head(out, items.len(), (0x90, 16), &[0xDC, 0xDD]);
                return items.into_iter().try_for_each(|item| pack(call, item, out));
            }
            head(out, pairs.len(), (0x80, 16), &[0xDE, 0xDF]);
            for (key, value) in pairs {
                pack(call, key, out)?;
                pack(call, value, out)?;
            }
        }
        _ => out.push(0xC0),
    }
    Ok(())
}

/// The items of a table whose keys are exactly 1 to n.
fn list(pairs: &[(Value, Value)]) -> Option<Vec<&Value>> {
    if pairs.is_empty() {
        return Some(Vec::new());
    }
    let mut items: Vec<Option<&Value>> = vec![None; pairs.len()];
    for (key, value) in pairs {
        let Value::Number(index) = key else { return None };
        if index.fract() != 0.0 || *index < 1.0 {
            return None;
        }
        *items.get_mut(*index as usize - 1)? = Some(value);
    }
    items.into_iter().collect()
}

/// A length, in the shortest of its forms.
fn head(out: &mut Vec<u8>, length: usize, (fixed, below): (u8, usize), tags: &[u8]) {
    // Lengths are below 2^32: a script has 64 MB.
    match (tags, length) {
        (_, length) if length < below => out.push(fixed | length as u8),
        ([one, _, _], 0..=0xFF) => out.extend([*one, length as u8]),
        ([.., two, _], 0..=0xFFFF) => {
            out.push(*two);
            out.extend((length as u16).to_be_bytes());
        }
        ([.., four], _) => {
            out.push(*four);
            out.extend((length as u32).to_be_bytes());
        }
        ([], _) => {}
    }
}

fn pack_integer(number: i64, out: &mut Vec<u8>) {
    // Every cast below is exact: the range was checked by its arm.
    match number {
        0..=0x7F => out.push(number as u8),
        0x80..=0xFF => out.extend([0xCC, number as u8]),
        0x100..=0xFFFF => {
            out.push(0xCD);
            out.extend((number as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            out.push(0xCE);
            out.extend((number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xCF);
            out.extend(number.to_be_bytes());
        }
        -32..0 => out.push(number as i8 as u8),
        -128..-32 => out.extend([0xD0, number as i8 as u8]),
        -0x8000..-128 => {
            out.push(0xD1);
            out.extend((number as i16).to_be_bytes());
        }
        -0x8000_0000..-0x8000 => {
            out.push(0xD2);
            out.extend((number as i32).to_be_bytes());
        }
        _ => {
            out.push(0xD3);
            out.extend(number.to_be_bytes());
        }
    }
}

/// Up to `limit` values from `offset` on, and where they end.
fn unpack(call: &Call<'_>, limit: i64, offset: i64) -> Result<(Vec<Value>, usize), Fault> {
    let text = call.string(1)?;
    if offset < 0 || limit < 0 {
        return Err(Fault::text(format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            text.len()
        )));
    }
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let Some(mut rest) = text.get(offset..) else {
        return Err(Fault::text(format!("Start offset {offset} greater than input length {}.", text.len())));
    };
    let mut values = Vec::new();
    while !rest.is_empty() && (values.len() as i64) < limit {
        if values.len() > 4000 {
            return Err(Fault::text("too many values to unpack"));
        }
        values.push(one(call, &mut rest, 0)?);
    }
    Ok((values, text.len() - rest.len()))
}

/// The same with the end before the values: -1 if nothing is left.
fn unpack_from(call: &Call<'_>, limit: i64, offset: i64) -> Result<Vec<Value>, Fault> {
    let (values, end) = unpack(call, limit, offset)?;
    let is_all = end == call.string(1)?.len();
    let mut results = vec![Value::Number(if is_all { -1.0 } else { end as f64 })];
    results.extend(values);
    Ok(results)
}

const CUT: &str = "Missing bytes in input.";

fn take<'t>(rest: &mut &'t [u8], count: usize) -> Result<&'t [u8], Fault> {
    let (taken, behind) = rest.split_at_checked(count).ok_or_else(|| Fault::text(CUT))?;
    *rest = behind;
    Ok(taken)
}

/// An unsigned number of so many bytes.
fn unsigned(rest: &mut &[u8], count: usize) -> Result<u64, Fault> {
    Ok(take(rest, count)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn signed(rest: &mut &[u8], count: usize) -> Result<f64, Fault> {
    let shift = 64 - 8 * count as u32;
    // The cast makes the highest bit the sign.
    Ok(((unsigned(rest, count)? << shift) as i64 >> shift) as f64)
}

fn one(call: &Call<'_>, rest: &mut &[u8], depth: usize) -> Result<Value, Fault> {
    call.spend(8)?;
    if depth > DEPTH_MAX {
        return Err(Fault::text("Bad data format in input."));
    }
    let tag = take(rest, 1)?[0];
    let text = |rest: &mut &[u8], length: usize| {
        let bytes = take(rest, length)?;
        call.spend_bytes(length)?;
        Ok(Value::Str(Bytes::copy_from_slice(bytes)))
    };
    // A length has at most four bytes.
    let length = |rest: &mut &[u8], bytes: usize| unsigned(rest, bytes).map(|length| length as usize);
    match tag {
        0x00..=0x7F => Ok(Value::Number(f64::from(tag))),
        0xE0..=0xFF => Ok(Value::Number(f64::from(tag as i8))),
        0x80..=0x8F => map(call, rest, usize::from(tag & 15), depth),
        0x90..=0x9F => array(call, rest, usize::from(tag & 15), depth),
        0xA0..=0xBF => text(rest, usize::from(tag & 31)),
        0xC0 => Ok(Value::Nil),
        0xC2 => Ok(Value::Bool(false)),
        0xC3 => Ok(Value::Bool(true)),
        0xC4..=0xC6 | 0xD9..=0xDB => {
            let bytes = 1 << (if tag < 0xD0 { tag - 0xC4 } else { tag - 0xD9 });
            let length = length(rest, bytes)?;
            text(rest, length)
        }
        0xCA => Ok(Value::Number(f64::from(f32::from_bits(unsigned(rest, 4)? as u32)))),
        0xCB => Ok(Value::Number(f64::from_bits(unsigned(rest, 8)?))),
        0xCC..=0xCF => Ok(Value::Number(unsigned(rest, 1 << (tag - 0xCC))? as f64)),
        0xD0..=0xD3 => Ok(Value::Number(signed(rest, 1 << (tag - 0xD0))?)),
        0xDC | 0xDD => {
            let count = length(rest, if tag == 0xDC { 2 } else { 4 })?;
            array(call, rest, count, depth)
        }
        0xDE | 0xDF => {
            let count = length(rest, if tag == 0xDE { 2 } else { 4 })?;
            map(call, rest, count, depth)
        }
        _ => Err(Fault::text("Bad data format in input.")),
    }
}

fn array(call: &Call<'_>, rest: &mut &[u8], count: usize, depth: usize) -> Result<Value, Fault> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(one(call, rest, depth + 1)?);
    }
    Ok(Value::List(items))
}

fn map(call: &Call<'_>, rest: &mut &[u8], count: usize, depth: usize) -> Result<Value, Fault> {
    let mut pairs = Vec::new();
    for _ in 0..count {
        let key = one(call, rest, depth + 1)?;
        if matches!(key, Value::Nil) || matches!(key, Value::Number(number) if number.is_nan()) {
            return Err(Fault::text("Bad data format in input."));
        }
        pairs.push((key, one(call, rest, depth + 1)?));
    }
    Ok(Value::Map(pairs))
}
