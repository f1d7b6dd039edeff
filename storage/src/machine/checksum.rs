//! One number over all rows, to compare nodes at the same slot.
//!
//! It is the sum (modulo 2^64) of a hash of each row. A sum does not depend on the order, so ranges can be summed apart.
//! It is computed by reading every row, from a snapshot and on another thread if there are many: keeping it up to date with every write would
//! cost more than all comparisons together.

use crate::row::{RowKeyRef, RowRange};
use crate::store::{Order, Rows, StoreError};
use std::ops::ControlFlow;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Rows, counted and summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// How many rows.
    pub rows: u64,
    /// The sum of their hashes.
    pub sum: u64,
}

impl Checksum {
    /// Adds a row. `room` is only there to be used again.
    pub(crate) fn add(&mut self, key: RowKeyRef<'_>, value: &[u8], room: &mut Vec<u8>) {
        room.clear();
        key.write_to(room);
        self.rows += 1;
        // The value's hash is keyed with the key's: bytes cannot move between the two unnoticed.
        self.sum = self.sum.wrapping_add(xxh3_64_with_seed(value, xxh3_64(room)));
    }

    /// Over all of `rows`.
    pub fn of(rows: &dyn Rows) -> Result<Checksum, StoreError> {
        let (mut checksum, mut room) = (Checksum::default(), Vec::new());
        rows.scan(&RowRange::all(), Order::Ascending, &mut |key, value| {
            checksum.add(key, value, &mut room);
            ControlFlow::Continue(())
        })?;
        Ok(checksum)
    }
}
