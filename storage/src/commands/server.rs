//! Databases as wholes.

use super::Args;
use super::args::is;
use super::errors;
use super::number::parse_integer;
use super::spec::{Arity, CommandSpec, Flag, Group, Handler};
use crate::machine::{DATABASES, Stamp, Txn};
use crate::planted::{self, Bug};
use crate::reply::Reply;

const SERVER: CommandSpec = CommandSpec { group: Group::Server, ..CommandSpec::BASE };

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "DBSIZE",
        summary: "Returns the number of keys in the database.",
        arity: Arity::Exactly(0),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| {
            let keys = view.meta().databases[usize::from(args.db) % DATABASES].keys;
            Reply::Integer(i64::try_from(keys).unwrap_or(i64::MAX))
        }),
        ..SERVER
    },
    CommandSpec {
        name: "FLUSHDB",
        summary: "Removes all keys from the current database.",
        flags: &[Flag::Dangerous],
        handler: Handler::Write(|txn, _, args| flush(txn, args, args.db..args.db + 1)),
        ..SERVER
    },
    CommandSpec {
        name: "FLUSHALL",
        summary: "Removes all keys from all databases.",
        flags: &[Flag::Dangerous],
        handler: Handler::Write(|txn, _, args| flush(txn, args, 0..DATABASES as u8)),
        ..SERVER
    },
    CommandSpec {
        name: "SWAPDB",
        summary: "Swaps two Redis databases.",
        since: "4.0.0",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast, Flag::Dangerous],
        handler: Handler::Write(|txn, stamp, args| swap(txn, stamp, args).unwrap_or_else(|error| error)),
        ..SERVER
    },
];

/// FLUSHDB and FLUSHALL [ASYNC | SYNC]. Both are at once and leave the work for later.
fn flush(txn: &mut Txn<'_>, args: &Args<'_>, databases: std::ops::Range<u8>) -> Reply {
    match args.all() {
        [] => {}
        [option] if is(option, "ASYNC") || is(option, "SYNC") => {}
        _ => return errors::SYNTAX,
    }
    if planted::has(Bug::TokenFlushed) {
        txn.forget_tokens();
    }
    databases.for_each(|db| txn.flush(db));
    Reply::Ok
}

fn swap(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let parse = |arg, error| parse_integer(arg).and_then(|db| i32::try_from(db).ok()).ok_or(error);
    let a = parse(args[0], Reply::error("ERR invalid first DB index"))?;
    let b = parse(args[1], Reply::error("ERR invalid second DB index"))?;
    let is_database = |db: &u8| usize::from(*db) < DATABASES;
    let check = |db| u8::try_from(db).ok().filter(is_database).ok_or(errors::DB_INDEX);
    txn.swap(check(a)?, check(b)?);
    Ok(Reply::Ok)
}
