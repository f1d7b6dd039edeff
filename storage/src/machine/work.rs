//! The work that the commands of a script may still do.
//!
//! The unit is that of scripts, about an instruction of Lua. What counts are rows that are looked at, bytes that are written, changes of the
//! script itself that a look has to step over, and what a few commands say themselves because they do more than they read or write. Outside of
//! scripts nothing is counted.
//!
//! * W1: the same on every node and in every store: only rows, values, arguments and the script's own changes count.
//! * W2: when it is used up, a look at rows ends with the row it is at. What the command answers then means nothing: the script is stopped, and
//!   all that it did is dropped.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// Work for finding a row by its key, or where a range begins, and for one that is passed in a range.
const FIND: usize = 10;
const PASS: usize = 8;
/// Bytes of a row that is only looked at that are one unit. In memory they are not touched, from a disk they are copied.
const SEEN_PER_UNIT: usize = 256;
/// Work for writing a row.
const WRITE: usize = 20;
/// Bytes of a written row that are one unit: they are copied two or three times, into memory that was not used before.
const WRITTEN_PER_UNIT: usize = 128;

/// See the module's description. Transactions inside of one another share it, and so do their views.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(OnceCell<Rc<Cell<i64>>>);

impl Work {
    /// Says how much is left. From now on it is counted.
    pub(crate) fn set(&self, left: i64) {
        self.0.get_or_init(Rc::default).set(left);
    }

    /// What is left; below zero if more was done than there was.
    pub(crate) fn left(&self) -> i64 {
        self.0.get().map_or(i64::MAX, |left| left.get())
    }

    /// Takes work away.
    #[inline]
    pub(crate) fn spend(&self, work: usize) {
        if let Some(left) = self.0.get() {
            left.set(left.get().saturating_sub_unsigned(work as u64));
        }
    }

    /// Whether more was done than there was.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.0.get().is_some_and(|left| left.get() < 0)
    }

    /// A row was looked for; it has so many bytes.
    #[inline]
    pub(crate) fn find(&self, bytes: usize) {
        self.spend(FIND + bytes / SEEN_PER_UNIT);
    }

    /// The beginning of a range was looked for.
    #[inline]
    pub(crate) fn seek(&self) {
        self.spend(FIND);
    }

    /// A row of a range was passed.
    #[inline]
    pub(crate) fn pass(&self, bytes: usize) {
        self.spend(PASS + bytes / SEEN_PER_UNIT);
    }

    /// Bytes were copied, to be changed or compared.
    #[inline]
    pub(crate) fn copy(&self, bytes: usize) {
        self.spend(bytes / WRITTEN_PER_UNIT);
    }

    /// A row was written, with so many bytes.
    #[inline]
    pub(crate) fn write(&self, bytes: usize) {
        self.spend(WRITE + bytes / WRITTEN_PER_UNIT);
    }
}
