//! Going through the keys of a database.
//!
//! Keys lie in the order of their hashes, so a cursor is a piece of a hash: it needs no memory on a node, is the same on
//! every node, and survives a fail-over in the middle of a scan. A key that is there all the time is shown exactly once.

use crate::commands::args::is;
use crate::commands::number::{integer, parse_integer};
use crate::commands::spec::{Arity, CommandSpec, Flag, Handler, Keys};
use crate::commands::{Args, errors, glob_matches};
use crate::machine::View;
use crate::reply::Reply;
use std::ops::ControlFlow;

/// A cursor is the upper 48 bits of a hash: some clients keep cursors as floating-point numbers, which have 53.
const CURSOR_SHIFT: u32 = 16;

/// How many keys a SCAN looks at if nobody says.
const COUNT_DEFAULT: i64 = 10;

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "KEYS",
        summary: "Returns all key names that match a pattern.",
        arity: Arity::Exactly(1),
        flags: &[Flag::Dangerous],
        handler: Handler::Read(keys),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "SCAN",
        summary: "Iterates over the key names in the database.",
        since: "2.8.0",
        differs: "A key that is there during the whole iteration is returned exactly once (Redis: at least once). Cursors are valid on every node.",
        arity: Arity::AtLeast(1),
        handler: Handler::Read(|view, args| scan(view, args).unwrap_or_else(|error| error)),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "RANDOMKEY",
        summary: "Returns a random key name from the database.",
        arity: Arity::Exactly(0),
        keys: Keys::None,
        handler: Handler::Read(random_key),
        ..CommandSpec::BASE
    },
];

fn keys(view: &View<'_>, args: &Args<'_>) -> Reply {
    let mut found = Vec::new();
    view.each_key(args.db, 0, &mut |_, key, _| {
        if glob_matches(args[0], key) {
            found.push(Reply::bulk(key));
        }
        ControlFlow::Continue(())
    });
    Reply::Array(found)
}

/// SCAN cursor [MATCH pattern] [COUNT n] [TYPE t]
fn scan(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let cursor =
        parse_integer(args[0]).and_then(|cursor| u64::try_from(cursor).ok()).ok_or(errors::INVALID_CURSOR)?;
    let (mut pattern, mut count, mut kind) = (None, COUNT_DEFAULT, None);
    let mut rest = args.from(1);
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or(errors::SYNTAX)?;
        if is(option, "MATCH") {
            pattern = Some(value);
        } else if is(option, "COUNT") {
            count = integer(value)?;
            if count < 1 {
                return Err(errors::SYNTAX);
            }
        } else if is(option, "TYPE") {
            kind = Some(value);
        } else {
            return Err(errors::SYNTAX);
        }
    }

    let (mut left, mut last, mut next) = (count, None, 0);
    let mut found = Vec::new();
    // A cursor beyond all hashes has nothing left to show.
    if let Some(from) = cursor.checked_shl(CURSOR_SHIFT).filter(|from| from >> CURSOR_SHIFT == cursor) {
        view.each_key(args.db, from, &mut |hash, key, header| {
            let place = hash >> CURSOR_SHIFT;
            // Keys that share a place are shown together: a cursor could not point between them.
            if left <= 0 && last != Some(place) {
                next = place;
                return ControlFlow::Break(());
            }
            left -= 1;
            last = Some(place);
            if kind.is_none_or(|kind| is(kind, header.kind.name()))
                && pattern.is_none_or(|pattern| glob_matches(pattern, key))
            {
                found.push(Reply::bulk(key));
            }
            ControlFlow::Continue(())
        });
    }
    Ok(Reply::Array(vec![Reply::Bulk(next.to_string().into()), Reply::Array(found)]))
}

fn random_key(view: &View<'_>, args: &Args<'_>) -> Reply {
    let mut found = Reply::Null;
    // The first key behind a random place, or, behind the last one, the first of all. Hashes are spread evenly.
    for from in [view.random(), 0] {
        view.each_key(args.db, from, &mut |_, key, _| {
            found = Reply::bulk(key);
            ControlFlow::Break(())
        });
        if found != Reply::Null {
            break;
        }
    }
    found
}
