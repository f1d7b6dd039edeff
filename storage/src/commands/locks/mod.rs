//! LOCK.*: locks with fencing tokens. What a lock is, and how its holds end, is in `machine::locks`; who waits, in `machine::waits`.
//!
//! The rules: exclusive unless SHARED; whoever asks twice under the same owner's name gets the same token and must release twice; nobody overtakes those
//! who wait, so a waiting exclusive request stops new shared ones.

mod acquire;
mod look;
#[cfg(test)]
mod tests;

pub(crate) use acquire::LockWanted;

use super::number::integer;
use super::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use super::{Args, errors};
use crate::commands::args::is;
use crate::machine::locks::{End, Ended, Lock};
use crate::machine::{Stamp, Txn};
use crate::reply::Reply;

const LOCK: CommandSpec =
    CommandSpec { since: "0.1.0", group: Group::Lock, keys: Keys::At(0), ..CommandSpec::BASE };

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LOCK.ACQUIRE",
        summary: "Takes a lock for a time; replies with its fencing token.",
        arity: Arity::AtLeast(3),
        flags: &[Flag::Grows, Flag::BlocksWith("WAIT"), Flag::NamesClient],
        handler: Handler::Write(|txn, stamp, args| {
            acquire::acquire(txn, stamp, args).unwrap_or_else(|error| error)
        }),
        ..LOCK
    },
    CommandSpec {
        name: "LOCK.RENEW",
        summary: "Gives a hold of a lock another time, from now on.",
        arity: Arity::Exactly(3),
        flags: &[Flag::Fast],
        handler: Handler::Write(|txn, stamp, args| renew(txn, stamp, args).unwrap_or_else(|error| error)),
        ..LOCK
    },
    CommandSpec {
        name: "LOCK.RELEASE",
        summary: "Gives a lock back; replies with the number of holds that are left.",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast],
        handler: Handler::Write(|txn, _, args| release(txn, args).unwrap_or_else(|error| error)),
        ..LOCK
    },
    CommandSpec {
        name: "LOCK.CHECK",
        summary: "Tells whether a token still holds a lock.",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| look::check(view, args).unwrap_or_else(|error| error)),
        ..LOCK
    },
    CommandSpec {
        name: "LOCK.DO",
        summary: "Runs a command only if a token still holds a lock.",
        arity: Arity::AtLeast(3),
        flags: &[Flag::Grows, Flag::Tells],
        handler: Handler::Write(|txn, _, args| run(txn, args).unwrap_or_else(|error| error)),
        ..LOCK
    },
    CommandSpec {
        name: "LOCK.INFO",
        summary: "Tells who holds a lock, who waits for it, and how it was last given up.",
        arity: Arity::Exactly(1),
        handler: Handler::Read(|view, args| look::info(view, args).unwrap_or_else(|error| error)),
        ..LOCK
    },
    CommandSpec {
        name: "LOCK.LIST",
        summary: "Lists the locks that are held or waited for.",
        arity: Arity::AtLeast(0),
        keys: Keys::None,
        flags: &[Flag::Dangerous],
        handler: Handler::Read(|view, args| look::list(view, args).unwrap_or_else(|error| error)),
        ..LOCK
    },
    CommandSpec {
        name: "LOCK.REVOKE",
        summary: "Takes a lock away from its holders, or from one of them.",
        arity: Arity::AtLeast(1),
        flags: &[Flag::Dangerous],
        handler: Handler::Write(|txn, _, args| revoke(txn, args).unwrap_or_else(|error| error)),
        ..LOCK
    },
];

/// A token, as a client says it.
fn token(arg: &[u8]) -> Result<u64, Reply> {
    u64::try_from(integer(arg)?).map_err(|_| errors::NOT_AN_INTEGER)
}

/// A time to live: positive, and not beyond the end of time.
pub(super) fn ttl(arg: &[u8], now_ms: u64, command: &str) -> Result<u64, Reply> {
    let ms = integer(arg)?;
    let in_range =
        u64::try_from(ms).ok().filter(|ms| *ms > 0 && now_ms.saturating_add(*ms) <= i64::MAX as u64);
    in_range.ok_or_else(|| errors::invalid_expire(command))
}

