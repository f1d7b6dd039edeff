//! Whether keys are there, what they are, and their end.

use crate::commands::Args;
use crate::commands::spec::{Arity, CommandSpec, Flag, Handler, Keys};
use crate::machine::{Class, Stamp, Txn, View};
use crate::reply::Reply;

const KEYS: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(1),
    keys: Keys::Every { first: 0, step: 1 },
    flags: &[Flag::Fast],
    ..CommandSpec::BASE
};

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec { name: "DEL", summary: "Deletes one or more keys.", handler: Handler::Write(del), ..KEYS },
    CommandSpec {
        name: "UNLINK",
        summary: "Asynchronously deletes one or more keys.",
        since: "4.0.0",
        handler: Handler::Write(del),
        ..KEYS
    },
    CommandSpec {
        name: "EXISTS",
        summary: "Determines whether one or more keys exist.",
        handler: Handler::Read(exists),
        ..KEYS
    },
    CommandSpec {
        name: "TOUCH",
        summary: "Returns the number of existing keys out of those specified after updating the time they were last accessed.",
        since: "3.2.1",
        differs: "Only counts: there is no eviction, so no time of the last access is kept.",
        handler: Handler::Read(exists),
        ..KEYS
    },
    CommandSpec {
        name: "TYPE",
        summary: "Determines the type of value stored at a key.",
        arity: Arity::Exactly(1),
        keys: Keys::At(0),
        handler: Handler::Read(kind),
        ..KEYS
    },
];

fn del(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>) -> Reply {
    let remove = |key: &&&[u8]| {
        let place = txn.place(args.db, key);
        let is_there = txn.take_away(&place);
        if is_there {
            txn.notify(Class::Generic, "del", &place);
        }
        is_there
    };
    Reply::count(args.all().iter().filter(remove).count())
}

fn exists(view: &View<'_>, args: &Args<'_>) -> Reply {
    Reply::count(args.all().iter().filter(|key| view.find(args.db, key).is_some()).count())
}

fn kind(view: &View<'_>, args: &Args<'_>) -> Reply {
    Reply::simple(view.find(args.db, args[0]).map_or("none", |found| found.header.kind.name()))
}
