//! Row keys: owned, borrowed, and ranges of them.

use super::small::SmallBytes;
use std::cmp::Ordering;
use std::fmt;

/// How many bytes of a key are in its head.
const HEAD_BYTES: usize = 16;

/// What follows the head of an owned key.
pub type Tail = SmallBytes;

/// A borrowed key: what lookups compare. Made without allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RowKeyRef<'a> {
    /// The first 16 bytes as a big-endian number, zeros where the key is shorter.
    pub(crate) head: u128,
    /// How many of them the key really has.
    filled: u8,
    /// The bytes after the first 16.
    pub(crate) tail: &'a [u8],
}

impl<'a> RowKeyRef<'a> {
    /// A key of exactly these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> RowKeyRef<'a> {
        let filled = bytes.len().min(HEAD_BYTES);
        let mut head = [0; HEAD_BYTES];
        head[..filled].copy_from_slice(&bytes[..filled]);
        RowKeyRef { head: u128::from_be_bytes(head), filled: filled as u8, tail: &bytes[filled..] }
    }

    /// A key whose first 16 bytes are the two numbers and which goes on with `tail`.
    #[inline]
    #[must_use]
    pub const fn from_parts(first: u64, second: u64, tail: &'a [u8]) -> RowKeyRef<'a> {
        RowKeyRef { head: (first as u128) << 64 | second as u128, filled: HEAD_BYTES as u8, tail }
    }

    #[inline]
    pub(crate) fn from_stored(head: u128, tail: &'a Tail) -> RowKeyRef<'a> {
        RowKeyRef { head, filled: tail.marked().unwrap_or(HEAD_BYTES as u8), tail: tail.as_slice() }
    }

    /// The tail as it is stored.
    #[inline]
    pub(crate) fn stored_tail(self) -> Tail {
        if usize::from(self.filled) < HEAD_BYTES { Tail::mark(self.filled) } else { Tail::new(self.tail) }
    }

    /// The order of keys with the same head.
    #[inline]
    pub(crate) fn cmp_tail(self, other: RowKeyRef<'_>) -> Ordering {
        self.filled.cmp(&other.filled).then_with(|| self.tail.cmp(other.tail))
    }

    /// A key that owns its bytes.
    #[inline]
    #[must_use]
    pub fn to_owned(self) -> RowKey {
        RowKey { head: self.head, tail: self.stored_tail() }
    }

    /// The first 8 bytes as a number.
    #[must_use]
    pub fn first(self) -> u64 {
        (self.head >> 64) as u64
    }

    /// The second 8 bytes as a number.
    #[must_use]
    pub fn second(self) -> u64 {
        self.head as u64
    }

    /// What follows the first 16 bytes.
    #[must_use]
    pub fn tail(self) -> &'a [u8] {
        self.tail
    }

    /// How many bytes the key has.
    #[must_use]
    pub fn byte_count(self) -> usize {
        usize::from(self.filled) + self.tail.len()
    }

    /// Appends the key's bytes.
    pub fn write_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head.to_be_bytes()[..usize::from(self.filled)]);
        out.extend_from_slice(self.tail);
    }
}

impl Ord for RowKeyRef<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.cmp_tail(*other))
    }
}

impl PartialOrd for RowKeyRef<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for RowKeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes);
        write!(f, "b\"{}\"", bytes.escape_ascii())
    }
}

/// A key that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct RowKey {
    pub(crate) head: u128,
    pub(crate) tail: Tail,
}

impl RowKey {
    /// A key of exactly these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> RowKey {
        RowKeyRef::new(bytes).to_owned()
    }

    /// A key whose first 16 bytes are the two numbers and which goes on with all of `parts`.
    #[must_use]
    pub fn concat(first: u64, second: u64, parts: &[&[u8]]) -> RowKey {
        RowKey { head: u128::from(first) << 64 | u128::from(second), tail: Tail::concat(parts) }
    }

    /// The key, borrowed.
    #[inline]
    #[must_use]
    pub fn borrow(&self) -> RowKeyRef<'_> {
        RowKeyRef::from_stored(self.head, &self.tail)
    }
}

impl Ord for RowKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.borrow().cmp(&other.borrow())
    }
}

impl PartialOrd for RowKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

/// The keys from `from` (included) to `to` (not included; nothing: to the end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The first key that belongs to it.
    pub from: RowKey,
    /// The first key after it.
    pub to: Option<RowKey>,
}

impl RowRange {
    /// Every key.
    #[must_use]
    pub fn all() -> RowRange {
        RowRange { from: RowKey::new(&[]), to: None }
    }

    /// Every key that begins with these bytes.
    #[must_use]
    pub fn prefix(bytes: &[u8]) -> RowRange {
        RowRange { from: RowKey::new(bytes), to: successor(bytes).map(|end| RowKey::new(&end)) }
    }

    /// Whether `key` belongs to it.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: RowKeyRef<'_>) -> bool {
        key >= self.from.borrow() && self.to.as_ref().is_none_or(|to| key < to.borrow())
    }
}

/// The first key after all that begin with `prefix`; nothing if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_of_the_tree_is_one_cache_line() {
        assert_eq!(size_of::<RowKey>(), 48);
    }

    fn awkward_key() -> impl Strategy<Value = Vec<u8>> {
        // Few different bytes and lengths around the head's make ties likely.
        prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255]), 0..20)
    }

    proptest! {
        #[test]
        fn order_is_the_order_of_bytes(a in awkward_key(), b in awkward_key()) {
            prop_assert_eq!(RowKeyRef::new(&a).cmp(&RowKeyRef::new(&b)), a.cmp(&b));
            prop_assert_eq!(RowKey::new(&a).cmp(&RowKey::new(&b)), a.cmp(&b));
        }

        #[test]
        fn bytes_survive(a in awkward_key()) {
            let mut out = Vec::new();
            RowKey::new(&a).borrow().write_to(&mut out);
            prop_assert_eq!(out, a);
        }

        #[test]
        fn a_prefix_range_holds_what_begins_with_it(prefix in awkward_key(), key in awkward_key()) {
            let range = RowRange::prefix(&prefix);
            prop_assert_eq!(range.contains(RowKeyRef::new(&key)), key.starts_with(&prefix));
        }
    }
}
