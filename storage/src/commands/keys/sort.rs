//! SORT and SORT_RO.

use crate::commands::args::is;
use crate::commands::number::integer;
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, bulk, errors, hashes, lists, reply, typed};
use crate::machine::{Class, Kind, Txn, View};
use crate::reply::Reply;
use crate::row::RowValue;
use std::cmp::Ordering;

const SORT: CommandSpec = CommandSpec {
    group: Group::Generic,
    arity: Arity::AtLeast(1),
    differs: "Sorts lists (there are no sets yet). ALPHA compares bytes, whatever the locale; equal weights are put in the order of the elements.",
    ..CommandSpec::BASE
};

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SORT",
        summary: "Sorts the elements in a list, a set, or a sorted set, optionally storing the result.",
        keys: Keys::FirstAnd(store_position),
        flags: &[Flag::Grows, Flag::Tells],
        handler: Handler::Write(|txn, _, args| reply(sort(txn, args))),
        ..SORT
    },
    CommandSpec {
        name: "SORT_RO",
        summary: "Returns the sorted elements of a list, a set, or a sorted set.",
        since: "7.0.0",
        keys: Keys::At(0),
        handler: Handler::Read(|view, args| {
            let sorted = Options::parse(args, false).and_then(|options| options.sorted(view, args));
            reply(sorted.map(as_reply))
        }),
        ..SORT
    },
];

/// Where STORE's key is: the last one counts.
fn store_position(args: &[&[u8]]) -> Option<usize> {
    let is_store = |at: &usize| args.get(*at).is_some_and(|word| is(word, "STORE"));
    (1..args.len().saturating_sub(1)).rev().find(is_store).map(|at| at + 1)
}

