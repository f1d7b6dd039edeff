//! The arguments of a command.

use std::ops::Index;

/// The arguments of a command, its name not counted, and the database it is for.
///
/// Indexing is for arguments that the arity guarantees.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    /// The database.
    pub db: u8,
    items: &'a [&'a [u8]],
}

impl<'a> Args<'a> {
    /// Arguments for database `db`.
    #[must_use]
    pub fn new(db: u8, items: &'a [&'a [u8]]) -> Args<'a> {
        Args { db, items }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &'a [&'a [u8]] {
        self.items
    }

    /// Those from `from` on.
    pub(crate) fn from(&self, from: usize) -> Options<'a> {
        Options { rest: self.items.get(from..).unwrap_or_default() }
    }
}

impl<'a> Index<usize> for Args<'a> {
    type Output = &'a [u8];
    fn index(&self, i: usize) -> &&'a [u8] {
        &self.items[i]
    }
}

/// Optional arguments, taken one after the other.
pub(crate) struct Options<'a> {
    rest: &'a [&'a [u8]],
}

impl<'a> Iterator for Options<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let (next, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(next)
    }
}

/// Whether an argument is this word, in any case.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
