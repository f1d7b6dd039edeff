//! SUBSCRIBE and what belongs to it. PUBLISH is a command about data: it goes through the log.

use super::{Behind, Effect, OwnCommand, error, is};
use crate::connection::{Connection, State};
use crate::pubsub::Kind;
use bytes::Bytes;
use storage::commands::{Arity, glob_matches};
use storage::reply::Reply;

/// What all four have in common.
const SUBSCRIBER: OwnCommand =
    OwnCommand { behind: Behind::Everything, while_subscribed: true, ..OwnCommand::BASE };

pub(super) const COMMANDS: &[OwnCommand] = &[
    OwnCommand {
        name: "SUBSCRIBE",
        summary: "Listens for messages published to channels.",
        arity: Arity::AtLeast(1),
        handler: |connection, state, args| subscribe(connection, state, args, Kind::Channel),
        ..SUBSCRIBER
    },
    OwnCommand {
        name: "PSUBSCRIBE",
        summary: "Listens for messages published to channels that match patterns.",
        arity: Arity::AtLeast(1),
        handler: |connection, state, args| subscribe(connection, state, args, Kind::Pattern),
        ..SUBSCRIBER
    },
    OwnCommand {
        name: "UNSUBSCRIBE",
        summary: "Stops listening to channels, or to all of them.",
        handler: |connection, state, args| unsubscribe(connection, state, args, Kind::Channel),
        ..SUBSCRIBER
    },
    OwnCommand {
        name: "PUNSUBSCRIBE",
        summary: "Stops listening to patterns, or to all of them.",
        handler: |connection, state, args| unsubscribe(connection, state, args, Kind::Pattern),
        ..SUBSCRIBER
    },
    OwnCommand {
        name: "PUBSUB",
        summary: "Tells who listens on this node: CHANNELS, NUMSUB, NUMPAT.",
        arity: Arity::AtLeast(1),
        parts: &["CHANNELS", "NUMSUB", "NUMPAT", "HELP"],
        handler: pubsub,
        ..OwnCommand::BASE
    },
];

fn confirmation(word: &'static str, name: Reply, state: &State) -> Reply {
    Reply::Push(vec![Reply::bulk(word.as_bytes()), name, Reply::count(state.subscribed.count())])
}

fn subscribe(connection: &Connection, state: &mut State, args: &[&[u8]], kind: Kind) -> Effect {
    let word = if kind == Kind::Channel { "subscribe" } else { "psubscribe" };
    let mut replies = Vec::with_capacity(args.len());
    for name in args {
        if !state.subscribed.has_room(name.len()) {
            replies.push(Reply::error("ERR too many subscriptions of one connection"));
            break;
        }
        let name = Bytes::copy_from_slice(name);
        connection.face.subscribe(|all| all.add(connection.id, &mut state.subscribed, kind, &name));
        replies.push(confirmation(word, Reply::Bulk(name), state));
    }
    Effect::Many(replies)
}

fn unsubscribe(connection: &Connection, state: &mut State, args: &[&[u8]], kind: Kind) -> Effect {
    let (word, all) = match kind {
        Kind::Channel => ("unsubscribe", &state.subscribed.channels),
        Kind::Pattern => ("punsubscribe", &state.subscribed.patterns),
    };
    let names: Vec<Bytes> = if args.is_empty() {
        all.iter().cloned().collect()
    } else {
        args.iter().map(|name| Bytes::copy_from_slice(name)).collect()
    };
    if names.is_empty() {
        return Effect::Many(vec![confirmation(word, Reply::Null, state)]);
    }
    let mut replies = Vec::with_capacity(names.len());
    for name in names {
        connection.face.subscribe(|all| all.remove(connection.id, &mut state.subscribed, kind, &name));
        replies.push(confirmation(word, Reply::Bulk(name), state));
    }
    Effect::Many(replies)
}

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "HELP",
    "    Print this help.",
];

fn pubsub(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let known = connection.face.subscriptions.borrow();
    let reply = match args {
        [what] if is(what, "CHANNELS") => Reply::Array(known.channels().cloned().map(Reply::Bulk).collect()),
        [what, pattern] if is(what, "CHANNELS") => {
            let fits = known.channels().filter(|channel| glob_matches(pattern, channel));
            Reply::Array(fits.cloned().map(Reply::Bulk).collect())
        }
        [what, channels @ ..] if is(what, "NUMSUB") => {
            let pair = |channel: &&[u8]| [Reply::bulk(channel), Reply::count(known.listeners(channel))];
            Reply::Array(channels.iter().flat_map(pair).collect())
        }
        [what] if is(what, "NUMPAT") => Reply::count(known.patterns()),
        [what] if is(what, "HELP") => super::help(HELP),
        [what, ..] if is(what, "CHANNELS") => {
            return super::wrong_use("PUBSUB", what);
        }
        [what, ..] if is(what, "NUMPAT") => {
            return super::wrong_subcommand_arity("pubsub", what);
        }
        [what, ..] => return super::unknown_subcommand("PUBSUB", what),
        [] => return error("ERR wrong number of arguments for 'pubsub' command"),
    };
    Effect::Reply(reply)
}