#[derive(Default)]
struct Options<'a> {
    is_descending: bool,
    is_alpha: bool,
    limit: Option<(i64, i64)>,
    by: Option<&'a [u8]>,
    /// BY something without a star: as it stands.
    is_unsorted: bool,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// `[BY pattern] [LIMIT offset count] [GET pattern …] [ASC|DESC] [ALPHA] [STORE key]`
    fn parse(args: &Args<'a>, may_store: bool) -> Result<Options<'a>, Reply> {
        let mut options = Options::default();
        let mut rest = args.from(1);
        while let Some(option) = rest.next() {
            let mut value = || rest.next().ok_or(errors::SYNTAX);
            if is(option, "ASC") {
                options.is_descending = false;
            } else if is(option, "DESC") {
                options.is_descending = true;
            } else if is(option, "ALPHA") {
                options.is_alpha = true;
            } else if is(option, "LIMIT") {
                let (offset, count) = (value()?, value()?);
                options.limit = Some((integer(offset)?, integer(count)?));
            } else if may_store && is(option, "STORE") {
                options.store = Some(value()?);
            } else if is(option, "BY") {
                let pattern = value()?;
                options.by = Some(pattern);
                options.is_unsorted |= !errors::until_nul(pattern).contains(&b'*');
            } else if is(option, "GET") {
                options.get.push(value()?);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(options)
    }

    /// The elements, sorted and cut, or what GET says of each.
    fn sorted(&self, view: &View<'_>, args: &Args<'_>) -> Result<Vec<Option<RowValue>>, Reply> {
        let found = typed::read(view, args.db, args[0], Kind::List)?;
        let mut items = found.map_or(Vec::new(), |found| lists::all(view, &found));
        if self.is_unsorted {
            if self.is_descending {
                items.reverse();
            }
        } else {
            self.sort(view, args.db, &mut items)?;
        }
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let (offset, limit) = self.limit.unwrap_or((0, -1));
        let offset = offset.clamp(0, count);
        let end = if limit < 0 { count } else { offset.saturating_add(limit).min(count) };
        // The casts are exact: both are at most the number of elements.
        let items = items.into_iter().take(end as usize).skip(offset as usize);
        if self.get.is_empty() {
            return Ok(items.map(Some).collect());
        }
        Ok(items
            .flat_map(|item| self.get.iter().map(move |pattern| fetch(view, args.db, pattern, &item)))
            .collect())
    }

    fn sort(&self, view: &View<'_>, db: u8, items: &mut [RowValue]) -> Result<(), Reply> {
        let weight = |item: &RowValue| match self.by {
            Some(pattern) => fetch(view, db, pattern, item),
            None => Some(item.clone()),
        };
        let bytes: usize = items.iter().map(|item| item.len()).sum();
        let rounds = items.len().max(2).ilog2() as usize;
        view.work.spend(rounds * (items.len() + bytes / 512));
        let direct = |order: Ordering| if self.is_descending { order.reverse() } else { order };
        if self.is_alpha {
            items.sort_by_cached_key(|item| (weight(item).map(|weight| weight.to_vec()), item.to_vec()));
            if self.is_descending {
                items.reverse();
            }
            return Ok(());
        }
        let mut scored = Vec::with_capacity(items.len());
        for item in items.iter() {
            let score = weight(item).map_or(Some(0.0), |weight| as_double(&weight));
            let score = score.ok_or(Reply::error("ERR One or more scores can't be converted into double"))?;
            scored.push((score, item.clone()));
        }
        scored.sort_by(|(a, x), (b, y)| {
            direct(a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| x.as_slice().cmp(y.as_slice())))
        });
        items.iter_mut().zip(scored).for_each(|(item, (_, sorted))| *item = sorted);
        Ok(())
    }
}

/// A number as C's `strtod` reads it, if it is one to the end.
fn as_double(text: &[u8]) -> Option<f64> {
    let text = errors::until_nul(text);
    if text.is_empty() {
        return Some(0.0);
    }
    let text = std::str::from_utf8(text).ok()?.trim_start_matches([' ', '\t', '\n', '\x0B', '\x0C', '\r']);
    if let Some(number) = hexadecimal(text) {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    let says_infinity = text.trim_start_matches(['+', '-']).to_ascii_lowercase().starts_with("inf");
    let vanished =
        number == 0.0 && text.bytes().any(|digit| matches!(digit, b'1'..=b'9')) && !text.starts_with("0e");
    let is_in_range =
        number.is_normal() || (number == 0.0 && !vanished) || (number.is_infinite() && says_infinity);
    is_in_range.then_some(number)
}

/// `0x1A`, `-0x.8p3`, as C reads them.
fn hexadecimal(text: &str) -> Option<f64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    let (digits, power) = match digits.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let power = i32::try_from(fraction.len()).ok()?.checked_mul(-4)?.checked_add(power)?;
    Some(sign * number * 2_f64.powi(power)).filter(|number| number.is_finite())
}

/// What a pattern says of an element: the string at the key, or the hash's field, that it names with the element in place of the star.
fn fetch(view: &View<'_>, db: u8, pattern: &[u8], item: &RowValue) -> Option<RowValue> {
    if pattern == b"#" {
        return Some(item.clone());
    }
    view.work.spend(1 + (pattern.len() + item.len()) / 32);
    if view.work.is_over() {
        return None;
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|two| two == b"->").filter(|at| at + 2 < after.len());
    let (after, field) = match arrow {
        Some(at) => (&after[..at], Some(&after[at + 2..])),
        None => (after, None),
    };
    let found = view.find(db, &[before, item, after].concat())?;
    let value = match field {
        Some(field) if found.header.kind == Kind::Hash => hashes::value_of(view, &found, field),
        None if found.header.kind == Kind::String => Some(RowValue::from(found.to_bytes())),
        _ => None,
    }?;
    view.work.copy(value.len());
    Some(value)
}

fn as_reply(values: Vec<Option<RowValue>>) -> Reply {
    Reply::Array(values.iter().map(|value| value.as_ref().map_or(Reply::Null, bulk)).collect())
}

fn sort(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let options = Options::parse(args, true)?;
    let values = txn.look_and_tell(|view| options.sorted(view, args))?;
    let Some(target) = options.store else { return Ok(as_reply(values)) };
    let count = values.len();
    let place = txn.place(args.db, target);
    lists::store(txn, place, values.into_iter().map(|value| value.unwrap_or(RowValue::EMPTY)).collect());
    if count > 0 {
        txn.notify(Class::List, "sortstore", &place);
    } else if place.old.is_some() {
        txn.notify(Class::Generic, "del", &place);
    }
    Ok(Reply::count(count))
}
