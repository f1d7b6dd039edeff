//! Strings, if: set if absent, delete if equal, read and change the deadline.

use super::set::Lifetime;
use super::{bulk_or_null, reply, string};
use crate::commands::args::is;
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors};
use crate::machine::{Class, Place, Stamp, Txn};
use crate::reply::Reply;

const STRING: CommandSpec =
    CommandSpec { group: Group::String, keys: Keys::At(0), flags: &[Flag::Fast], ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SETNX",
        summary: "Set the string value of a key only when the key doesn't exist.",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast, Flag::Grows],
        handler: Handler::Write(setnx),
        ..STRING
    },
    CommandSpec {
        name: "MSETNX",
        summary: "Atomically modifies the string values of one or more keys only when all keys don't exist.",
        since: "1.0.1",
        arity: Arity::AtLeast(2),
        keys: Keys::Every { first: 0, step: 2 },
        flags: &[Flag::Grows],
        handler: Handler::Write(msetnx),
        ..STRING
    },
    CommandSpec {
        name: "GETEX",
        summary: "Returns the string value of a key after setting its expiration time.",
        since: "6.2.0",
        arity: Arity::AtLeast(1),
        flags: &[Flag::Fast, Flag::Tells],
        handler: Handler::Write(|txn, stamp, args| reply(getex(txn, stamp, args))),
        ..STRING
    },
    CommandSpec {
        name: "DELIFEQ",
        summary: "Deletes a key if its string value is equal to the given one.",
        since: "9.0.0",
        differs: "From Valkey 9; Redis 7 does not have it.",
        arity: Arity::Exactly(2),
        handler: Handler::Write(|txn, _, args| reply(delifeq(txn, args))),
        ..STRING
    },
    CommandSpec {
        name: "DELEX",
        summary: "Deletes a key if its string value is, or is not, equal to the given one.",
        since: "8.4.0",
        differs: "From Redis 8.4, without the comparison of digests (IFDEQ, IFDNE).",
        arity: Arity::AtLeast(1),
        handler: Handler::Write(|txn, _, args| reply(delex(txn, args))),
        ..STRING
    },
];

fn setnx(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>) -> Reply {
    let place = txn.place(args.db, args[0]);
    if place.old.is_none() {
        txn.put_string(&place, None, args[1]);
        txn.notify(Class::String, "set", &place);
    }
    Reply::flag(place.old.is_none())
}

fn msetnx(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>) -> Reply {
    let (pairs, []) = args.all().as_chunks::<2>() else {
        return Reply::error("ERR wrong number of arguments for 'msetnx' command");
    };
    if pairs.iter().any(|[key, _]| txn.place(args.db, key).old.is_some()) {
        return Reply::Integer(0);
    }
    for [key, value] in pairs {
        let place = txn.place(args.db, key);
        txn.put_string(&place, None, value);
        txn.notify(Class::String, "set", &place);
    }
    Reply::Integer(1)
}

/// GETEX key [EX s | PX ms | EXAT t | PXAT t | PERSIST]
fn getex(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let (mut lifetime, mut persists) = (None, false);
    let mut rest = args.from(1);
    while let Some(option) = rest.next() {
        if is(option, "PERSIST") {
            persists = true;
        } else {
            lifetime = Some(Lifetime::take(lifetime, option, &mut rest)?.ok_or(errors::SYNTAX)?);
        }
        if persists && lifetime.is_some() {
            return Err(errors::SYNTAX);
        }
    }
    let (place, found) = string(txn, args.db, args[0])?;
    txn.notify_miss(&place);
    let Some(found) = found else { return Ok(Reply::Null) };
    if let Some(lifetime) = lifetime {
        let deadline_ms = lifetime.deadline_ms(stamp, "getex")?;
        txn.set_deadline(&place, Some(deadline_ms));
    } else if persists && place.deadline_ms().is_some() {
        txn.set_deadline(&place, None);
    }
    Ok(bulk_or_null(Some(&found)))
}

fn delete(txn: &mut Txn<'_>, place: &Place<'_>) -> bool {
    let is_there = txn.remove(place);
    if is_there {
        txn.notify(Class::Generic, "del", place);
    }
    is_there
}

fn delifeq(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (place, found) = string(txn, args.db, args[0])?;
    let is_equal = found.is_some_and(|found| found.body() == args[1]);
    Ok(Reply::flag(is_equal && delete(txn, &place)))
}

/// DELEX key [IFEQ value | IFNE value]
fn delex(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let wants_equal = match args.len() {
        1 => {
            let place = txn.place(args.db, args[0]);
            return Ok(Reply::flag(delete(txn, &place)));
        }
        3 if is(args[1], "IFEQ") => true,
        3 if is(args[1], "IFNE") => false,
        3 => return Err(Reply::error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")),
        _ => return Err(Reply::error("ERR wrong number of arguments for 'delex' command")),
    };
    let (place, Some(found)) = string(txn, args.db, args[0])? else { return Ok(Reply::Integer(0)) };
    Ok(Reply::flag((found.body() == args[2]) == wants_equal && delete(txn, &place)))
}
