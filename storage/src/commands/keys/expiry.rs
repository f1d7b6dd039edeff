//! Deadlines of keys.

use crate::commands::args::is;
use crate::commands::number::integer;
use crate::commands::spec::{Arity, CommandSpec, Flag, Handler, Keys};
use crate::commands::{Args, errors};
use crate::machine::{Stamp, Txn, View};
use crate::reply::Reply;

const ONE_KEY: CommandSpec =
    CommandSpec { arity: Arity::Exactly(1), keys: Keys::At(0), flags: &[Flag::Fast], ..CommandSpec::BASE };
const SETS_DEADLINE: CommandSpec = CommandSpec { arity: Arity::AtLeast(2), ..ONE_KEY };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "EXPIRE",
        summary: "Sets the expiration time of a key in seconds.",
        handler: Handler::Write(|txn, stamp, args| expire(txn, stamp, args, "expire", 1000, true)),
        ..SETS_DEADLINE
    },
    CommandSpec {
        name: "PEXPIRE",
        summary: "Sets the expiration time of a key in milliseconds.",
        since: "2.6.0",
        handler: Handler::Write(|txn, stamp, args| expire(txn, stamp, args, "pexpire", 1, true)),
        ..SETS_DEADLINE
    },
    CommandSpec {
        name: "EXPIREAT",
        summary: "Sets the expiration time of a key to a Unix timestamp.",
        since: "1.2.0",
        handler: Handler::Write(|txn, stamp, args| expire(txn, stamp, args, "expireat", 1000, false)),
        ..SETS_DEADLINE
    },
    CommandSpec {
        name: "PEXPIREAT",
        summary: "Sets the expiration time of a key to a Unix milliseconds timestamp.",
        since: "2.6.0",
        handler: Handler::Write(|txn, stamp, args| expire(txn, stamp, args, "pexpireat", 1, false)),
        ..SETS_DEADLINE
    },
    CommandSpec {
        name: "TTL",
        summary: "Returns the expiration time in seconds of a key.",
        handler: Handler::Read(|view, args| deadline(view, args, 1000, true)),
        ..ONE_KEY
    },
    CommandSpec {
        name: "PTTL",
        summary: "Returns the expiration time in milliseconds of a key.",
        since: "2.6.0",
        handler: Handler::Read(|view, args| deadline(view, args, 1, true)),
        ..ONE_KEY
    },
    CommandSpec {
        name: "EXPIRETIME",
        summary: "Returns the expiration time of a key as a Unix timestamp.",
        since: "7.0.0",
        handler: Handler::Read(|view, args| deadline(view, args, 1000, false)),
        ..ONE_KEY
    },
    CommandSpec {
        name: "PEXPIRETIME",
        summary: "Returns the expiration time of a key as a Unix milliseconds timestamp.",
        since: "7.0.0",
        handler: Handler::Read(|view, args| deadline(view, args, 1, false)),
        ..ONE_KEY
    },
    CommandSpec {
        name: "PERSIST",
        summary: "Removes the expiration time of a key.",
        since: "2.2.0",
        handler: Handler::Write(persist),
        ..ONE_KEY
    },
];

/// When an EXPIRE does anything at all.
#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: &Args<'_>) -> Result<Conditions, Reply> {
        let mut conditions = Conditions::default();
        for option in args.from(2) {
            let flag = match option {
                _ if is(option, "NX") => &mut conditions.nx,
                _ if is(option, "XX") => &mut conditions.xx,
                _ if is(option, "GT") => &mut conditions.gt,
                _ if is(option, "LT") => &mut conditions.lt,
                _ => {
                    return Err(Reply::Error(
                        [b"ERR Unsupported option ", errors::as_line(option)].concat().into(),
                    ));
                }
            };
            *flag = true;
        }
        if conditions.nx && (conditions.xx || conditions.gt || conditions.lt) {
            return Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if conditions.gt && conditions.lt {
            return Err(Reply::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// No deadline counts as one that never comes.
    fn allow(&self, old_ms: Option<u64>, new_ms: i64) -> bool {
        let old_ms = old_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        !(self.nx && old_ms.is_some()
            || self.xx && old_ms.is_none()
            || self.gt && old_ms.is_none_or(|old_ms| new_ms <= old_ms)
            || self.lt && old_ms.is_some_and(|old_ms| new_ms >= old_ms))
    }
}

fn expire(
    txn: &mut Txn<'_>,
    stamp: &Stamp,
    args: &Args<'_>,
    command: &str,
    unit_ms: i64,
    is_relative: bool,
) -> Reply {
    let parse = || {
        let conditions = Conditions::parse(args)?;
        let now_ms = if is_relative { i64::try_from(stamp.at_ms).unwrap_or(i64::MAX) } else { 0 };
        let deadline_ms = integer(args[1])?.checked_mul(unit_ms).and_then(|ms| ms.checked_add(now_ms));
        Ok((conditions, deadline_ms.ok_or_else(|| errors::invalid_expire(command))?))
    };
    let (conditions, deadline_ms) = match parse() {
        Ok(parsed) => parsed,
        Err(error) => return error,
    };
    let place = txn.place(args.db, args[0]);
    if place.old.is_none() || !conditions.allow(place.deadline_ms(), deadline_ms) {
        return Reply::Integer(0);
    }
    // A time before all times is over, like any other time that is over.
    txn.set_deadline(&place, Some(u64::try_from(deadline_ms).unwrap_or(0)));
    Reply::Integer(1)
}

fn deadline(view: &View<'_>, args: &Args<'_>, unit_ms: u64, is_relative: bool) -> Reply {
    let Some(found) = view.find(args.db, args[0]) else { return Reply::Integer(-2) };
    let Some(deadline_ms) = found.header.deadline_ms else { return Reply::Integer(-1) };
    let ms = if is_relative { deadline_ms.saturating_sub(view.clock_ms()) } else { deadline_ms };
    // Rounded to the nearest unit.
    let units = ms.saturating_add(unit_ms / 2) / unit_ms;
    Reply::Integer(i64::try_from(units).unwrap_or(i64::MAX))
}

fn persist(txn: &mut Txn<'_>, _: &Stamp, args: &Args<'_>) -> Reply {
    let place = txn.place(args.db, args[0]);
    let has_deadline = place.deadline_ms().is_some();
    if has_deadline {
        txn.set_deadline(&place, None);
    }
    Reply::flag(has_deadline)
}
