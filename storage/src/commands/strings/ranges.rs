//! Parts of strings. Those that write keep the deadline.

use super::{STRING_BYTES_MAX, reply, string};
use crate::commands::number::integer;
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors};
use crate::machine::{Class, Kind, Txn, View};
use crate::reply::Reply;
use bytes::Bytes;

const RANGE: CommandSpec = CommandSpec { group: Group::String, keys: Keys::At(0), ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "APPEND",
        summary: "Appends a string to the value of a key. Creates the key if it doesn't exist.",
        since: "2.0.0",
        arity: Arity::Exactly(2),
        flags: &[Flag::Fast, Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(append(txn, args))),
        ..RANGE
    },
    CommandSpec {
        name: "GETRANGE",
        summary: "Returns a substring of the string stored at a key.",
        since: "2.4.0",
        arity: Arity::Exactly(3),
        handler: Handler::Read(|view, args| reply(getrange(view, args))),
        ..RANGE
    },
    CommandSpec {
        name: "SUBSTR",
        summary: "Returns a substring from a string value.",
        arity: Arity::Exactly(3),
        handler: Handler::Read(|view, args| reply(getrange(view, args))),
        ..RANGE
    },
    CommandSpec {
        name: "SETRANGE",
        summary: "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist.",
        since: "2.2.0",
        arity: Arity::Exactly(3),
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(setrange(txn, args))),
        ..RANGE
    },
];

fn append(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (place, found) = string(txn, args.db, args[0])?;
    let old = found.as_ref().map_or(&[][..], |found| found.body());
    let length = old.len() + args[1].len();
    if length > STRING_BYTES_MAX {
        return Err(errors::TOO_LONG);
    }
    txn.put(&place, Kind::String, place.deadline_ms(), &[old, args[1]]);
    txn.notify(Class::String, "append", &place);
    Ok(Reply::count(length))
}

fn getrange(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (start, end) = (integer(args[1])?, integer(args[2])?);
    let empty = Ok(Reply::Bulk(Bytes::new()));
    let Some(found) = view.find(args.db, args[0]) else { return empty };
    if found.header.kind != Kind::String {
        return Err(errors::WRONG_TYPE);
    }
    let length = found.body().len() as i64;
    if length == 0 || (start < 0 && end < 0 && start > end) {
        return empty;
    }
    let from_end = |at: i64| if at < 0 { length.saturating_add(at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    if start > end {
        return empty;
    }
    // The casts are exact: both lie inside the string.
    Ok(Reply::Bulk(found.to_bytes().slice(start as usize..=end as usize)))
}

fn setrange(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let offset = usize::try_from(integer(args[1])?).map_err(|_| errors::OFFSET)?;
    let (place, found) = string(txn, args.db, args[0])?;
    let old = found.as_ref().map_or(&[][..], |found| found.body());
    let patch = args[2];
    if patch.is_empty() {
        return Ok(Reply::count(old.len()));
    }
    let end =
        offset.checked_add(patch.len()).filter(|end| *end <= STRING_BYTES_MAX).ok_or(errors::TOO_LONG)?;
    // Before there is room for it: it may be the largest string there is.
    txn.work.copy(2 * end.max(old.len()));
    if txn.work.is_over() {
        return Ok(Reply::Null);
    }
    let mut new = Vec::with_capacity(end.max(old.len()));
    new.extend_from_slice(&old[..offset.min(old.len())]);
    new.resize(offset, 0);
    new.extend_from_slice(patch);
    new.extend_from_slice(old.get(end..).unwrap_or_default());
    txn.put(&place, Kind::String, place.deadline_ms(), &[&new]);
    txn.notify(Class::String, "setrange", &place);
    Ok(Reply::count(new.len()))
}
