//! Looking at lists.

use super::Seen;
use crate::commands::args::is;
use crate::commands::number::{integer, parse_integer};
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, bulk, errors, reply};
use crate::machine::View;
use crate::reply::Reply;
use crate::store::Order;
use std::ops::ControlFlow;

const LIST: CommandSpec = CommandSpec { group: Group::List, keys: Keys::At(0), ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LLEN",
        summary: "Returns the length of a list.",
        arity: Arity::Exactly(1),
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| reply(length(view, args))),
        ..LIST
    },
    CommandSpec {
        name: "LINDEX",
        summary: "Returns an element from a list by its index.",
        arity: Arity::Exactly(2),
        handler: Handler::Read(|view, args| reply(item(view, args))),
        ..LIST
    },
    CommandSpec {
        name: "LRANGE",
        summary: "Returns a range of elements from a list.",
        arity: Arity::Exactly(3),
        handler: Handler::Read(|view, args| reply(range(view, args))),
        ..LIST
    },
    CommandSpec {
        name: "LPOS",
        summary: "Returns the index of matching elements in a list.",
        since: "6.0.6",
        arity: Arity::AtLeast(2),
        handler: Handler::Read(|view, args| reply(position(view, args))),
        ..LIST
    },
];

fn length(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let list = Seen::find(view, args.db, args[0])?;
    Ok(Reply::Integer(list.map_or(0, |list| list.items.count.cast_signed())))
}

fn item(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let Some(list) = Seen::find(view, args.db, args[0])? else { return Ok(Reply::Null) };
    let index = list.items.index(integer(args[1])?);
    Ok(index.and_then(|index| list.get(index)).map_or(Reply::Null, |item| bulk(&item)))
}

fn range(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (start, end) = (integer(args[1])?, integer(args[2])?);
    let mut found = Vec::new();
    if let Some(list) = Seen::find(view, args.db, args[0])? {
        list.each(&list.items.range(start, end), Order::Ascending, |_, item| {
            found.push(bulk(item));
            ControlFlow::Continue(())
        });
    }
    Ok(Reply::Array(found))
}

struct Search {
    /// How many equal items are passed over.
    skip: u64,
    order: Order,
    /// How many are wanted; nothing: one, and not as an array.
    count: Option<u64>,
    /// How many items are compared at most.
    compared_max: u64,
}

impl Search {
    /// `[RANK n] [COUNT n] [MAXLEN n]`
    fn parse(args: &Args<'_>) -> Result<Search, Reply> {
        let mut search = Search { skip: 0, order: Order::Ascending, count: None, compared_max: u64::MAX };
        let natural =
            |arg: &[u8], error| parse_integer(arg).and_then(|number| u64::try_from(number).ok()).ok_or(error);
        let or_all = |number| if number == 0 { u64::MAX } else { number };
        let mut rest = args.from(2);
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or(errors::SYNTAX)?;
            if is(option, "RANK") {
                let rank = integer(value)?;
                search.skip = rank.unsigned_abs().checked_sub(1).ok_or(ZERO_RANK)?;
                search.order = if rank < 0 { Order::Descending } else { Order::Ascending };
            } else if is(option, "COUNT") {
                search.count = Some(or_all(natural(value, Reply::error("ERR COUNT can't be negative"))?));
            } else if is(option, "MAXLEN") {
                search.compared_max = or_all(natural(value, Reply::error("ERR MAXLEN can't be negative"))?);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(search)
    }
}

const ZERO_RANK: Reply = Reply::error(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
);

/// LPOS key item [RANK n] [COUNT n] [MAXLEN n]
fn position(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let search = Search::parse(args)?;
    let wanted = search.count.unwrap_or(1);
    let (mut skip, mut left, mut found) = (search.skip, search.compared_max, Vec::new());
    if let Some(list) = Seen::find(view, args.db, args[0])? {
        list.each(&(0..list.items.count), search.order, |index, item| {
            if item.as_slice() == args[1] {
                if skip == 0 {
                    found.push(Reply::Integer(index.cast_signed()));
                }
                skip = skip.saturating_sub(1);
            }
            left -= 1;
            if left == 0 || found.len() as u64 == wanted {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    Ok(match search.count {
        Some(_) => Reply::Array(found),
        None => found.pop().unwrap_or(Reply::Null),
    })
}
