//! What SCAN and HSCAN have in common: the cursor, the options, and where a step ends.
//!
//! Keys and fields lie in the order of their hashes, so a cursor is a piece of a hash: it needs no memory on a node, is the same on
//! every node, and survives a fail-over in the middle of a scan. What is there all the time is shown exactly once.

use super::args::{Options, is};
use super::errors;
use super::glob::{glob_matches, glob_work};
use super::number::integer;
use crate::machine::View;
use crate::reply::Reply;

/// A cursor is the upper 48 bits of a hash: some clients keep cursors as floating-point numbers, which have 53.
const CURSOR_SHIFT: u32 = 16;

/// How many a step looks at if nobody says.
const COUNT_DEFAULT: i64 = 10;

/// A step through hashes.
pub(crate) struct Step<'a> {
    /// Where it begins. Nothing: behind all hashes.
    pub(crate) from: Option<u64>,
    /// The wanted type of keys.
    pub(crate) kind: Option<&'a [u8]>,
    pattern: Option<&'a [u8]>,
    left: i64,
    last: Option<u64>,
    next: u64,
}

/// A cursor in an argument, as C's `strtoul` reads it: no digits are zero, a minus counts from the end. It comes before all other errors.
pub(crate) fn cursor(arg: &[u8]) -> Result<u64, Reply> {
    let (is_negative, digits) = match errors::until_nul(arg) {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let number =
        std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
    let number: u64 = number.and_then(|digits| digits.parse().ok()).ok_or(errors::INVALID_CURSOR)?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

impl<'a> Step<'a> {
    /// `[MATCH pattern] [COUNT n]`, and `[TYPE t]` where it makes sense.
    pub(crate) fn parse(cursor: u64, mut options: Options<'a>, allows_type: bool) -> Result<Step<'a>, Reply> {
        // A cursor beyond all hashes has nothing left to show.
        let from = cursor.checked_shl(CURSOR_SHIFT).filter(|from| from >> CURSOR_SHIFT == cursor);
        let mut step = Step { from, kind: None, pattern: None, left: COUNT_DEFAULT, last: None, next: 0 };
        while let Some(option) = options.next() {
            let value = options.next().ok_or(errors::SYNTAX)?;
            if is(option, "MATCH") {
                step.pattern = Some(value);
            } else if is(option, "COUNT") {
                step.left = integer(value)?;
                if step.left < 1 {
                    return Err(errors::SYNTAX);
                }
            } else if allows_type && is(option, "TYPE") {
                step.kind = Some(value);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(step)
    }

    /// Looks at `count` at least.
    pub(crate) fn at_least(&mut self, count: i64) {
        self.left = self.left.max(count);
    }

    /// Whether what has this hash still belongs to the step. If not, the step is over.
    pub(crate) fn takes(&mut self, hash: u64) -> bool {
        let place = hash >> CURSOR_SHIFT;
        // What shares a place is shown together: a cursor could not point between them.
        if self.left <= 0 && self.last != Some(place) {
            self.next = place;
            return false;
        }
        self.left -= 1;
        self.last = Some(place);
        true
    }

    /// Whether a name is wanted.
    pub(crate) fn wants(&self, view: &View<'_>, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| {
            view.work.spend(glob_work(pattern, name));
            glob_matches(pattern, name)
        })
    }

    /// The reply: the next cursor and what was found.
    pub(crate) fn reply(&self, found: Vec<Reply>) -> Reply {
        Reply::Array(vec![Reply::Bulk(self.next.to_string().into()), Reply::Array(found)])
    }
}
