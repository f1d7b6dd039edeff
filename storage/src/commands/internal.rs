//! Commands that a master proposes by itself. No client can name them.

use super::Args;
use super::number::parse_integer;
use super::spec::{Arity, CommandSpec, Flag, Group, Handler};
use crate::machine::{Stamp, Txn, encode_command};
use crate::reply::Reply;
use bytes::Bytes;

const SWEEP: &str = "WARLOCK.SWEEP";
const REAP: &str = "WARLOCK.REAP";

/// The most rows one command may touch, whatever it asks for: heartbeats wait while it runs.
const LIMIT_MAX: i64 = 10_000;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: SWEEP,
        summary: "Removes a number of keys whose time is over.",
        since: "0.1.0",
        group: Group::Server,
        arity: Arity::Exactly(1),
        flags: &[Flag::Internal],
        handler: Handler::Write(|txn, stamp, args| clean(txn, stamp, args, |txn, limit| txn.sweep(limit))),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: REAP,
        summary: "Removes a number of rows that nothing refers to any more.",
        since: "0.1.0",
        group: Group::Server,
        arity: Arity::Exactly(1),
        flags: &[Flag::Internal],
        handler: Handler::Write(|txn, stamp, args| clean(txn, stamp, args, |txn, limit| txn.reap(limit))),
        ..CommandSpec::BASE
    },
];

fn clean(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>, work: fn(&mut Txn<'_>, usize) -> usize) -> Reply {
    let limit = parse_integer(args[0]).unwrap_or(0).clamp(0, LIMIT_MAX);
    // The cast is exact: the number is between 0 and 10,000.
    Reply::count(work(txn, limit as usize))
}

/// The payload of a command that removes up to `limit` keys whose time is over, and replies with their number. If that is `limit`, there
/// are probably more.
#[must_use]
pub fn sweep(limit: u32) -> Bytes {
    encode_command(0, &[SWEEP.as_bytes(), limit.to_string().as_bytes()])
}

/// The payload of a command that removes up to `limit` rows left behind by FLUSHDB, DEL and others, and replies with their number.
#[must_use]
pub fn reap(limit: u32) -> Bytes {
    encode_command(0, &[REAP.as_bytes(), limit.to_string().as_bytes()])
}
