//! Changing a list elsewhere than at its ends.

use super::{Changing, End};
use crate::commands::args::is;
use crate::commands::number::integer;
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors, reply};
use crate::machine::Txn;
use crate::reply::Reply;
use crate::row::RowValue;

const LIST: CommandSpec = CommandSpec { group: Group::List, keys: Keys::At(0), ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LSET",
        summary: "Sets the value of an element in a list by its index.",
        arity: Arity::Exactly(3),
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(set(txn, args))),
        ..LIST
    },
    CommandSpec {
        name: "LINSERT",
        summary: "Inserts an element before or after another element in a list.",
        since: "2.2.0",
        arity: Arity::Exactly(4),
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(insert(txn, args))),
        ..LIST
    },
    CommandSpec {
        name: "LREM",
        summary: "Removes elements from a list. Deletes the list if the last element was removed.",
        arity: Arity::Exactly(3),
        handler: Handler::Write(|txn, _, args| reply(remove(txn, args))),
        ..LIST
    },
    CommandSpec {
        name: "LTRIM",
        summary: "Removes elements from both ends a list. Deletes the list if all elements were trimmed.",
        arity: Arity::Exactly(3),
        handler: Handler::Write(|txn, _, args| reply(trim(txn, args))),
        ..LIST
    },
];

fn set(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let list = Changing::find(txn, args.db, args[0])?.ok_or(errors::NO_SUCH_KEY)?;
    let index = list.items.index(integer(args[1])?).ok_or(errors::INDEX)?;
    list.put(txn, index, RowValue::new(args[2]));
    list.save(txn, "lset");
    Ok(Reply::Ok)
}

/// LINSERT key BEFORE|AFTER pivot item
fn insert(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let is_after = match args[1] {
        word if is(word, "AFTER") => true,
        word if is(word, "BEFORE") => false,
        _ => return Err(errors::SYNTAX),
    };
    let Some(mut list) = Changing::find(txn, args.db, args[0])? else { return Ok(Reply::Integer(0)) };
    let count = list.items.count;
    let mut values = list.values(txn, &(0..count));
    let Some(pivot) = values.iter().position(|item| item.as_slice() == args[2]) else {
        return Ok(Reply::Integer(-1));
    };
    let at = pivot as u64 + u64::from(is_after);
    // The shorter side makes room.
    if at < count / 2 {
        values.truncate(pivot + usize::from(is_after));
        list.push(txn, End::Left, RowValue::EMPTY);
        (0..).zip(values).for_each(|(index, item)| list.put(txn, index, item));
    } else {
        let moved = values.split_off(pivot + usize::from(is_after));
        list.push(txn, End::Right, RowValue::EMPTY);
        (at + 1..).zip(moved).for_each(|(index, item)| list.put(txn, index, item));
    }
    list.put(txn, at, RowValue::new(args[3]));
    list.save(txn, "linsert");
    Ok(Reply::Integer(count.cast_signed() + 1))
}

/// LREM key count item: the first `count` equal ones, the last ones if negative, all if zero.
fn remove(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let wanted = integer(args[1])?;
    let limit =
        if wanted == 0 { usize::MAX } else { usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX) };
    let Some(mut list) = Changing::find(txn, args.db, args[0])? else { return Ok(Reply::Integer(0)) };
    let count = list.items.count;
    let values = list.values(txn, &(0..count));
    let equal = |index: &usize| values.get(*index).is_some_and(|item| item.as_slice() == args[2]);
    let mut gone: Vec<usize> = if wanted < 0 {
        (0..values.len()).rev().filter(equal).take(limit).collect()
    } else {
        (0..values.len()).filter(equal).take(limit).collect()
    };
    gone.sort_unstable();
    let (Some(&first), Some(&last)) = (gone.first(), gone.last()) else { return Ok(Reply::Integer(0)) };
    let removed = gone.len() as u64;
    let mut is_gone = gone.iter().copied().peekable();
    let stays =
        (0_u64..).zip(values).filter(|(index, _)| is_gone.next_if(|gone| *gone as u64 == *index).is_none());
    // The shorter side closes the gaps.
    if first as u64 > count - 1 - last as u64 {
        let moved: Vec<_> = stays.skip(first).map(|(_, item)| item).collect();
        (first as u64..).zip(moved).for_each(|(index, item)| list.put(txn, index, item));
        list.keep(txn, 0..count - removed);
    } else {
        let moved: Vec<_> =
            stays.take_while(|(index, _)| *index < last as u64).map(|(_, item)| item).collect();
        (removed..).zip(moved).for_each(|(index, item)| list.put(txn, index, item));
        list.keep(txn, removed..count);
    }
    list.save(txn, "lrem");
    Ok(Reply::Integer(removed.cast_signed()))
}

/// LTRIM key start end: keeps what is between, both included.
fn trim(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (start, end) = (integer(args[1])?, integer(args[2])?);
    let Some(mut list) = Changing::find(txn, args.db, args[0])? else { return Ok(Reply::Ok) };
    let kept = list.items.range(start, end);
    list.keep(txn, kept);
    list.save(txn, "ltrim");
    Ok(Reply::Ok)
}
