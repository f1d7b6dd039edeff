//! Looking at hashes.

use super::{Seen, random};
use crate::commands::scanning::{Step, cursor};
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, bulk, reply};
use crate::machine::View;
use crate::reply::Reply;
use std::ops::ControlFlow;

const HASH: CommandSpec =
    CommandSpec { group: Group::Hash, since: "2.0.0", keys: Keys::At(0), ..CommandSpec::BASE };

/// A hash with no more fields is shown by one HSCAN, as Redis does with its small hashes.
const SCANNED_AT_ONCE: i64 = 128;

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HGET",
        summary: "Returns the value of a field in a hash.",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| {
            about(view, args, Reply::Null, |hash| hash.get(args[1]).map_or(Reply::Null, |value| bulk(&value)))
        }),
        ..HASH
    },
    CommandSpec {
        name: "HMGET",
        summary: "Returns the values of several fields in a hash.",
        arity: Arity::AtLeast(2),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| reply(get_many(view, args))),
        ..HASH
    },
    CommandSpec {
        name: "HGETALL",
        summary: "Returns all fields and values in a hash.",
        arity: Arity::Exactly(1),
        handler: Handler::Read(|view, args| {
            about(view, args, Reply::Map(Vec::new()), |hash| Reply::Map(all(hash)))
        }),
        ..HASH
    },
    CommandSpec {
        name: "HKEYS",
        summary: "Returns all fields in a hash.",
        arity: Arity::Exactly(1),
        handler: Handler::Read(|view, args| list(view, args, |field, _| field)),
        ..HASH
    },
    CommandSpec {
        name: "HVALS",
        summary: "Returns all values in a hash.",
        arity: Arity::Exactly(1),
        handler: Handler::Read(|view, args| list(view, args, |_, value| value)),
        ..HASH
    },
    CommandSpec {
        name: "HLEN",
        summary: "Returns the number of fields in a hash.",
        arity: Arity::Exactly(1),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| {
            about(view, args, Reply::Integer(0), |hash| Reply::Integer(hash.count.cast_signed()))
        }),
        ..HASH
    },
    CommandSpec {
        name: "HEXISTS",
        summary: "Determines whether a field exists in a hash.",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| {
            about(view, args, Reply::Integer(0), |hash| Reply::flag(hash.get(args[1]).is_some()))
        }),
        ..HASH
    },
    CommandSpec {
        name: "HSTRLEN",
        summary: "Returns the length of the value of a field.",
        since: "3.2.0",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| {
            about(view, args, Reply::Integer(0), |hash| {
                Reply::count(hash.get(args[1]).map_or(0, |value| value.len()))
            })
        }),
        ..HASH
    },
    CommandSpec {
        name: "HSCAN",
        summary: "Iterates over fields and values of a hash.",
        since: "2.8.0",
        differs: "A field that is there during the whole iteration is returned exactly once (Redis: at least once). Cursors are valid on every node.",
        arity: Arity::AtLeast(2),
        handler: Handler::Read(|view, args| reply(scan(view, args))),
        ..HASH
    },
    CommandSpec {
        name: "HRANDFIELD",
        summary: "Returns one or more random fields from a hash.",
        since: "6.2.0",
        differs: "With a negative count, at most 1,000,000 fields: a larger reply would hold up everybody else.",
        arity: Arity::AtLeast(1),
        handler: Handler::Read(|view, args| reply(random::fields(view, args))),
        ..HASH
    },
];

/// A reply about a hash, or `absent` if there is none.
fn about(view: &View<'_>, args: &Args<'_>, absent: Reply, say: impl FnOnce(Seen<'_, '_>) -> Reply) -> Reply {
    reply(Seen::find(view, args.db, args[0]).map(|hash| hash.map_or(absent, say)))
}

/// All fields and values.
pub(super) fn all(hash: Seen<'_, '_>) -> Vec<(Reply, Reply)> {
    let mut pairs = Vec::new();
    hash.each(0, |_, field, value| {
        pairs.push((Reply::bulk(field), bulk(value)));
        ControlFlow::Continue(())
    });
    pairs
}

fn list(view: &View<'_>, args: &Args<'_>, pick: fn(Reply, Reply) -> Reply) -> Reply {
    about(view, args, Reply::Array(Vec::new()), |hash| {
        Reply::Array(all(hash).into_iter().map(|(field, value)| pick(field, value)).collect())
    })
}

fn get_many(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let hash = Seen::find(view, args.db, args[0])?;
    let get = |field| hash.and_then(|hash| hash.get(field)).map_or(Reply::Null, |value| bulk(&value));
    Ok(Reply::Array(args.from(1).map(get).collect()))
}

/// HSCAN key cursor [MATCH pattern] [COUNT n]
fn scan(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let cursor = cursor(args[1])?;
    // As in Redis, options are looked at only if there is a hash.
    let Some(hash) = Seen::find(view, args.db, args[0])? else {
        return Ok(Reply::Array(vec![Reply::bulk(b"0"), Reply::Array(Vec::new())]));
    };
    let mut step = Step::parse(cursor, args.from(2), false)?;
    step.at_least(SCANNED_AT_ONCE);
    let mut found = Vec::new();
    if let Some(from) = step.from {
        hash.each(from, |hash, field, value| {
            if !step.takes(hash) {
                return ControlFlow::Break(());
            }
            if step.wants(view, field) {
                found.extend([Reply::bulk(field), bulk(value)]);
            }
            ControlFlow::Continue(())
        });
    }
    Ok(step.reply(found))
}
