//! `bit`: operations on 32 bits, as in Mike Pall's Lua BitOp.

use super::call::Call;
use super::value::{Entry, Fault, Value};

pub(super) const ENTRIES: &[Entry] = &[
    ("bit", "tobit", |call| given(take(call, 1)?)),
    ("bit", "bnot", |call| given(!take(call, 1)?)),
    ("bit", "band", |call| fold(call, |a, b| a & b)),
    ("bit", "bor", |call| fold(call, |a, b| a | b)),
    ("bit", "bxor", |call| fold(call, |a, b| a ^ b)),
    ("bit", "bswap", |call| given(take(call, 1)?.swap_bytes())),
    ("bit", "lshift", |call| shift(call, |bits, by| bits << by)),
    ("bit", "rshift", |call| shift(call, |bits, by| bits >> by)),
    // The casts only change how the highest bit is read.
    ("bit", "arshift", |call| shift(call, |bits, by| ((bits as i32) >> by) as u32)),
    ("bit", "rol", |call| shift(call, u32::rotate_left)),
    ("bit", "ror", |call| shift(call, u32::rotate_right)),
    ("bit", "tohex", |call| {
        let bits = take(call, 1)?;
        let digits = if call.len() >= 2 { take(call, 2)? as i32 } else { 8 };
        let count = digits.unsigned_abs().min(8) as usize;
        let text = format!("{bits:08x}");
        let text = &text[8 - count..];
        let text = if digits < 0 { text.to_uppercase() } else { text.to_string() };
        Ok(vec![Value::Str(text.into())])
    }),
];

/// A number as 32 bits: rounded to the nearest whole one, half to even, and taken modulo 2^32.
fn take(call: &Call<'_>, at: i32) -> Result<u32, Fault> {
    let number = call.number(at)?.round_ties_even();
    let modulus = 4_294_967_296.0;
    let rest = number.rem_euclid(modulus);
    // Neither infinity nor what is no number has a rest.
    Ok(if rest.is_finite() { rest as u32 } else { 0 })
}

fn given(bits: u32) -> Result<Vec<Value>, Fault> {
    // The cast makes the highest bit the sign.
    Ok(vec![Value::Number(f64::from(bits as i32))])
}

fn fold(call: &Call<'_>, combine: fn(u32, u32) -> u32) -> Result<Vec<Value>, Fault> {
    let mut bits = take(call, 1)?;
    for at in 2..=call.len() {
        bits = combine(bits, take(call, at)?);
    }
    given(bits)
}

fn shift(call: &Call<'_>, shift: fn(u32, u32) -> u32) -> Result<Vec<Value>, Fault> {
    given(shift(take(call, 1)?, take(call, 2)? & 31))
}
