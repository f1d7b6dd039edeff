//! Going through the keys of a database.

use crate::commands::args::is;
use crate::commands::glob::{glob_matches, glob_work};
use crate::commands::scanning::{Step, cursor};
use crate::commands::spec::{Arity, CommandSpec, Flag, Handler, Keys};
use crate::commands::{Args, reply};
use crate::machine::View;
use crate::reply::Reply;
use std::ops::ControlFlow;

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
        handler: Handler::Read(|view, args| reply(scan(view, args))),
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
        view.work.spend(glob_work(args[0], key));
        if glob_matches(args[0], key) {
            found.push(Reply::bulk(key));
        }
        ControlFlow::Continue(())
    });
    Reply::Array(found)
}

/// SCAN cursor [MATCH pattern] [COUNT n] [TYPE t]
fn scan(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let mut step = Step::parse(cursor(args[0])?, args.from(1), true)?;
    let mut found = Vec::new();
    if let Some(from) = step.from {
        view.each_key(args.db, from, &mut |hash, key, header| {
            if !step.takes(hash) {
                return ControlFlow::Break(());
            }
            if step.kind.is_none_or(|kind| is(kind, header.kind.name())) && step.wants(view, key) {
                found.push(Reply::bulk(key));
            }
            ControlFlow::Continue(())
        });
    }
    Ok(step.reply(found))
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
