//! One bit, and whole strings bit by bit.

use super::{bit_at, grown, offset, set_bit, string};
use crate::commands::args::is;
use crate::commands::number::parse_integer;
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors, reply, typed};
use crate::machine::{Class, Kind, Txn, View};
use crate::reply::Reply;

const BITS: CommandSpec =
    CommandSpec { group: Group::Bitmap, since: "2.2.0", keys: Keys::At(0), ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "GETBIT",
        summary: "Returns a bit value by offset.",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| reply(get(view, args))),
        ..BITS
    },
    CommandSpec {
        name: "SETBIT",
        summary: "Sets or clears the bit at offset of the string value. Creates the key if it doesn't exist.",
        arity: Arity::Exactly(3),
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(set(txn, args))),
        ..BITS
    },
    CommandSpec {
        name: "BITOP",
        summary: "Performs bitwise operations on multiple strings, and stores the result.",
        since: "2.6.0",
        arity: Arity::AtLeast(3),
        keys: Keys::Every { first: 1, step: 1 },
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(combine(txn, args))),
        ..BITS
    },
];

fn get(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let offset = offset(args[1], None)?;
    let found = string(view, args.db, args[0])?;
    Ok(Reply::flag(found.is_some_and(|found| bit_at(found.body(), offset))))
}

fn set(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let offset = offset(args[1], None)?;
    let on = match parse_integer(args[2]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Reply::error("ERR bit is not an integer or out of range")),
    };
    let (place, found) = typed::write(txn, args.db, args[0], Kind::String)?;
    let mut bytes = grown(txn, found.as_ref(), offset)?;
    let was_on = bit_at(&bytes, offset);
    // What stays as it is was not written, for WATCH.
    if was_on != on || found.is_none_or(|found| found.body().len() != bytes.len()) {
        set_bit(&mut bytes, offset, on);
        txn.put_string(&place, place.deadline_ms(), &bytes);
        txn.notify(Class::String, "setbit", &place);
    }
    Ok(Reply::flag(was_on))
}

/// BITOP AND|OR|XOR|NOT destination key [key …]
fn combine(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let operation: fn(u8, u8) -> u8 = match args[0] {
        word if is(word, "AND") => |a, b| a & b,
        word if is(word, "OR") => |a, b| a | b,
        word if is(word, "XOR") => |a, b| a ^ b,
        word if is(word, "NOT") => |a, _| !a,
        _ => return Err(errors::SYNTAX),
    };
    if is(args[0], "NOT") && args.len() != 3 {
        return Err(Reply::error("ERR BITOP NOT must be called with a single source key."));
    }
    let mut sources = Vec::new();
    for key in args.from(2) {
        let (place, found) = typed::write(txn, args.db, key, Kind::String)?;
        txn.notify_miss(&place);
        sources.push(found.map_or(Vec::new(), |found| found.body().to_vec()));
        txn.work.copy(2 * sources.last().map_or(0, Vec::len));
        if txn.work.is_over() {
            return Ok(Reply::Null);
        }
    }
    let length = sources.iter().map(Vec::len).max().unwrap_or(0);
    txn.work.copy(length.saturating_mul(2 * sources.len()));
    if txn.work.is_over() {
        return Ok(Reply::Null);
    }
    // Shorter ones count as if zeros followed.
    sources.iter_mut().for_each(|source| source.resize(length, 0));
    let mut sources = sources.into_iter();
    let mut result = sources.next().unwrap_or_default();
    if is(args[0], "NOT") {
        result.iter_mut().for_each(|byte| *byte = operation(*byte, 0));
    }
    for source in sources {
        result.iter_mut().zip(source).for_each(|(byte, other)| *byte = operation(*byte, other));
    }
    let place = txn.place(args.db, args[1]);
    if result.is_empty() {
        if txn.remove(&place) {
            txn.notify(Class::Generic, "del", &place);
        }
    } else {
        txn.put_string(&place, None, &result);
        txn.notify(Class::String, "set", &place);
    }
    Ok(Reply::count(result.len()))
}
