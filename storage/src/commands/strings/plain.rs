//! Reading and writing whole strings.

use super::set::{set, setex};
use super::{bulk_or_null, reply, string};
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors};
use crate::machine::{Class, Kind, Stamp, Txn, View};
use crate::reply::Reply;

const STRING: CommandSpec = CommandSpec { group: Group::String, keys: Keys::At(0), ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "GET",
        summary: "Returns the string value of a key.",
        arity: Arity::Exactly(1),
        flags: &[Flag::Fast],
        handler: Handler::Read(get),
        ..STRING
    },
    CommandSpec {
        name: "SET",
        summary: "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.",
        arity: Arity::AtLeast(2),
        flags: &[Flag::Grows, Flag::TellsWith("GET")],
        handler: Handler::Write(set),
        ..STRING
    },
    CommandSpec {
        name: "SETEX",
        summary: "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.",
        since: "2.0.0",
        arity: Arity::Exactly(3),
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, stamp, args| setex(txn, stamp, args, "setex", 1000)),
        ..STRING
    },
    CommandSpec {
        name: "PSETEX",
        summary: "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't exist.",
        since: "2.6.0",
        arity: Arity::Exactly(3),
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, stamp, args| setex(txn, stamp, args, "psetex", 1)),
        ..STRING
    },
    CommandSpec {
        name: "GETSET",
        summary: "Returns the previous string value of a key after setting it to a new value.",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast, Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(getset(txn, args))),
        ..STRING
    },
    CommandSpec {
        name: "GETDEL",
        summary: "Returns the string value of a key after deleting the key.",
        since: "6.2.0",
        arity: Arity::Exactly(1),
        flags: &[Flag::Fast],
        handler: Handler::Write(|txn, _, args| reply(getdel(txn, args))),
        ..STRING
    },
    CommandSpec {
        name: "MGET",
        summary: "Atomically returns the string values of one or more keys.",
        arity: Arity::AtLeast(1),
        keys: Keys::Every { first: 0, step: 1 },
        flags: &[Flag::Fast],
        handler: Handler::Read(mget),
        ..STRING
    },
    CommandSpec {
        name: "MSET",
        summary: "Atomically creates or modifies the string values of one or more keys.",
        since: "1.0.1",
        arity: Arity::AtLeast(2),
        keys: Keys::Every { first: 0, step: 2 },
        flags: &[Flag::Grows],
        handler: Handler::Write(mset),
        ..STRING
    },
    CommandSpec {
        name: "STRLEN",
        summary: "Returns the length of a string value.",
        since: "2.2.0",
        arity: Arity::Exactly(1),
        flags: &[Flag::Fast],
        handler: Handler::Read(strlen),
        ..STRING
    },
];

fn get(view: &View<'_>, args: &Args<'_>) -> Reply {
    match view.find(args.db, args[0]) {
        Some(found) if found.header.kind != Kind::String => errors::WRONG_TYPE,
        found => bulk_or_null(found.as_ref()),
    }
}

fn getset(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (place, found) = string(txn, args.db, args[0])?;
    txn.notify_miss(&place);
    txn.put_string(&place, None, args[1]);
    txn.notify(Class::String, "set", &place);
    Ok(bulk_or_null(found.as_ref()))
}

fn getdel(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (place, found) = string(txn, args.db, args[0])?;
    txn.notify_miss(&place);
    if txn.remove(&place) {
        txn.notify(Class::Generic, "del", &place);
    }
    Ok(bulk_or_null(found.as_ref()))
}

fn mget(view: &View<'_>, args: &Args<'_>) -> Reply {
    let one = |key: &&[u8]| {
        // A key of another type is no error here.
        let found = view.find(args.db, key).filter(|found| found.header.kind == Kind::String);
        bulk_or_null(found.as_ref())
    };
    Reply::Array(args.all().iter().map(one).collect())
}

fn mset(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>) -> Reply {
    let (pairs, []) = args.all().as_chunks::<2>() else {
        return Reply::error("ERR wrong number of arguments for 'mset' command");
    };
    for [key, value] in pairs {
        let place = txn.place(args.db, key);
        txn.put_string(&place, None, value);
        txn.notify(Class::String, "set", &place);
    }
    Reply::Ok
}

fn strlen(view: &View<'_>, args: &Args<'_>) -> Reply {
    match view.find(args.db, args[0]) {
        Some(found) if found.header.kind != Kind::String => errors::WRONG_TYPE,
        found => Reply::count(found.map_or(0, |found| found.body().len())),
    }
}
