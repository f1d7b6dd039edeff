//! MULTI and what belongs to it. The work is in `connection::multi`.

use super::{Behind, Effect, InMulti, OwnCommand, Paused, error};
use crate::connection::{Multi, Read};
use bytes::Bytes;
use storage::commands::Arity;
use storage::reply::Reply;

pub(super) const COMMANDS: &[OwnCommand] = &[
    OwnCommand {
        name: "MULTI",
        summary: "Starts a transaction: what follows is queued until EXEC.",
        differs: "A wrong subcommand, or a wrong number of its arguments (`COMMAND COUNT x`), is told by EXEC, not when it is queued.",
        arity: Arity::Exactly(0),
        in_multi: InMulti::Runs,
        handler: |_, state, _| {
            if state.multi.is_some() {
                return error("ERR MULTI calls can not be nested");
            }
            state.multi = Some(Multi::new(state.db));
            Effect::Reply(Reply::Ok)
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "EXEC",
        summary: "Runs the queued commands as one, unless a watched key has changed.",
        differs: "May refuse where a watched key was absent before and after FLUSHDB or SWAPDB: every key of the database counts as changed then.",
        arity: Arity::Exactly(0),
        behind: Behind::Reads,
        in_multi: InMulti::Ends,
        paused: Paused::AsWrite,
        tells: true,
        handler: |connection, state, _| connection.exec(state),
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "DISCARD",
        summary: "Drops the queued commands and forgets the watched keys.",
        arity: Arity::Exactly(0),
        behind: Behind::Reads,
        in_multi: InMulti::Runs,
        handler: |_, state, _| {
            if state.multi.take().is_none() {
                return error("ERR DISCARD without MULTI");
            }
            state.watching.clear();
            Effect::Reply(Reply::Ok)
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "WATCH",
        summary: "Lets the next EXEC do nothing if one of the keys changes until then, on whatever node.",
        arity: Arity::AtLeast(1),
        behind: Behind::Writes,
        in_multi: InMulti::Runs,
        handler: |_, state, args| {
            if state.multi.is_some() {
                return error("ERR WATCH inside MULTI is not allowed");
            }
            Effect::Read(Read::Watch(state.db, args.iter().map(|key| Bytes::copy_from_slice(key)).collect()))
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "UNWATCH",
        summary: "Forgets the watched keys.",
        arity: Arity::Exactly(0),
        behind: Behind::Reads,
        handler: |_, state, _| {
            state.watching.clear();
            Effect::Reply(Reply::Ok)
        },
        ..OwnCommand::BASE
    },
];
