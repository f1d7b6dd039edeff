//! Where the rows of a range begin.
//!
//! The engine keeps a removed row as a mark until it compacts, and whoever looks for the first row of a range walks over all marks before it. What is
//! removed from the front again and again (deadlines that passed, keys of a flushed database, members of a removed list) would cost more with
//! every removal: 190,000 marks were measured at 80 to 340 ms. So the first row that a scan found is remembered.
//!
//! * F1: there is no row from `from` (included) to `floor` (not included).

use crate::row::{RowKey, RowRange};
use std::collections::VecDeque;

/// Beginnings that are remembered besides those of whole tables.
const REMEMBERED_MAX: usize = 32;

struct Floor {
    from: RowKey,
    floor: RowKey,
}

impl Floor {
    fn holds(&self, key: &RowKey) -> bool {
        *key >= self.from && *key < self.floor
    }
}

/// See the module's description.
#[derive(Default)]
pub(super) struct Floors {
    /// Of ranges that begin with a table; there are few, and they are looked at all the time.
    tables: Vec<Floor>,
    /// Of other ranges, the last used at the end.
    others: VecDeque<Floor>,
}

impl Floors {
    /// The range without the part of which is known that it is empty.
    pub(super) fn lift(&mut self, range: &RowRange) -> RowRange {
        let mut all = self.tables.iter().chain(&self.others);
        match all.find(|known| known.holds(&range.from)) {
            Some(known) => RowRange { from: known.floor.clone(), to: range.to.clone() },
            None => range.clone(),
        }
    }

    /// A scan of the range, ascending, found this row first.
    pub(super) fn learn(&mut self, range: &RowRange, first: Option<RowKey>) {
        let Some(floor) = first.or_else(|| range.to.clone()) else { return };
        if floor <= range.from {
            return;
        }
        let known = Floor { from: range.from.clone(), floor };
        if range.from.borrow().byte_count() == 1 {
            self.tables.retain(|other| other.from != known.from);
            self.tables.push(known);
        } else {
            self.others.retain(|other| other.from != known.from);
            self.others.push_back(known);
            if self.others.len() > REMEMBERED_MAX {
                self.others.pop_front();
            }
        }
    }

    /// A row is written.
    pub(super) fn written(&mut self, key: &RowKey) {
        for known in self.tables.iter_mut().chain(&mut self.others) {
            if known.holds(key) {
                known.floor = key.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> RowKey {
        RowKey::new(text.as_bytes())
    }

    fn range(from: &str, to: &str) -> RowRange {
        RowRange { from: key(from), to: Some(key(to)) }
    }

    #[test]
    fn a_scan_begins_where_the_last_one_found_something() {
        let mut floors = Floors::default();
        assert_eq!(floors.lift(&range("a", "b")), range("a", "b"));
        floors.learn(&range("a", "b"), Some(key("a5")));
        assert_eq!(floors.lift(&range("a", "b")), range("a5", "b"));
        assert_eq!(floors.lift(&range("a3", "a9")), range("a5", "a9"));
        assert_eq!(floors.lift(&range("a7", "b")), range("a7", "b"));
        floors.written(&key("a2"));
        assert_eq!(floors.lift(&range("a", "b")), range("a2", "b"));
        assert_eq!(floors.lift(&range("a3", "b")), range("a3", "b"));
    }

    #[test]
    fn an_empty_range_is_remembered_until_something_is_written() {
        let mut floors = Floors::default();
        floors.learn(&range("ab", "ac"), None);
        assert_eq!(floors.lift(&range("ab", "ac")), range("ac", "ac"));
        floors.written(&key("abx"));
        assert_eq!(floors.lift(&range("ab", "ac")), range("abx", "ac"));
        for n in 0..100 {
            floors.learn(&range(&format!("x{n}"), "y"), None);
        }
        assert_eq!(floors.lift(&range("ab", "ac")), range("ab", "ac"));
    }
}
