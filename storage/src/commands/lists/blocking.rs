//! Both ends of a list, with patience: who comes first is served first, by whatever makes the list appear.
//!
//! An element goes to a client or stays: if the reply cannot be delivered any more, the element is pushed back to where it was. What BLMOVE moves is
//! in the other list anyway and stays there.

use super::ends::{PopMany, shift};
use super::{Changing, End, array};
use crate::commands::extended::{Extended, Parsed};
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, bulk, errors, reply, typed};
use crate::machine::waits::{Wait, WaitFor};
use crate::machine::{Kind, Txn, Undo, encode_command};
use crate::reply::Reply;
use crate::row::RowValue;

const BLOCKING: CommandSpec = CommandSpec {
    group: Group::List,
    since: "2.0.0",
    keys: Keys::Before { first: 0, after: 1 },
    flags: &[Flag::Blocks],
    differs: "The time is no hexadecimal number. A script may call it, and it does not wait there.",
    ..CommandSpec::BASE
};

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "BLPOP",
        summary: "Removes and returns the first element of a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        arity: Arity::AtLeast(2),
        handler: Handler::Write(|txn, _, args| reply(pop(txn, args, End::Left))),
        ..BLOCKING
    },
    CommandSpec {
        name: "BRPOP",
        summary: "Removes and returns the last element of a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        arity: Arity::AtLeast(2),
        handler: Handler::Write(|txn, _, args| reply(pop(txn, args, End::Right))),
        ..BLOCKING
    },
    CommandSpec {
        name: "BLMPOP",
        summary: "Pops elements from the first list that has any. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        since: "7.0.0",
        arity: Arity::AtLeast(4),
        keys: Keys::Counted { at: 1 },
        handler: Handler::Write(|txn, _, args| reply(pop_many(txn, args))),
        ..BLOCKING
    },
    CommandSpec {
        name: "BLMOVE",
        summary: "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available otherwise. Deletes the list if the last element was moved.",
        since: "6.2.0",
        arity: Arity::Exactly(5),
        keys: Keys::Span { first: 0, last: 1 },
        flags: &[Flag::Blocks, Flag::Grows],
        handler: Handler::Write(|txn, _, args| {
            let ends = End::parse(args[2]).and_then(|from| Ok((from, End::parse(args[3])?)));
            reply(ends.and_then(|(from, to)| shift_or_wait(txn, args, from, to, args[4])))
        }),
        ..BLOCKING
    },
    CommandSpec {
        name: "BRPOPLPUSH",
        summary: "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        since: "2.2.0",
        arity: Arity::Exactly(3),
        keys: Keys::Span { first: 0, last: 1 },
        flags: &[Flag::Blocks, Flag::Grows],
        handler: Handler::Write(|txn, _, args| {
            reply(shift_or_wait(txn, args, End::Right, End::Left, args[2]))
        }),
        ..BLOCKING
    },
];

/// A time in seconds, with fractions, as milliseconds. Zero is for ever.
fn timeout_ms(arg: &[u8]) -> Result<Option<u64>, Reply> {
    const NEGATIVE: Reply = Reply::error("ERR timeout is negative");
    let number = Extended::parse(arg).ok_or(Reply::error("ERR timeout is not a float or out of range"))?;
    let Parsed::Finite(_) = number else { return Err(NEGATIVE) };
    let seconds: f64 = std::str::from_utf8(arg).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    let ms = (seconds * 1000.0).ceil();
    // What does not fit becomes negative in Redis.
    if !(0.0..9.2e18).contains(&ms) {
        return Err(NEGATIVE);
    }
    // The cast is exact: the number is whole and fits.
    Ok(Some(ms as u64).filter(|ms| *ms > 0))
}

/// The first list that has anything. While a wait runs again, that is the one whose line is being served: of several lists that one transaction filled,
/// the one that it touched first, as in Redis. A key that has become something else counts as empty then.
fn first_list<'k>(
    txn: &mut Txn<'_>,
    db: u8,
    keys: &[&'k [u8]],
) -> Result<Option<(&'k [u8], Changing<'k>)>, Reply> {
    for key in keys {
        if txn.served_key().is_some_and(|served| served != *key) {
            continue;
        }
        match Changing::find(txn, db, key) {
            Ok(Some(list)) => return Ok(Some((key, list))),
            Ok(None) => {}
            Err(_) if txn.runs_again() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn wait(txn: &mut Txn<'_>, db: u8, keys: &[&[u8]], timeout_ms: Option<u64>) -> Reply {
    // Somebody may wait for what such a key is now.
    let lets_pass = keys.iter().any(|key| typed::write(txn, db, key, Kind::List).is_err());
    let on_timeout = Reply::NullArray;
    txn.wait(Wait { waits_for: WaitFor::List, db, keys, timeout_ms, on_timeout, lets_pass })
}

/// Pushes back what was popped, if nobody gets it.
fn undo_pop(txn: &mut Txn<'_>, db: u8, key: &[u8], end: End, values: &[RowValue]) {
    let push = if end == End::Left { &b"LPUSH"[..] } else { b"RPUSH" };
    let mut command = vec![push, key];
    command.extend(values.iter().rev().map(RowValue::as_slice));
    txn.undo_with(|| Undo::Command(encode_command(db, &command)));
}

/// BLPOP key [key …] timeout
fn pop(txn: &mut Txn<'_>, args: &Args<'_>, end: End) -> Result<Reply, Reply> {
    let (timeout, keys) = args.all().split_last().ok_or(errors::SYNTAX)?;
    let timeout_ms = timeout_ms(timeout)?;
    let Some((key, mut list)) = first_list(txn, args.db, keys)? else {
        return Ok(wait(txn, args.db, keys, timeout_ms));
    };
    let values = list.pop(txn, end, 1);
    list.save(txn, end.popped());
    undo_pop(txn, args.db, key, end, &values);
    Ok(Reply::Array(vec![Reply::bulk(key), values.first().map_or(Reply::Null, bulk)]))
}

/// BLMPOP timeout numkeys key [key …] LEFT|RIGHT [COUNT n]
fn pop_many(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let wanted = PopMany::parse(&args.all()[1..])?;
    let timeout_ms = timeout_ms(args[0])?;
    let Some((key, mut list)) = first_list(txn, args.db, wanted.keys)? else {
        return Ok(wait(txn, args.db, wanted.keys, timeout_ms));
    };
    let values = list.pop(txn, wanted.end, wanted.count);
    list.save(txn, wanted.end.popped());
    undo_pop(txn, args.db, key, wanted.end, &values);
    Ok(Reply::Array(vec![Reply::bulk(key), array(&values)]))
}

fn shift_or_wait(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    timeout: &[u8],
) -> Result<Reply, Reply> {
    let timeout_ms = timeout_ms(timeout)?;
    let source = [args[0]];
    if first_list(txn, args.db, &source)?.is_some() {
        return shift(txn, args, from, to);
    }
    Ok(match wait(txn, args.db, &source, timeout_ms) {
        // Where it cannot wait, Redis gives another nothing than at the end of the time.
        Reply::NullArray => Reply::Null,
        waiting => waiting,
    })
}
