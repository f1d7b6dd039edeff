//! Strings as numbers. They keep their deadline.

use super::{reply, string};
use crate::commands::extended::{Extended, Parsed};
use crate::commands::number::{integer, parse_integer};
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors};
use crate::machine::{Class, Kind, Txn};
use crate::reply::Reply;

const NUMBER: CommandSpec = CommandSpec {
    group: Group::String,
    keys: Keys::At(0),
    flags: &[Flag::Fast, Flag::Grows],
    ..CommandSpec::BASE
};

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "INCR",
        summary: "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        arity: Arity::Exactly(1),
        handler: Handler::Write(|txn, _, args| reply(add(txn, args, 1))),
        ..NUMBER
    },
    CommandSpec {
        name: "DECR",
        summary: "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        arity: Arity::Exactly(1),
        handler: Handler::Write(|txn, _, args| reply(add(txn, args, -1))),
        ..NUMBER
    },
    CommandSpec {
        name: "INCRBY",
        summary: "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        arity: Arity::Exactly(2),
        handler: Handler::Write(|txn, _, args| reply(integer(args[1]).and_then(|by| add(txn, args, by)))),
        ..NUMBER
    },
    CommandSpec {
        name: "DECRBY",
        summary: "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist.",
        arity: Arity::Exactly(2),
        handler: Handler::Write(|txn, _, args| reply(subtract(txn, args))),
        ..NUMBER
    },
    CommandSpec {
        name: "INCRBYFLOAT",
        summary: "Increments the floating point value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        since: "2.6.0",
        differs: "Takes no hexadecimal numbers.",
        arity: Arity::Exactly(2),
        handler: Handler::Write(|txn, _, args| reply(add_float(txn, args))),
        ..NUMBER
    },
];

fn add(txn: &mut Txn<'_>, args: &Args<'_>, by: i64) -> Result<Reply, Reply> {
    let (place, found) = string(txn, args.db, args[0])?;
    let old = match &found {
        Some(found) => parse_integer(found.body()).ok_or(errors::NOT_AN_INTEGER)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(errors::OVERFLOW)?;
    txn.put(&place, Kind::String, place.deadline_ms(), &[new.to_string().as_bytes()]);
    txn.notify(Class::String, "incrby", &place);
    Ok(Reply::Integer(new))
}

fn subtract(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let by = integer(args[1])?.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?;
    add(txn, args, by)
}

fn add_float(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (place, found) = string(txn, args.db, args[0])?;
    let old = found.as_ref().map_or(&b"0"[..], |found| found.body());
    let old = Extended::parse(old).ok_or(errors::NOT_A_FLOAT)?;
    let by = Extended::parse(args[1]).ok_or(errors::NOT_A_FLOAT)?;
    let (Parsed::Finite(old), Parsed::Finite(by)) = (old, by) else { return Err(errors::NOT_FINITE) };
    let text = old.add(by).ok_or(errors::NOT_FINITE)?.to_text();
    txn.put(&place, Kind::String, place.deadline_ms(), &[text.as_bytes()]);
    txn.notify(Class::String, "incrbyfloat", &place);
    Ok(Reply::Bulk(text.into()))
}
