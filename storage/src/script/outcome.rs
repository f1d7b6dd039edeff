//! What a script returns or fails with, as a reply.

use super::Ended;
use super::value::Value;
use crate::reply::{DEPTH_MAX, Reply};
use bytes::Bytes;
use std::borrow::Cow;

/// The text of an uncaught error, with the place that Redis names.
pub(super) fn error_of(error: &Value, sha: &str) -> Bytes {
    let text = field(error, "err").map_or_else(|| b"ERR unknown error".to_vec(), text_of);
    match field(error, "line") {
        Some(Value::Number(line)) => {
            let place = format!(" script: {sha}, on @user_script:{line}.");
            [&text, place.as_bytes()].concat().into()
        }
        _ => [&text, format!(" script: {sha}, on user_script.").as_bytes()].concat().into(),
    }
}

/// A field of a table.
fn field<'v>(table: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(pairs) = table else { return None };
    let is = |key: &Value| matches!(key, Value::Str(text) if text == name.as_bytes());
    pairs.iter().find(|(key, _)| is(key)).map(|(_, value)| value)
}

fn text_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Str(text) => text.to_vec(),
        Value::Number(number) => super::number::to_text(*number).into_bytes(),
        _ => b"ERR unknown error".to_vec(),
    }
}

/// The reply that a script returns. `protocol` is what the script chose with `redis.setresp`.
pub(super) fn reply_of(value: Value, protocol: u8) -> Ended {
    match convert(value, protocol, DEPTH_MAX - 1) {
        Some(reply) => Ended::Reply(reply),
        None => Ended::Failed(Bytes::from_static(b"ERR the script's reply is nested too deeply")),
    }
}

fn convert(value: Value, protocol: u8, depth: usize) -> Option<Reply> {
    Some(match value {
        Value::Str(text) => Reply::Bulk(text),
        Value::Number(number) => Reply::Integer(to_integer(number)),
        Value::Bool(truth) if protocol == 3 => Reply::Boolean(truth),
        Value::Bool(true) => Reply::Integer(1),
        Value::Map(pairs) => table(pairs, protocol, depth.checked_sub(1)?)?,
        _ => Reply::Null,
    })
}

/// As C converts on our machines: what is out of range is the least number.
pub(super) fn to_integer(number: f64) -> i64 {
    // 2^63 is exact.
    let limit = 9_223_372_036_854_775_808.0;
    if number >= -limit && number < limit { number as i64 } else { i64::MIN }
}

fn table(pairs: Vec<(Value, Value)>, protocol: u8, depth: usize) -> Option<Reply> {
    let table = Value::Map(pairs);
    let line = |text: &Bytes| -> Bytes {
        text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
    };
    if let Some(Value::Str(text)) = field(&table, "err") {
        return Some(Reply::Error(line(text)));
    }
    if let Some(Value::Str(text)) = field(&table, "ok") {
        return Some(Reply::Simple(line(text)));
    }
    if let Some(Value::Number(number)) = field(&table, "double") {
        return Some(Reply::Double(*number));
    }
    if let Some(Value::Map(pairs)) = field(&table, "map") {
        let pairs = pairs.iter().map(|(key, value)| {
            Some((convert(key.clone(), protocol, depth)?, convert(value.clone(), protocol, depth)?))
        });
        return pairs.collect::<Option<_>>().map(Reply::Map);
    }
    if let Some(Value::Map(pairs)) = field(&table, "set") {
        let items = pairs.iter().map(|(key, _)| convert(key.clone(), protocol, depth));
        return items.collect::<Option<_>>().map(Reply::Set);
    }
    if let Some(Value::Str(text)) = field(&table, "big_number") {
        let digits = String::from_utf8_lossy(&line(text)).into_owned();
        return Some(Reply::BigNumber(Cow::Owned(digits)));
    }
    if let Some(verbatim) = field(&table, "verbatim_string")
        && let (Some(Value::Str(text)), Some(Value::Str(format))) =
            (field(verbatim, "string"), field(verbatim, "format"))
        && let Some(format) = format.first_chunk::<3>()
    {
        return Some(Reply::Verbatim(*format, text.clone()));
    }
    let Value::Map(pairs) = table else { return Some(Reply::Null) };
    items(pairs)
        .into_iter()
        .map(|item| convert(item, protocol, depth))
        .collect::<Option<_>>()
        .map(Reply::Array)
}

/// The items from 1 on, up to the first that is missing.
pub(super) fn items(pairs: Vec<(Value, Value)>) -> Vec<Value> {
    let mut numbered: Vec<(f64, Value)> = pairs
        .into_iter()
        .filter_map(|(key, value)| match key {
            Value::Number(index) if index >= 1.0 && index.fract() == 0.0 => Some((index, value)),
            _ => None,
        })
        .collect();
    numbered.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let wanted = (1_u32..).map(f64::from);
    numbered
        .into_iter()
        .zip(wanted)
        .take_while(|((index, _), wanted)| index == wanted)
        .map(|((_, item), _)| item)
        .collect()
}
