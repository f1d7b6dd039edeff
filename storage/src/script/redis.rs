//! The table `redis` of scripts.

use super::call::Call;
use super::number;
use super::value::{Entry, Fault, Value};
use crate::reply::Reply;
use bytes::Bytes;
use sha1::{Digest, Sha1};

/// Work for a command, besides its bytes.
const COMMAND: usize = 500;

pub(super) const ENTRIES: &[Entry] = &[
    ("redis", "call", |call| {
        let reply = command(call)?;
        match reply {
            Reply::Error(text) => Err(Fault::Redis(text)),
            reply => converted(call, reply),
        }
    }),
    ("redis", "pcall", |call| match command(call) {
        Ok(reply) => converted(call, reply),
        Err(Fault::Redis(text)) => converted(call, Reply::Error(text)),
        Err(fault) => Err(fault),
    }),
    ("redis", "sha1hex", |call| {
        if call.len() != 1 {
            return Err(Fault::redis("ERR wrong number of arguments"));
        }
        let text = call.string(1).unwrap_or_default();
        call.spend(text.len())?;
        Ok(vec![Value::Str(sha1_hex(&text).into())])
    }),
    ("redis", "error_reply", |call| {
        let text =
            if call.len() == 1 && call.is_string(1) { call.string(1)?.into_owned() } else { Vec::new() };
        let text = match &text[..] {
            [] if call.len() != 1 || !call.is_string(1) => b"ERR wrong number or type of arguments".to_vec(),
            [b'-', rest @ ..] => rest.to_vec(),
            // A text without a prefix gets one.
            text if !text.contains(&b' ') => [b"ERR ", text].concat(),
            text => text.to_vec(),
        };
        Ok(vec![table("err", &text)])
    }),
    ("redis", "status_reply", |call| {
        if call.len() != 1 || !call.is_string(1) {
            return Ok(vec![table("err", b"ERR wrong number or type of arguments")]);
        }
        Ok(vec![table("ok", &call.string(1)?)])
    }),
    ("redis", "log", |call| {
        if call.len() < 2 {
            return Err(Fault::redis("ERR redis.log() requires two arguments or more."));
        }
        if !call.is_number(1) {
            return Err(Fault::redis("ERR First argument must be a number (log level)."));
        }
        if !(0..=3).contains(&call.integer(1)?) {
            return Err(Fault::redis("ERR Invalid debug level."));
        }
        // Every node runs the script: what it would log is said nowhere.
        Ok(Vec::new())
    }),
    ("redis", "setresp", |call| {
        if call.len() != 1 {
            return Err(Fault::redis("ERR redis.setresp() requires one argument."));
        }
        let protocol = match call.number(1) {
            Ok(2.0) => 2,
            Ok(3.0) => 3,
            _ => return Err(Fault::redis("ERR RESP version must be 2 or 3.")),
        };
        call.room.with_job(|job| job.protocol = protocol);
        Ok(Vec::new())
    }),
    ("redis", "replicate_commands", |_| Ok(vec![Value::Bool(true)])),
    ("redis", "set_repl", |_| Ok(Vec::new())),
    ("redis", "breakpoint", |_| Ok(vec![Value::Bool(false)])),
    ("redis", "debug", |_| Ok(Vec::new())),
];

/// The SHA-1 of a text in hexadecimal, as scripts are named.
pub(crate) fn sha1_hex(text: &[u8]) -> String {
    let digest = Sha1::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn table(field: &'static str, text: &[u8]) -> Value {
    Value::Map(vec![(Value::text(field), Value::bytes(text))])
}

/// Runs the command that the arguments are.
fn command(call: &Call<'_>) -> Result<Reply, Fault> {
    if call.len() == 0 {
        return Err(Fault::redis("ERR Please specify at least one argument for this redis lib call"));
    }
    let mut words = Vec::new();
    let mut bytes = 0;
    for at in 1..=call.len() {
        let word = if call.is_number(at) {
            argument(call.number(at)?).into_bytes().into()
        } else {
            call.string(at).map_err(|_| {
                Fault::redis("ERR Lua redis lib command arguments must be strings or integers")
            })?
        };
        bytes += word.len();
        words.push(word);
    }
    call.spend(COMMAND + words.len())?;
    call.spend_bytes(bytes)?;
    let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
    let before = call.room.work();
    let mut work = before;
    let reply = call.room.with_job(|job| job.host.call(&words, &mut work));
    let _ = call.room.spend(usize::try_from(before.saturating_sub(work)).unwrap_or(0));
    call.spend(0)?;
    let reply = reply.unwrap_or(Reply::error("ERR redis.call() can only be used while a script runs"));
    call.spend_bytes(reply.bytes_at_most())?;
    Ok(reply)
}

/// A number as an argument: whole numbers without a point, others with 17 digits.
fn argument(number: f64) -> String {
    // Below 2^53 every whole number is itself.
    if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
        return format!("{}", number as i64);
    }
    number::general(number, 17, false)
}