pub(super) fn number(number: u64) -> Reply {
    Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Why a token does not hold a lock.
fn lost(key: &[u8], token: u64, lock: Option<&Lock>, last: Option<&Ended>, now_ms: u64) -> Reply {
    let mut why = Vec::new();
    match lock.and_then(|lock| lock.held(now_ms).next()) {
        Some(hold) => {
            why.extend_from_slice(format!("now {} by '", hold.token).as_bytes());
            why.extend_from_slice(errors::as_line(&hold.owner));
            why.push(b'\'');
        }
        None => why.extend_from_slice(b"nobody holds it"),
    }
    if let Some(ended) = last.filter(|ended| ended.token == token) {
        let ago_ms = now_ms.saturating_sub(ended.at_ms);
        why.extend_from_slice(format!(", {} {ago_ms} ms ago", ended.how.name()).as_bytes());
    }
    let start = format!("': token {token} is not held (");
    Reply::Error([b"LOCKLOST key '", errors::as_line(key), start.as_bytes(), &why, b")"].concat().into())
}

/// The lock, and the position of the token's hold; LOCKLOST if it has none.
fn held(txn: &Txn<'_>, args: &Args<'_>, token: u64, lock: Option<Lock>) -> Result<(Lock, usize), Reply> {
    let now_ms = txn.stamp.at_ms;
    let index = lock.as_ref().and_then(|lock| lock.position(token, now_ms));
    match (lock, index) {
        (Some(lock), Some(index)) => Ok((lock, index)),
        (lock, _) => {
            let last = txn.last_end(args.db, args[0]);
            Err(lost(args[0], token, lock.as_ref(), last.as_ref(), now_ms))
        }
    }
}

/// LOCK.RENEW key token ttl-ms
fn renew(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let (token, ttl_ms) = (token(args[1])?, ttl(args[2], stamp.at_ms, "lock.renew")?);
    let (place, lock) = txn.lock(args.db, args[0])?;
    let (mut lock, index) = held(txn, args, token, lock)?;
    lock.holds[index].deadline_ms = Some(stamp.at_ms + ttl_ms);
    txn.put_lock(&place, &lock);
    Ok(number(ttl_ms))
}

/// LOCK.RELEASE key token
fn release(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let token = token(args[1])?;
    if txn.release_only(args.db, args[0], token) {
        return Ok(number(0));
    }
    let (place, lock) = txn.lock(args.db, args[0])?;
    let (mut lock, index) = held(txn, args, token, lock)?;
    let hold = &mut lock.holds[index];
    hold.count = hold.count.saturating_sub(1);
    let left = hold.count;
    if left == 0 {
        txn.end_hold(&place, &mut lock, index, End::Released);
    } else {
        txn.put_lock(&place, &lock);
    }
    Ok(number(left))
}

/// LOCK.DO key token command [arg …]
fn run(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let token = token(args[1])?;
    let (_, lock) = txn.lock(args.db, args[0])?;
    held(txn, args, token, lock)?;
    let command = &args.all()[2..];
    if super::lookup(command[0]).is_none() {
        return Err(super::unknown_command(command[0], &command[1..]));
    }
    Ok(txn.execute(args.db, command))
}

/// LOCK.REVOKE key [TOKEN t]
fn revoke(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let wanted = match &args.all()[1..] {
        [] => None,
        [option, value] if is(option, "TOKEN") => Some(token(value)?),
        _ => return Err(errors::SYNTAX),
    };
    let now_ms = txn.stamp.at_ms;
    let (place, lock) = txn.lock(args.db, args[0])?;
    let Some(mut lock) = lock else { return Ok(Reply::Integer(0)) };
    let Some(token) = wanted else {
        let count = lock.held(now_ms).count();
        // A delay ends, too: who revokes wants the lock to be free.
        txn.take_away(&place);
        return Ok(Reply::count(count));
    };
    let Some(index) = lock.position(token, now_ms) else { return Ok(Reply::Integer(0)) };
    txn.end_hold(&place, &mut lock, index, End::Revoked);
    Ok(Reply::Integer(1))
}
