//! The table of commands. A command is one entry beside its function; nothing else matches on names.
//!
//! The class of a command is the type of its handler: a reading one gets a [`View`], which cannot change anything, a writing one a
//! [`Txn`] and the stamp of the decided sequence. Everything else (arity checks, COMMAND, ACL categories, metrics, documentation) is
//! derived from the entries.
//!
//! Rules for handlers:
//! * H1: only the state, the stamp and the arguments count. No clock, no randomness, no order of a hash map.
//! * H2: a handler that replies with an error must have changed nothing (but removed keys whose time is over), unless it says
//!   [`Txn::keep_despite_error`](crate::machine::Txn): a script that failed half-way.
//! * H3: changing what an existing command does changes the meaning of old logs: give it a new name, or version the entry.

mod args;
mod bits;
mod errors;
mod extended;
mod glob;
mod hashes;
mod internal;
mod keys;
mod lists;
mod locks;
mod lookup;
mod number;
mod pubsub;
mod scanning;
mod scripts;
mod server;
mod sessions;
mod spec;
mod strings;
#[cfg(test)]
mod tests;
mod transaction;
mod typed;

pub use args::Args;
pub use errors::{unknown_command, wrong_arity};
pub use glob::glob_matches;
pub use internal::{forget_waits, mark, reap, sweep, unwait};
pub(crate) use locks::LockWanted;
pub use lookup::lookup;
pub(crate) use lookup::lookup_any;
pub use number::database;
pub(crate) use sessions::no_session;
pub use spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
pub use transaction::{REPLY_BYTES_MAX, Watched, transaction};

#[allow(unused_imports, reason = "the documentation refers to them")]
use crate::machine::{Txn, View};
use crate::reply::Reply;
use crate::row::RowValue;

/// Handlers are written with `?`; an error is a reply, too.
fn reply(result: Result<Reply, Reply>) -> Reply {
    result.unwrap_or_else(|error| error)
}

/// A member as a reply; a long one is shared, not copied.
fn bulk(value: &RowValue) -> Reply {
    Reply::Bulk(value.bytes_from(0))
}

/// Every family of commands.
const FAMILIES: &[&[CommandSpec]] = &[
    strings::COMMANDS,
    strings::CONDITIONAL,
    strings::NUMBERS,
    strings::LCS,
    strings::RANGES,
    bits::COMMANDS,
    bits::COUNTS,
    bits::FIELDS,
    hashes::COMMANDS,
    hashes::LOOKS,
    lists::COMMANDS,
    lists::BLOCKING,
    lists::INSIDE,
    lists::LOOKS,
    keys::COMMANDS,
    keys::EXPIRY,
    keys::SCANS,
    keys::MOVES,
    keys::OBJECT,
    keys::SORT,
    locks::COMMANDS,
    sessions::COMMANDS,
    scripts::COMMANDS,
    server::COMMANDS,
    pubsub::COMMANDS,
    internal::COMMANDS,
    transaction::COMMANDS,
];

/// Every command a client may name.
pub fn all() -> impl Iterator<Item = &'static CommandSpec> {
    every().filter(|spec| !spec.is_internal())
}

fn every() -> impl Iterator<Item = &'static CommandSpec> {
    FAMILIES.iter().copied().flatten()
}
