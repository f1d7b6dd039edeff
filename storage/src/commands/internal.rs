//! Commands that a master proposes by itself. No client can name them.

use super::Args;
use super::number::parse_integer;
use super::spec::{Arity, CommandSpec, Flag, Group, Handler};
use crate::machine::{Caller, Stamp, Txn, encode_command};
use crate::reply::Reply;
use bytes::Bytes;

const SWEEP: &str = "WARLOCK.SWEEP";
const REAP: &str = "WARLOCK.REAP";
const UNWAIT: &str = "WARLOCK.UNWAIT";
const FORGET_WAITS: &str = "WARLOCK.FORGET-WAITS";
const MARK: &str = "WARLOCK.MARK";

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
    CommandSpec {
        name: UNWAIT,
        summary: "Ends the wait of a client that is gone or was unblocked.",
        since: "0.1.0",
        group: Group::Server,
        arity: Arity::Exactly(4),
        flags: &[Flag::Internal],
        handler: Handler::Write(|txn, _, args| {
            let caller = Caller { node: number(args[0]), incarnation: number(args[1]), seq: number(args[2]) };
            Reply::flag(txn.unwait(caller, args[3] == b"1"))
        }),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: FORGET_WAITS,
        summary: "Ends the waits of a node's former lives, or of a node that is gone.",
        since: "0.1.0",
        group: Group::Server,
        arity: Arity::Exactly(2),
        flags: &[Flag::Internal],
        handler: Handler::Write(|txn, _, args| {
            Reply::count(txn.forget_waits(number(args[0]), number(args[1]), LIMIT_MAX as usize))
        }),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: MARK,
        summary: "Changes nothing, and replies with its slot: nodes that apply it can compare themselves there.",
        since: "0.1.0",
        group: Group::Server,
        arity: Arity::Exactly(0),
        flags: &[Flag::Internal],
        handler: Handler::Write(|_, stamp, _| Reply::Integer(i64::try_from(stamp.slot).unwrap_or(i64::MAX))),
        ..CommandSpec::BASE
    },
];

/// A number that a node wrote itself.
fn number(arg: &[u8]) -> u64 {
    parse_integer(arg).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

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

/// The payload of a command that ends a wait: as if its time were over or, `as_error`, as CLIENT UNBLOCK … ERROR does.
#[must_use]
pub fn unwait(caller: Caller, as_error: bool) -> Bytes {
    let numbers =
        [caller.node, caller.incarnation, caller.seq, u64::from(as_error)].map(|number| number.to_string());
    let [node, incarnation, seq, how] = &numbers;
    encode_command(0, &[UNWAIT, node, incarnation, seq, how])
}

/// The payload of a command that ends the waits of a node's lives before `incarnation`.
#[must_use]
pub fn forget_waits(node: u64, incarnation: u64) -> Bytes {
    encode_command(0, &[FORGET_WAITS, &node.to_string(), &incarnation.to_string()])
}

/// The payload of a command that removes up to `limit` rows left behind by FLUSHDB, DEL and others, and replies with their number.
#[must_use]
pub fn reap(limit: u32) -> Bytes {
    encode_command(0, &[REAP.as_bytes(), limit.to_string().as_bytes()])
}

/// The payload of a command that changes nothing and replies with its slot.
#[must_use]
pub fn mark() -> Bytes {
    encode_command(0, &[MARK.as_bytes()])
}