fn converted(call: &Call<'_>, reply: Reply) -> Result<Vec<Value>, Fault> {
    let protocol = call.room.with_job(|job| job.protocol).unwrap_or(2);
    let mut items = 0;
    let value = value_of(reply, protocol, &mut items);
    call.spend(items * 8)?;
    Ok(vec![value])
}

/// A reply as a value, in the types of the protocol.
fn value_of(reply: Reply, protocol: u8, items: &mut usize) -> Value {
    *items += 1;
    let is_new = protocol == 3;
    match reply {
        Reply::Ok => table("ok", b"OK"),
        Reply::Simple(text) => Value::Map(vec![(Value::text("ok"), Value::Str(text))]),
        Reply::Error(text) => Value::Map(vec![
            (Value::text("err"), Value::Str(text)),
            (Value::text("ignore_error_stats_update"), Value::Bool(true)),
        ]),
        Reply::Integer(number) => Value::Number(number as f64),
        Reply::Bulk(bytes) => Value::Str(bytes),
        Reply::Null | Reply::NullArray | Reply::Waiting(_) => {
            if is_new {
                Value::Nil
            } else {
                Value::Bool(false)
            }
        }
        Reply::Array(list) | Reply::Push(list) => {
            Value::List(list.into_iter().map(|item| value_of(item, protocol, items)).collect())
        }
        Reply::Map(pairs) => {
            let pairs = pairs.into_iter();
            if is_new {
                let pairs = pairs
                    .map(|(key, value)| (value_of(key, protocol, items), value_of(value, protocol, items)))
                    .collect();
                Value::Map(vec![(Value::text("map"), Value::Map(pairs))])
            } else {
                let flat = pairs.flat_map(|(key, value)| [key, value]);
                Value::List(flat.map(|item| value_of(item, protocol, items)).collect())
            }
        }
        Reply::Pairs(pairs) => {
            let pairs = pairs.into_iter();
            if is_new {
                let both = pairs.map(|(key, value)| {
                    Value::List(vec![value_of(key, protocol, items), value_of(value, protocol, items)])
                });
                Value::List(both.collect())
            } else {
                let flat = pairs.flat_map(|(key, value)| [key, value]);
                Value::List(flat.map(|item| value_of(item, protocol, items)).collect())
            }
        }
        Reply::Set(list) => {
            let members = list.into_iter();
            if is_new {
                let members =
                    members.map(|item| (value_of(item, protocol, items), Value::Bool(true))).collect();
                Value::Map(vec![(Value::text("set"), Value::Map(members))])
            } else {
                Value::List(members.map(|item| value_of(item, protocol, items)).collect())
            }
        }
        Reply::Double(number) if is_new => Value::Map(vec![(Value::text("double"), Value::Number(number))]),
        Reply::Double(number) => Value::Str(Bytes::from(number::general(number, 17, false))),
        Reply::Boolean(truth) if is_new => Value::Bool(truth),
        Reply::Boolean(truth) => Value::Number(f64::from(u8::from(truth))),
        Reply::BigNumber(digits) if is_new => {
            Value::Map(vec![(Value::text("big_number"), Value::Str(digits.into_owned().into()))])
        }
        Reply::BigNumber(digits) => Value::Str(digits.into_owned().into()),
        Reply::Verbatim(format, text) if is_new => {
            let fields = vec![
                (Value::text("format"), Value::bytes(&format)),
                (Value::text("string"), Value::Str(text)),
            ];
            Value::Map(vec![(Value::text("verbatim_string"), Value::Map(fields))])
        }
        Reply::Verbatim(_, text) => Value::Str(text),
        Reply::Granted(granted) if is_new => value_of(granted.map(), protocol, items),
        Reply::Granted(granted) => Value::List(
            granted.pair().map(|number| value_of(Reply::Integer(number), protocol, items)).to_vec(),
        ),
    }
}
