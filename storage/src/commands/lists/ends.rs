//! Both ends of a list.

use super::{Changing, End, array};
use crate::commands::args::is;
use crate::commands::number::parse_integer;
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, bulk, errors, reply, typed};
use crate::machine::{Class, Kind, Txn};
use crate::reply::Reply;
use crate::row::RowValue;

const LIST: CommandSpec =
    CommandSpec { group: Group::List, keys: Keys::At(0), flags: &[Flag::Fast], ..CommandSpec::BASE };

const PUSH: CommandSpec = CommandSpec { arity: Arity::AtLeast(2), flags: &[Flag::Fast, Flag::Grows], ..LIST };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LPUSH",
        summary: "Prepends one or more elements to a list. Creates the key if it doesn't exist.",
        handler: Handler::Write(|txn, _, args| reply(push(txn, args, End::Left, true))),
        ..PUSH
    },
    CommandSpec {
        name: "RPUSH",
        summary: "Appends one or more elements to a list. Creates the key if it doesn't exist.",
        handler: Handler::Write(|txn, _, args| reply(push(txn, args, End::Right, true))),
        ..PUSH
    },
    CommandSpec {
        name: "LPUSHX",
        summary: "Prepends one or more elements to a list only when the list exists.",
        since: "2.2.0",
        handler: Handler::Write(|txn, _, args| reply(push(txn, args, End::Left, false))),
        ..PUSH
    },
    CommandSpec {
        name: "RPUSHX",
        summary: "Appends one or more elements to a list only when the list exists.",
        since: "2.2.0",
        handler: Handler::Write(|txn, _, args| reply(push(txn, args, End::Right, false))),
        ..PUSH
    },
    CommandSpec {
        name: "LPOP",
        summary: "Returns the first elements in a list after removing them. Deletes the list if the last element was popped.",
        arity: Arity::AtLeast(1),
        handler: Handler::Write(|txn, _, args| reply(pop(txn, args, End::Left, "lpop"))),
        ..LIST
    },
    CommandSpec {
        name: "RPOP",
        summary: "Returns and removes the last elements of a list. Deletes the list if the last element was popped.",
        arity: Arity::AtLeast(1),
        handler: Handler::Write(|txn, _, args| reply(pop(txn, args, End::Right, "rpop"))),
        ..LIST
    },
    CommandSpec {
        name: "LMPOP",
        summary: "Returns multiple elements from the first list that has any, after removing them. Deletes the list if the last element was popped.",
        since: "7.0.0",
        arity: Arity::AtLeast(3),
        keys: Keys::Counted { at: 0 },
        flags: &[],
        handler: Handler::Write(|txn, _, args| reply(pop_many(txn, args))),
        ..LIST
    },
    CommandSpec {
        name: "LMOVE",
        summary: "Returns an element after popping it from one list and pushing it to another. Deletes the list if the last element was moved.",
        since: "6.2.0",
        arity: Arity::Exactly(4),
        keys: Keys::Span { first: 0, last: 1 },
        flags: &[Flag::Grows, Flag::Tells],
        handler: Handler::Write(|txn, _, args| {
            let ends = End::parse(args[2]).and_then(|from| Ok((from, End::parse(args[3])?)));
            reply(ends.and_then(|(from, to)| shift(txn, args, from, to)))
        }),
        ..LIST
    },
    CommandSpec {
        name: "RPOPLPUSH",
        summary: "Returns the last element of a list after removing and pushing it to another list. Deletes the list if the last element was popped.",
        since: "1.2.0",
        arity: Arity::Exactly(2),
        keys: Keys::Span { first: 0, last: 1 },
        flags: &[Flag::Grows, Flag::Tells],
        handler: Handler::Write(|txn, _, args| reply(shift(txn, args, End::Right, End::Left))),
        ..LIST
    },
];

fn push(txn: &mut Txn<'_>, args: &Args<'_>, end: End, creates: bool) -> Result<Reply, Reply> {
    let mut list = match Changing::find(txn, args.db, args[0])? {
        Some(list) => list,
        None if creates => Changing::find_or_new(txn, args.db, args[0])?,
        None => return Ok(Reply::Integer(0)),
    };
    args.from(1).for_each(|item| list.push(txn, end, RowValue::new(item)));
    let count = list.items.count;
    list.save(txn, end.pushed());
    Ok(Reply::Integer(count.cast_signed()))
}

