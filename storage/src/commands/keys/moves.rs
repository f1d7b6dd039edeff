//! Keys that go elsewhere: other names, other databases.

use crate::commands::args::is;
use crate::commands::number::database;
use crate::commands::spec::{Arity, CommandSpec, Flag, Handler, Keys};
use crate::commands::{Args, errors};
use crate::machine::{Class, Stamp, Txn};
use crate::reply::Reply;

const TWO_KEYS: CommandSpec =
    CommandSpec { arity: Arity::Exactly(2), keys: Keys::Span { first: 0, last: 1 }, ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "RENAME",
        summary: "Renames a key and overwrites the destination.",
        handler: Handler::Write(|txn, _, args| match rename(txn, args, true) {
            Some(_) => Reply::Ok,
            None => errors::NO_SUCH_KEY,
        }),
        ..TWO_KEYS
    },
    CommandSpec {
        name: "RENAMENX",
        summary: "Renames a key only when the target key name doesn't exist.",
        flags: &[Flag::Fast],
        handler: Handler::Write(|txn, _, args| {
            rename(txn, args, false).map_or(errors::NO_SUCH_KEY, Reply::flag)
        }),
        ..TWO_KEYS
    },
    CommandSpec {
        name: "COPY",
        summary: "Copies the value of a key to a new key.",
        since: "6.2.0",
        arity: Arity::AtLeast(2),
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, _, args| copy(txn, args).unwrap_or_else(|error| error)),
        ..TWO_KEYS
    },
    CommandSpec {
        name: "MOVE",
        summary: "Moves a key to another database.",
        arity: Arity::Exactly(2),
        keys: Keys::At(0),
        flags: &[Flag::Fast],
        handler: Handler::Write(|txn, stamp, args| shift(txn, stamp, args).unwrap_or_else(|error| error)),
        ..CommandSpec::BASE
    },
];

/// Whether it was renamed; nothing if there is no such key.
fn rename(txn: &mut Txn<'_>, args: &Args<'_>, overwrites: bool) -> Option<bool> {
    let (from, found) = txn.find(args.db, args[0]);
    let found = found?;
    if args[0] == args[1] {
        return Some(false);
    }
    let to = txn.place(args.db, args[1]);
    if to.old.is_some() && !overwrites {
        return Some(false);
    }
    txn.relocate(&from, &found, &to);
    txn.notify(Class::Generic, "rename_from", &from);
    txn.notify(Class::Generic, "rename_to", &to);
    Some(true)
}

/// COPY source destination [DB n] [REPLACE]
fn copy(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (mut to_db, mut replaces) = (args.db, false);
    let mut rest = args.from(2);
    while let Some(option) = rest.next() {
        if is(option, "REPLACE") {
            replaces = true;
        } else if is(option, "DB") {
            to_db = database(rest.next().ok_or(errors::SYNTAX)?)?;
        } else {
            return Err(errors::SYNTAX);
        }
    }
    if to_db == args.db && args[0] == args[1] {
        return Err(errors::SAME_OBJECT);
    }
    let (from, found) = txn.find(args.db, args[0]);
    txn.notify_miss(&from);
    let Some(found) = found else { return Ok(Reply::Integer(0)) };
    let to = txn.place(to_db, args[1]);
    if to.old.is_some() && !replaces {
        return Ok(Reply::Integer(0));
    }
    txn.copy(&found, &to);
    txn.notify(Class::Generic, "copy_to", &to);
    Ok(Reply::Integer(1))
}

fn shift(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let to_db = database(args[1])?;
    if to_db == args.db {
        return Err(errors::SAME_OBJECT);
    }
    let (from, Some(found)) = txn.find(args.db, args[0]) else { return Ok(Reply::Integer(0)) };
    let to = txn.place(to_db, args[0]);
    if to.old.is_some() {
        return Ok(Reply::Integer(0));
    }
    txn.relocate(&from, &found, &to);
    txn.notify(Class::Generic, "move_from", &from);
    txn.notify(Class::Generic, "move_to", &to);
    Ok(Reply::Integer(1))
}
