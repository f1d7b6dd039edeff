//! Integers of any width inside a string.

use super::{bit_at, grown, offset, set_bit, string};
use crate::commands::args::is;
use crate::commands::number::{integer, parse_integer};
use crate::commands::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use crate::commands::{Args, errors, reply, typed};
use crate::machine::{Class, Kind, Txn, View};
use crate::reply::Reply;

const FIELD: CommandSpec =
    CommandSpec { group: Group::Bitmap, keys: Keys::At(0), arity: Arity::AtLeast(1), ..CommandSpec::BASE };

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "BITFIELD",
        summary: "Performs arbitrary bitfield integer operations on strings.",
        since: "3.2.0",
        flags: &[Flag::Grows],
        handler: Handler::Write(|txn, _, args| reply(change(txn, args))),
        ..FIELD
    },
    CommandSpec {
        name: "BITFIELD_RO",
        summary: "Performs arbitrary read-only bitfield integer operations on strings.",
        since: "6.0.0",
        flags: &[Flag::Fast],
        handler: Handler::Read(|view, args| reply(look(view, args))),
        ..FIELD
    },
];

/// What happens to a number that does not fit.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// The type of a number: `i16`, `u8`.
#[derive(Clone, Copy)]
struct Width {
    is_signed: bool,
    bits: u32,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Operation {
    action: Action,
    width: Width,
    offset: u64,
    overflow: Overflow,
}

impl Width {
    fn parse(arg: &[u8]) -> Result<Width, Reply> {
        const WRONG: Reply = Reply::error(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        );
        let (sign, digits) = errors::until_nul(arg).split_first().ok_or(WRONG)?;
        let (is_signed, most) = match sign {
            b'i' => (true, 64),
            b'u' => (false, 63),
            _ => return Err(WRONG),
        };
        match parse_integer(digits).and_then(|bits| u32::try_from(bits).ok()) {
            Some(bits @ 1..) if bits <= most => Ok(Width { is_signed, bits }),
            _ => Err(WRONG),
        }
    }

    fn least(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn most(self) -> i128 {
        if self.is_signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// The number of the lowest bits.
    fn wrap(self, number: i128) -> i128 {
        let low = number & ((1 << self.bits) - 1);
        if self.is_signed && low > self.most() { low - (1 << self.bits) } else { low }
    }

    fn read(self, bytes: &[u8], offset: u64) -> i128 {
        let bits = (0..u64::from(self.bits)).map(|n| bit_at(bytes, offset + n));
        self.wrap(bits.fold(0, |number, bit| number << 1 | i128::from(bit)))
    }

    fn write(self, bytes: &mut [u8], offset: u64, number: i128) {
        for n in 0..self.bits {
            set_bit(bytes, offset + u64::from(n), number >> (self.bits - 1 - n) & 1 == 1);
        }
    }

    /// The same for SET, which in Redis takes a number for too large if its distance to the most does not fit into 64 bits.
    fn store(self, number: i128, overflow: Overflow) -> Option<i128> {
        let is_far_below = self.bits < 64 && self.most() - number > i128::from(i64::MAX);
        match overflow {
            Overflow::Saturate if self.is_signed && is_far_below => Some(self.most()),
            _ => self.fit(number, overflow),
        }
    }

    /// What is stored for a number; nothing if it does not fit and must.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        match overflow {
            Overflow::Wrap => Some(self.wrap(number)),
            Overflow::Saturate => Some(number.clamp(self.least(), self.most())),
            Overflow::Fail => (self.least()..=self.most()).contains(&number).then_some(number),
        }
    }
}

/// `GET type offset`, `SET type offset value`, `INCRBY type offset by`, `OVERFLOW WRAP|SAT|FAIL`, as many as one likes.
fn parse(args: &Args<'_>) -> Result<Vec<Operation>, Reply> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut rest = &args.all()[1..];
    while let [word, more @ ..] = rest {
        rest = match more {
            [kind, more @ ..] if is(word, "OVERFLOW") => {
                overflow = match kind {
                    kind if is(kind, "WRAP") => Overflow::Wrap,
                    kind if is(kind, "SAT") => Overflow::Saturate,
                    kind if is(kind, "FAIL") => Overflow::Fail,
                    _ => return Err(Reply::error("ERR Invalid OVERFLOW type specified")),
                };
                more
            }
            [width, at, more @ ..] if is(word, "GET") => {
                let width = Width::parse(width)?;
                let offset = offset(at, Some(width.bits))?;
                operations.push(Operation { action: Action::Get, width, offset, overflow });
                more
            }
            [width, at, value, more @ ..] if is(word, "SET") || is(word, "INCRBY") => {
                let width = Width::parse(width)?;
                let offset = offset(at, Some(width.bits))?;
                let value = integer(value)?;
                let action = if is(word, "SET") { Action::Set(value) } else { Action::Add(value) };
                operations.push(Operation { action, width, offset, overflow });
                more
            }
            _ => return Err(errors::SYNTAX),
        };
    }
    Ok(operations)
}

fn number(number: i128) -> Reply {
    // The cast is exact: numbers have at most 63 bits, or 64 with a sign.
    Reply::Integer(number as i64)
}

fn look(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let operations = parse(args)?;
    if operations.iter().any(|operation| !matches!(operation.action, Action::Get)) {
        return Err(Reply::error("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let found = string(view, args.db, args[0])?;
    let bytes = found.as_ref().map_or(&[][..], |found| found.body());
    Ok(Reply::Array(operations.iter().map(|get| number(get.width.read(bytes, get.offset))).collect()))
}

fn change(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let operations = parse(args)?;
    let writes = operations.iter().filter(|operation| !matches!(operation.action, Action::Get));
    let Some(last) = writes.map(|write| write.offset + u64::from(write.width.bits) - 1).max() else {
        return txn.look_and_tell(|view| look(view, args));
    };
    let (place, found) = typed::write(txn, args.db, args[0], Kind::String)?;
    let mut bytes = grown(txn, found.as_ref(), last)?;
    let mut replies = Vec::with_capacity(operations.len());
    for Operation { action, width, offset, overflow } in operations {
        let old = width.read(&bytes, offset);
        let (new, answer) = match action {
            Action::Get => {
                replies.push(number(old));
                continue;
            }
            Action::Set(value) => {
                // What an unsigned number gets is read as unsigned first, as in Redis.
                let value =
                    if width.is_signed { i128::from(value) } else { i128::from(value.cast_unsigned()) };
                (width.store(value, overflow), old)
            }
            Action::Add(by) => {
                let new = width.fit(old + i128::from(by), overflow);
                (new, new.unwrap_or(old))
            }
        };
        match new {
            Some(new) => {
                width.write(&mut bytes, offset, new);
                replies.push(number(answer));
            }
            None => replies.push(Reply::Null),
        }
    }
    // Redis makes the string longer even if nothing fits into it.
    if found.is_none_or(|found| found.body() != bytes) {
        txn.put_string(&place, place.deadline_ms(), &bytes);
        txn.notify(Class::String, "setbit", &place);
    }
    Ok(Reply::Array(replies))
}