/// LPOP key [count]
fn pop(txn: &mut Txn<'_>, args: &Args<'_>, end: End, command: &str) -> Result<Reply, Reply> {
    let count = match args.all() {
        [_] => None,
        [_, count] => {
            let count = parse_integer(count).and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(errors::NOT_POSITIVE)?)
        }
        _ => return Err(errors::wrong_arity_of(command)),
    };
    let Some(mut list) = Changing::find(txn, args.db, args[0])? else {
        return Ok(if count.is_some() { Reply::NullArray } else { Reply::Null });
    };
    if count == Some(0) {
        return Ok(Reply::Array(Vec::new()));
    }
    let values = list.pop(txn, end, count.unwrap_or(1));
    list.save(txn, end.popped());
    Ok(match (count, &values[..]) {
        (None, [item, ..]) => bulk(item),
        (None, []) => Reply::Null,
        (Some(_), values) => array(values),
    })
}

/// What LMPOP wants: from which keys, from which end, how many.
pub(super) struct PopMany<'a> {
    pub(super) keys: &'a [&'a [u8]],
    pub(super) end: End,
    pub(super) count: u64,
}

impl<'a> PopMany<'a> {
    /// `numkeys key … LEFT|RIGHT [COUNT n]`
    pub(super) fn parse(args: &'a [&'a [u8]]) -> Result<PopMany<'a>, Reply> {
        let at_least_one = |arg: &[u8], error| match parse_integer(arg) {
            Some(number @ 1..) => Ok(number.unsigned_abs()),
            _ => Err(error),
        };
        let (number, rest) = args.split_first().ok_or(errors::SYNTAX)?;
        let number = at_least_one(number, Reply::error("ERR numkeys should be greater than 0"))?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let (keys, rest) = rest.split_at_checked(number).ok_or(errors::SYNTAX)?;
        let (end, options) = rest.split_first().ok_or(errors::SYNTAX)?;
        let end = End::parse(end)?;
        let count = match options {
            [] => 1,
            [word, count, more @ ..] if is(word, "COUNT") => {
                let count = at_least_one(count, Reply::error("ERR count should be greater than 0"))?;
                if !more.is_empty() {
                    return Err(errors::SYNTAX);
                }
                count
            }
            _ => return Err(errors::SYNTAX),
        };
        Ok(PopMany { keys, end, count })
    }
}

fn pop_many(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let wanted = PopMany::parse(args.all())?;
    for key in wanted.keys {
        let Some(mut list) = Changing::find(txn, args.db, key)? else { continue };
        let values = list.pop(txn, wanted.end, wanted.count);
        list.save(txn, wanted.end.popped());
        return Ok(Reply::Array(vec![Reply::bulk(key), array(&values)]));
    }
    Ok(Reply::NullArray)
}

/// LMOVE: from an end of the first key's list to an end of the second's.
pub(super) fn shift(txn: &mut Txn<'_>, args: &Args<'_>, from: End, to: End) -> Result<Reply, Reply> {
    let Some(mut source) = Changing::find(txn, args.db, args[0])? else { return Ok(Reply::Null) };
    typed::write(txn, args.db, args[1], Kind::List)?;
    let Some(item) = source.pop(txn, from, 1).pop() else { return Ok(Reply::Null) };
    let moved = bulk(&item);
    if args[0] == args[1] {
        source.push(txn, to, item);
        let (place, _) = source.save_quietly(txn);
        txn.notify(Class::List, to.pushed(), &place);
        txn.notify(Class::List, from.popped(), &place);
    } else {
        let (place, is_gone) = source.save_quietly(txn);
        let mut target = Changing::find_or_new(txn, args.db, args[1])?;
        target.push(txn, to, item);
        // Told in the order of Redis, which pushes first.
        target.save(txn, to.pushed());
        txn.notify_left(Class::List, from.popped(), &place, is_gone);
    }
    Ok(moved)
}
