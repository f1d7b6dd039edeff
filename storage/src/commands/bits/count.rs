//! Counting and finding bits.

use super::string;
use crate::commands::args::is;
use crate::commands::number::integer;
use crate::commands::spec::{Arity, CommandSpec, Group, Handler, Keys};
use crate::commands::{Args, errors, reply};
use crate::machine::View;
use crate::reply::Reply;
use std::ops::Range;

const BITS: CommandSpec = CommandSpec { group: Group::Bitmap, keys: Keys::At(0), ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "BITCOUNT",
        summary: "Counts the number of set bits (population counting) in a string.",
        since: "2.6.0",
        arity: Arity::AtLeast(1),
        handler: Handler::Read(|view, args| reply(count(view, args))),
        ..BITS
    },
    CommandSpec {
        name: "BITPOS",
        summary: "Finds the first set (1) or clear (0) bit in a string.",
        since: "2.8.7",
        arity: Arity::AtLeast(2),
        handler: Handler::Read(|view, args| reply(position(view, args))),
        ..BITS
    },
];

/// BYTE or BIT, for a range.
fn unit_is_bit(arg: Option<&&[u8]>) -> Result<bool, Reply> {
    match arg {
        None => Ok(false),
        Some(word) if is(word, "BIT") => Ok(true),
        Some(word) if is(word, "BYTE") => Ok(false),
        Some(_) => Err(errors::SYNTAX),
    }
}

/// The bits from `start` to `end`, both included and in the unit, of a string of `length` bytes; negative ones count from the end.
fn bits(start: i64, end: i64, is_bit: bool, length: usize) -> Range<usize> {
    let width = if is_bit { 1 } else { 8 };
    let total = i64::try_from(length * 8 / width).unwrap_or(i64::MAX);
    let from_end = |at: i64| if at < 0 { total.saturating_add(at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(total - 1));
    if start > end {
        return 0..0;
    }
    // The casts are exact: both lie inside the string.
    start as usize * width..(end as usize + 1) * width
}

/// The bits of a range, byte by byte: the byte's first bit's number, its bits of the range, and which those are.
fn masked(bytes: &[u8], range: &Range<usize>) -> impl Iterator<Item = (usize, u8, u8)> {
    let (start, end) = (range.start, range.end);
    let first = start / 8;
    let used = bytes.get(first..end.div_ceil(8)).unwrap_or_default();
    (first..).zip(used).map(move |(at, byte)| {
        let mut mask = u8::MAX;
        if at * 8 < start {
            mask &= u8::MAX >> (start - at * 8);
        }
        if at * 8 + 8 > end {
            mask &= u8::MAX << (at * 8 + 8 - end);
        }
        (at * 8, byte & mask, mask)
    })
}

/// Bits that are looked at for a unit of a script's work.
const BITS_PER_WORK: usize = 16 * 8;

/// BITCOUNT key [start end [BYTE|BIT]]
fn count(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let Some(found) = string(view, args.db, args[0])? else { return Ok(Reply::Integer(0)) };
    let bytes = found.body();
    let range = match args.all() {
        [_] => 0..bytes.len() * 8,
        [_, start, end, unit @ ..] if unit.len() <= 1 => {
            let (start, end) = (integer(start)?, integer(end)?);
            // Looked at before the unit, as Redis does.
            if start < 0 && end < 0 && start > end {
                return Ok(Reply::Integer(0));
            }
            bits(start, end, unit_is_bit(unit.first())?, bytes.len())
        }
        _ => return Err(errors::SYNTAX),
    };
    view.work.spend(range.len() / BITS_PER_WORK);
    Ok(Reply::Integer(masked(bytes, &range).map(|(_, bits, _)| i64::from(bits.count_ones())).sum()))
}

/// BITPOS key bit [start [end [BYTE|BIT]]]
fn position(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let wanted = match integer(args[1])? {
        0 => false,
        1 => true,
        _ => return Err(Reply::error("ERR The bit argument must be 1 or 0.")),
    };
    let Some(found) = string(view, args.db, args[0])? else {
        return Ok(Reply::Integer(if wanted { -1 } else { 0 }));
    };
    let bytes = found.body();
    let (range, has_end) = match &args.all()[2..] {
        [] => (0..bytes.len() * 8, false),
        [start] => (bits(integer(start)?, -1, false, bytes.len()), false),
        [start, end, unit @ ..] if unit.len() <= 1 => {
            let start = integer(start)?;
            let is_bit = unit_is_bit(unit.first())?;
            (bits(start, integer(end)?, is_bit, bytes.len()), true)
        }
        _ => return Err(errors::SYNTAX),
    };
    if range.is_empty() {
        return Ok(Reply::Integer(-1));
    }
    view.work.spend(range.len() / BITS_PER_WORK);
    let hit = masked(bytes, &range).find_map(|(first, bits, mask)| {
        let hits = if wanted { bits } else { !bits & mask };
        (hits != 0).then(|| first + hits.leading_zeros() as usize)
    });
    Ok(match hit {
        Some(at) => Reply::count(at),
        // Without an end, zeros follow the string.
        None if !wanted && !has_end => Reply::count(range.end),
        None => Reply::Integer(-1),
    })
}
