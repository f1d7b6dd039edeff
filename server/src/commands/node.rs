//! Commands about the node as a whole.

use super::{Behind, Effect, InMulti, OwnCommand, Paused, error, is};
use crate::engine::Ticket;
use crate::stats::unix_time;
use bytes::Bytes;
use storage::commands::Arity;
use storage::reply::Reply;

/// Nobody waits for the answer.
const NOBODY: Ticket = Ticket { connection: 0, place: 0 };

fn number(arg: &[u8]) -> Option<i64> {
    std::str::from_utf8(arg).ok()?.parse().ok()
}

pub(super) const COMMANDS: &[OwnCommand] = &[
    OwnCommand {
        name: "ROLE",
        summary: "Tells that this node takes writes, and how far it has applied the log.",
        differs: "Every node says `master`: every node takes writes.",
        arity: Arity::Exactly(0),
        handler: |connection, _, _| {
            let applied = i64::try_from(connection.face.engine().facts().applied).unwrap_or(i64::MAX);
            let parts = vec![Reply::bulk(b"master"), Reply::Integer(applied), Reply::Array(Vec::new())];
            Effect::Reply(Reply::Array(parts))
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "TIME",
        summary: "Tells this node's wall clock: seconds and microseconds.",
        arity: Arity::Exactly(0),
        handler: |_, _, _| {
            let now = unix_time();
            let text = |number: u64| Reply::Bulk(Bytes::from(number.to_string()));
            Effect::Reply(Reply::Array(vec![text(now.as_secs()), text(u64::from(now.subsec_micros()))]))
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "LASTSAVE",
        summary: "Tells the time: every acknowledged write is on the disks of a majority already.",
        arity: Arity::Exactly(0),
        handler: |_, _, _| {
            Effect::Reply(Reply::Integer(i64::try_from(unix_time().as_secs()).unwrap_or(i64::MAX)))
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "SAVE",
        summary: "Starts a snapshot, so that the journal gets shorter. What is acknowledged is safe already.",
        arity: Arity::Exactly(0),
        in_multi: InMulti::Refused,
        handler: |connection, _, _| {
            connection.face.engine().admin(vec![Bytes::from_static(b"SNAPSHOT")], NOBODY);
            Effect::Reply(Reply::Ok)
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "BGSAVE",
        summary: "Starts a snapshot, so that the journal gets shorter.",
        in_multi: InMulti::Refused,
        handler: |_, _, args| match args {
            [] => Effect::Admin(vec![Bytes::from_static(b"SNAPSHOT")]),
            [option] if is(option, "SCHEDULE") => Effect::Admin(vec![Bytes::from_static(b"SNAPSHOT")]),
            _ => error("ERR syntax error"),
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "WAIT",
        summary: "Answers when the writes before it are: a majority holds them then. Counts the members besides this one that must.",
        differs: "Redis counts replicas that have the writes; here an answered write is on a majority already.",
        arity: Arity::Exactly(2),
        behind: Behind::Everything,
        handler: |connection, _, args| match (number(args[0]), number(args[1])) {
            (None, _) => error("ERR value is not an integer or out of range"),
            (_, None) => error("ERR timeout is not an integer or out of range"),
            (_, Some(timeout)) if timeout < 0 => error("ERR timeout is negative"),
            _ => Effect::Reply(Reply::count(connection.face.engine().facts().voters / 2)),
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "WARLOCK",
        summary: "Administers the cluster; WARLOCK HELP lists what there is.",
        arity: Arity::AtLeast(1),
        in_multi: InMulti::Refused,
        paused: Paused::Never,
        handler: |_, _, args| Effect::Admin(args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect()),
        ..OwnCommand::BASE
    },
];
