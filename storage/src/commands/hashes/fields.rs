//! Writing fields. The key keeps its deadline.

use super::Changing;
use crate::commands::extended::{Extended, Parsed};
use crate::commands::number::{integer, parse_integer};
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors, reply};
use crate::machine::Txn;
use crate::reply::Reply;

const HASH: CommandSpec = CommandSpec {
    group: Group::Hash,
    since: "2.0.0",
    keys: Keys::At(0),
    flags: &[Flag::Fast, Flag::Grows],
    ..CommandSpec::BASE
};

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HSET",
        summary: "Creates or modifies the value of a field in a hash.",
        arity: Arity::AtLeast(3),
        handler: Handler::Write(|txn, _, args| reply(set(txn, args, "hset").map(Reply::count))),
        ..HASH
    },
    CommandSpec {
        name: "HMSET",
        summary: "Sets the values of multiple fields.",
        arity: Arity::AtLeast(3),
        handler: Handler::Write(|txn, _, args| reply(set(txn, args, "hmset").map(|_| Reply::Ok))),
        ..HASH
    },
    CommandSpec {
        name: "HSETNX",
        summary: "Sets the value of a field in a hash only when the field doesn't exist.",
        arity: Arity::Exactly(3),
        handler: Handler::Write(|txn, _, args| reply(setnx(txn, args))),
        ..HASH
    },
    CommandSpec {
        name: "HDEL",
        summary: "Deletes one or more fields and their values from a hash. Deletes the hash if no fields remain.",
        arity: Arity::AtLeast(2),
        flags: &[Flag::Fast],
        handler: Handler::Write(|txn, _, args| reply(del(txn, args))),
        ..HASH
    },
    CommandSpec {
        name: "HINCRBY",
        summary: "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if the field doesn't exist.",
        arity: Arity::Exactly(3),
        handler: Handler::Write(|txn, _, args| reply(add(txn, args))),
        ..HASH
    },
    CommandSpec {
        name: "HINCRBYFLOAT",
        summary: "Increments the floating point value of a field by a number. Uses 0 as initial value if the field doesn't exist.",
        since: "2.6.0",
        differs: "Takes no hexadecimal numbers.",
        arity: Arity::Exactly(3),
        handler: Handler::Write(|txn, _, args| reply(add_float(txn, args))),
        ..HASH
    },
];

/// HSET key field value [field value …]; says how many fields are new.
fn set(txn: &mut Txn<'_>, args: &Args<'_>, command: &str) -> Result<usize, Reply> {
    let (pairs, []) = args.all()[1..].as_chunks::<2>() else {
        return Err(errors::wrong_arity_of(command));
    };
    let mut hash = Changing::find_or_new(txn, args.db, args[0])?;
    let new = pairs.iter().filter(|[field, value]| hash.set(txn, field, value)).count();
    hash.save(txn, "hset");
    Ok(new)
}

fn setnx(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let mut hash = Changing::find_or_new(txn, args.db, args[0])?;
    if hash.get(txn, args[1]).is_some() {
        return Ok(Reply::Integer(0));
    }
    hash.set(txn, args[1], args[2]);
    hash.save(txn, "hset");
    Ok(Reply::Integer(1))
}

fn del(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let Some(mut hash) = Changing::find(txn, args.db, args[0])? else { return Ok(Reply::Integer(0)) };
    let removed = args.from(1).filter(|field| hash.remove(txn, field)).count();
    if removed > 0 {
        hash.save(txn, "hdel");
    }
    Ok(Reply::count(removed))
}

fn add(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let by = integer(args[2])?;
    let mut hash = Changing::find_or_new(txn, args.db, args[0])?;
    let old = match hash.get(txn, args[1]) {
        Some(old) => parse_integer(&old).ok_or(Reply::error("ERR hash value is not an integer"))?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(errors::OVERFLOW)?;
    hash.set(txn, args[1], new.to_string().as_bytes());
    hash.save(txn, "hincrby");
    Ok(Reply::Integer(new))
}

fn add_float(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let Parsed::Finite(by) = Extended::parse(args[2]).ok_or(errors::NOT_A_FLOAT)? else {
        return Err(Reply::error("ERR value is NaN or Infinity"));
    };
    let mut hash = Changing::find_or_new(txn, args.db, args[0])?;
    let old = hash.get(txn, args[1]);
    let old = old.as_ref().map_or(&b"0"[..], |old| old.as_slice());
    let old = Extended::parse(old).ok_or(Reply::error("ERR hash value is not a float"))?;
    let Parsed::Finite(old) = old else { return Err(errors::NOT_FINITE) };
    let text = old.add(by).ok_or(errors::NOT_FINITE)?.to_text();
    hash.set(txn, args[1], text.as_bytes());
    hash.save(txn, "hincrbyfloat");
    Ok(Reply::Bulk(text.into()))
}
