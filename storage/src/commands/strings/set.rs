//! SET and its options, and the deadlines that options give.

use super::{bulk_or_null, reply};
use crate::commands::args::{Options, is};
use crate::commands::number::integer;
use crate::commands::sessions::live_session;
use crate::commands::{Args, errors};
use crate::machine::{Class, Kind, Place, Stamp, Txn};
use crate::reply::Reply;

/// A deadline as an option says it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime<'a> {
    /// Which option: giving the same one again is allowed, another is not.
    option: &'static str,
    value: &'a [u8],
}

/// The options that take a time: their names, milliseconds per unit, whether they count from now.
const LIFETIMES: [(&str, i64, bool); 4] =
    [("EX", 1000, true), ("PX", 1, true), ("EXAT", 1000, false), ("PXAT", 1, false)];

impl<'a> Lifetime<'a> {
    /// Takes the option and its value, if it is one of these; a syntax error if another one was there before.
    pub(super) fn take(
        before: Option<Lifetime<'a>>,
        option: &[u8],
        rest: &mut Options<'a>,
    ) -> Result<Option<Lifetime<'a>>, Reply> {
        let Some((option, ..)) = LIFETIMES.into_iter().find(|(name, ..)| is(option, name)) else {
            return Ok(None);
        };
        let value = rest.next().ok_or(errors::SYNTAX)?;
        if before.is_some_and(|before| before.option != option) {
            return Err(errors::SYNTAX);
        }
        Ok(Some(Lifetime { option, value }))
    }

    /// The deadline in cluster time.
    pub(super) fn deadline_ms(self, stamp: &Stamp, command: &str) -> Result<u64, Reply> {
        let (_, unit_ms, is_relative) =
            LIFETIMES.into_iter().find(|(name, ..)| *name == self.option).ok_or(errors::SYNTAX)?;
        deadline_ms(stamp, command, integer(self.value)?, unit_ms, is_relative)
    }
}

/// A deadline from a positive time.
fn deadline_ms(
    stamp: &Stamp,
    command: &str,
    time: i64,
    unit_ms: i64,
    is_relative: bool,
) -> Result<u64, Reply> {
    let now_ms = if is_relative { i64::try_from(stamp.at_ms).unwrap_or(i64::MAX) } else { 0 };
    let deadline_ms = time.checked_mul(unit_ms).filter(|_| time > 0).and_then(|ms| ms.checked_add(now_ms));
    deadline_ms.and_then(|ms| u64::try_from(ms).ok()).ok_or_else(|| errors::invalid_expire(command))
}

/// When SET does anything at all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    Always,
    Absent,
    Present,
    Equal(&'a [u8]),
    NotEqual(&'a [u8]),
}

struct SetOptions<'a> {
    condition: Condition<'a>,
    lifetime: Option<Lifetime<'a>>,
    keeps_deadline: bool,
    wants_old: bool,
    session: Option<&'a [u8]>,
}

