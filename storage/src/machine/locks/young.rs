//! Young locks: most locks are given back soon, so a lock that was just taken has no row of its own among the locks. The slot in which it was
//! taken has a *page* that names all of them: one row instead of one for each, and nothing to take away when the lock is given back.
//!
//! A page is turned when its locks are young no more. Those that are still held then get their rows, unless somebody gave them one before: a lock that is
//! written a second time (renewed, shared, taken once more) is not young from then on. Whoever wants to see all locks of a database reads the pages, too, and
//! what was taken in the open slot, which has no page yet.
//!
//! * T5: a young lock stands on the page of the slot that is its version, and the page is turned before the lock's time is over.

use super::super::layout::{self, Header, Kind};
use super::super::txn::Txn;
use crate::row::{Change, RowValue, SmallBytes};
use crate::varint;

/// How long a lock is young. One whose time is over earlier never is.
pub(super) const YOUNG_MS: u64 = 1_000;
/// Names on a page that are as much work as one key that is removed: most are only looked for.
const NAMES_PER_KEY: usize = 4;

/// A lock that was taken in the open slot.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(super) generation: u64,
    pub(super) key: SmallBytes,
}

/// What was taken in the open slot before a transaction: by earlier commands, and by those that it runs inside of.
#[derive(Clone, Copy, Default)]
pub(crate) struct TakenBefore<'m> {
    taken: &'m [Taken],
    before: Option<&'m TakenBefore<'m>>,
}

impl<'m> TakenBefore<'m> {
    pub(crate) fn in_slot(taken: &'m [Taken]) -> TakenBefore<'m> {
        TakenBefore { taken, before: None }
    }

    /// With what the transaction itself has taken, for one inside of it.
    pub(crate) fn and<'a>(&'a self, taken: &'a [Taken]) -> TakenBefore<'a> {
        TakenBefore { taken, before: Some(self) }
    }
}

/// The row of a slot's page, if it has one.
pub(crate) fn page(taken: &[Taken], at_ms: u64, slot: u64) -> Option<Change> {
    if taken.is_empty() {
        return None;
    }
    let bytes = |taken: &Taken| 2 * varint::BYTES_MAX + taken.key.len();
    let mut out = Vec::with_capacity(taken.iter().map(bytes).sum());
    for Taken { generation, key } in taken {
        varint::put(&mut out, *generation);
        varint::put(&mut out, key.len() as u64);
        out.extend_from_slice(key);
    }
    let key = layout::page_row(at_ms.saturating_add(YOUNG_MS), slot);
    Some(Change { key, value: Some(RowValue::new(&out)) })
}

/// The generations and keys on a page.
pub(crate) fn names(mut page: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let generation = varint::take(&mut page)?;
        let length = usize::try_from(varint::take(&mut page)?).ok()?;
        let (key, rest) = page.split_at_checked(length)?;
        page = rest;
        Some((generation, key))
    })
}

impl Txn<'_> {
    /// Turns the pages whose time has come, up to `limit` or a little more; says how much work it was.
    pub(in super::super) fn turn_pages(&mut self, limit: usize) -> usize {
        let mut work = 0;
        for (row, page) in self.rows(&layout::pages_until(self.stamp.at_ms), limit) {
            if work >= limit {
                break;
            }
            let slot = layout::parse_page(row.borrow()).map_or(0, |(_, slot)| slot);
            let mut count = 0;
            for (generation, key) in names(&page) {
                self.grow(generation, key, slot);
                count += 1;
            }
            work += 1 + count / NAMES_PER_KEY;
            self.remove_row(row);
        }
        work
    }

    /// A lock that was taken in some slot gets its row, if it is still held and has none.
    fn grow(&mut self, generation: u64, key: &[u8], slot: u64) {
        let row = layout::key_row(generation, layout::key_hash(key), key);
        let Some(value) = self.row(row) else { return };
        let Some(header) = Header::parse(&value).filter(|header| header.is_young && header.version == slot)
        else {
            return;
        };
        // Who watches it sees no change: its version stays.
        let grown = layout::grown(&value);
        self.put_row(row.to_owned(), grown);
        self.put_row(layout::lock_row(header.deadline_ms, generation, key), RowValue::EMPTY);
    }

    /// Notes that a lock was taken that is young.
    pub(super) fn note_taken(&mut self, db: u8, key: &[u8]) {
        let generation = self.generation(db);
        self.run.taken.push(Taken { generation, key: SmallBytes::new(key) });
    }

    /// The young locks of a database, and perhaps others that were young.
    pub(super) fn young(&self, db: u8) -> Vec<SmallBytes> {
        let generation = self.generation(db);
        let mut found = Vec::new();
        for (_, page) in self.rows(&layout::pages(), usize::MAX) {
            let of_database = names(&page).filter(|(of, _)| *of == generation);
            found.extend(of_database.map(|(_, key)| SmallBytes::new(key)));
        }
        let here = self.taken_before.and(&self.run.taken);
        let mut next = Some(&here);
        while let Some(TakenBefore { taken, before }) = next {
            let of_database = taken.iter().filter(|taken| taken.generation == generation);
            found.extend(of_database.map(|taken| taken.key.clone()));
            next = *before;
        }
        found
    }

    /// Takes the young locks of a database away.
    pub(super) fn revoke_young(&mut self, db: u8) {
        for key in self.young(db) {
            let place = self.place(db, &key);
            if place.old.is_some_and(|old| old.kind == Kind::Lock) {
                self.take_away(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_was_put_in() {
        let taken = |generation, key: &[u8]| Taken { generation, key: SmallBytes::new(key) };
        assert!(page(&[], 5, 7).is_none());
        let row = page(&[taken(1, b""), taken(1 << 40, &[7; 300]), taken(0, b"k")], 5, 7).unwrap();
        assert_eq!(layout::parse_page(row.key.borrow()), Some((5 + YOUNG_MS, 7)));
        assert!(layout::pages().contains(row.key.borrow()));
        assert!(layout::pages_until(5 + YOUNG_MS).contains(row.key.borrow()));
        assert!(!layout::pages_until(4 + YOUNG_MS).contains(row.key.borrow()));
        let value = row.value.unwrap();
        let named: Vec<_> = names(&value).collect();
        assert_eq!(named, [(1, &b""[..]), (1 << 40, &[7; 300][..]), (0, &b"k"[..])]);
    }
}
