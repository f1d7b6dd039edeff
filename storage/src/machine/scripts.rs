//! Scripts as rows: part of snapshots and checksums, so that EVALSHA works on every node, whoever loaded the script.
//!
//! A script that was only evaluated is kept as a courtesy, among the [`EVALUATED_MAX`] newest of its kind: programs that build a new text for every
//! call would fill the memory of all nodes otherwise. One that was loaded stays until SCRIPT FLUSH.

use super::layout::{self, EVALUATED, SCRIPTS};
use super::txn::Txn;
use super::view::View;
use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::{Order, Rows};
use bytes::Bytes;
use std::ops::ControlFlow;

/// Scripts that were evaluated and never loaded, at most.
pub(crate) const EVALUATED_MAX: u64 = 1000;

/// The bytes of a SHA-1.
pub(crate) type Sha = [u8; 20];

const ONLY_EVALUATED: u8 = 0;
const LOADED: u8 = 1;

fn script_row(sha: &Sha) -> RowKey {
    let (head, tail) = sha.split_at(8);
    let head = head.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    RowKey::concat(layout::first(SCRIPTS, 0), head, &[tail])
}

fn evaluated_row(number: u64) -> RowKey {
    RowKey::concat(layout::first(EVALUATED, 0), number, &[])
}

fn source_of(value: &RowValue) -> Bytes {
    value.bytes_from(1)
}

impl View<'_> {
    /// The text of a script.
    pub(crate) fn script(&self, sha: &Sha) -> Option<Bytes> {
        self.row(script_row(sha).borrow()).map(|value| source_of(&value))
    }
}

impl Txn<'_> {
    /// Keeps a script.
    pub(crate) fn put_script(&mut self, sha: &Sha, source: &[u8], is_loaded: bool) {
        let row = script_row(sha);
        let known = self.row(row.borrow()).and_then(|value| value.first().copied());
        match known {
            Some(ONLY_EVALUATED) if is_loaded => {}
            None => {}
            Some(_) => return,
        }
        let tag = if is_loaded { LOADED } else { ONLY_EVALUATED };
        self.put_row(row, RowValue::concat(&[&[tag], source]));
        if is_loaded {
            return;
        }
        let last = self.end_of_evaluated(Order::Descending).map_or(0, |(number, _)| number);
        self.put_row(evaluated_row(last + 1), RowValue::new(sha));
        if let Some((first, oldest)) = self.end_of_evaluated(Order::Ascending)
            && last + 1 - first >= EVALUATED_MAX
        {
            self.remove_row(evaluated_row(first));
            if self
                .row(script_row(&oldest).borrow())
                .is_some_and(|value| value.first() == Some(&ONLY_EVALUATED))
            {
                self.remove_row(script_row(&oldest));
            }
        }
    }

    /// The oldest or newest script that was evaluated, with its number.
    fn end_of_evaluated(&self, order: Order) -> Option<(u64, Sha)> {
        let mut found = None;
        let visit = &mut |row: RowKeyRef<'_>, value: &RowValue| {
            found = value.first_chunk::<20>().map(|sha| (row.second(), *sha));
            ControlFlow::Break(())
        };
        if let Err(error) = self.scan(&RowRange::prefix(&[EVALUATED]), order, visit) {
            self.poison(error);
        }
        found
    }

    /// Forgets all scripts.
    pub(crate) fn flush_scripts(&mut self) {
        for table in [SCRIPTS, EVALUATED] {
            for (row, _) in self.rows(&RowRange::prefix(&[table]), usize::MAX) {
                self.remove_row(row);
            }
        }
    }
}