impl<'a> SetOptions<'a> {
    fn parse(mut rest: Options<'a>) -> Result<SetOptions<'a>, Reply> {
        let mut options = SetOptions {
            condition: Condition::Always,
            lifetime: None,
            keeps_deadline: false,
            wants_old: false,
            session: None,
        };
        while let Some(option) = rest.next() {
            let condition = if is(option, "NX") {
                Condition::Absent
            } else if is(option, "XX") {
                Condition::Present
            } else if is(option, "IFEQ") {
                Condition::Equal(rest.next().ok_or(errors::SYNTAX)?)
            } else if is(option, "IFNE") {
                Condition::NotEqual(rest.next().ok_or(errors::SYNTAX)?)
            } else {
                if is(option, "GET") {
                    options.wants_old = true;
                } else if is(option, "SESSION") {
                    options.session = Some(rest.next().ok_or(errors::SYNTAX)?);
                } else if is(option, "KEEPTTL") {
                    options.keeps_deadline = true;
                } else {
                    options.lifetime =
                        Some(Lifetime::take(options.lifetime, option, &mut rest)?.ok_or(errors::SYNTAX)?);
                }
                if options.keeps_deadline && options.lifetime.is_some() {
                    return Err(errors::SYNTAX);
                }
                continue;
            };
            // NX NX is allowed, NX XX is not.
            if options.condition != Condition::Always && options.condition != condition {
                return Err(errors::SYNTAX);
            }
            options.condition = condition;
        }
        Ok(options)
    }

    /// Whether a plain SET would do the same.
    fn is_plain(&self) -> bool {
        self.condition == Condition::Always && !self.wants_old
    }
}

/// SET key value [NX | XX | IFEQ v | IFNE v] [GET] [EX s | PX ms | EXAT t | PXAT t | KEEPTTL] [SESSION id]
pub(super) fn set(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>) -> Reply {
    if args.len() == 2 {
        let place = txn.place(args.db, args[0]);
        txn.put_string(&place, None, args[1]);
        txn.notify(Class::String, "set", &place);
        return Reply::Ok;
    }
    reply(set_with_options(txn, stamp, args))
}

fn set_with_options(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let options = SetOptions::parse(args.from(2))?;
    let deadline_ms = options.lifetime.map(|lifetime| lifetime.deadline_ms(stamp, "set")).transpose()?;
    let session = options.session.map(|id| live_session(txn, id)).transpose()?.unwrap_or(0);
    let (place, found) =
        if options.is_plain() { (txn.place(args.db, args[0]), None) } else { txn.find(args.db, args[0]) };

    let compares = matches!(options.condition, Condition::Equal(_) | Condition::NotEqual(_));
    if (options.wants_old || compares) && place.old.is_some_and(|old| old.kind != Kind::String) {
        return Err(errors::WRONG_TYPE);
    }
    if options.wants_old {
        txn.notify_miss(&place);
    }
    let old = found.as_ref().map(|found| found.body());
    let is_met = match options.condition {
        Condition::Always => true,
        Condition::Absent => place.old.is_none(),
        Condition::Present => place.old.is_some(),
        Condition::Equal(value) => old == Some(value),
        Condition::NotEqual(value) => old != Some(value),
    };
    if is_met {
        let is_over = deadline_ms.is_some_and(|deadline_ms| deadline_ms <= stamp.at_ms);
        if is_over {
            txn.remove(&place);
        } else {
            // A deadline that is kept may be this very millisecond, in which the key still lives.
            let kept = if options.keeps_deadline { place.deadline_ms() } else { None };
            txn.put_bound(&place, Kind::String, deadline_ms.or(kept), session, &[args[1]]);
        }
        tell(txn, &place, deadline_ms.is_some(), is_over);
    }
    Ok(match (options.wants_old, is_met) {
        (true, _) => bulk_or_null(found.as_ref()),
        (false, true) => Reply::Ok,
        (false, false) => Reply::Null,
    })
}

/// A key that is over as soon as it is written came and went, as in Redis.
fn tell(txn: &mut Txn<'_>, place: &Place<'_>, has_deadline: bool, is_over: bool) {
    if is_over && place.old.is_none() {
        txn.notify(Class::New, "new", place);
    }
    txn.notify(Class::String, "set", place);
    if has_deadline {
        txn.notify(Class::Generic, "expire", place);
    }
    if is_over {
        txn.notify(Class::Expired, "expired", place);
    }
}

/// SETEX and PSETEX: key time value.
pub(super) fn setex(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>, command: &str, unit_ms: i64) -> Reply {
    let deadline = integer(args[1]).and_then(|time| deadline_ms(stamp, command, time, unit_ms, true));
    let deadline_ms = match deadline {
        Ok(deadline_ms) => deadline_ms,
        Err(error) => return error,
    };
    let place = txn.place(args.db, args[0]);
    txn.put_string(&place, Some(deadline_ms), args[2]);
    tell(txn, &place, true, false);
    Reply::Ok
}
