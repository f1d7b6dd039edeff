//! Going through the engine's rows in the order of the machine's keys.
//!
//! Both orders are the same but for long keys, which the engine has cut: those with the same beginning come together and are put in order here. They share
//! 60,000 bytes, so there are few.

use super::engine::{Engine, SHORT_KEY_BYTES};
use crate::row::{RowKey, RowRange, RowValue};
use crate::store::{Order, StoreError};

type Stored = (fjall::UserKey, fjall::UserValue);

/// See the module's description.
pub(super) struct Cursor<'e> {
    engine: &'e Engine,
    rows: Option<fjall::Iter>,
    range: RowRange,
    order: Order,
    /// Read already, not shown yet.
    ahead: Option<Stored>,
    /// Long rows with the same beginning; the next one is last.
    long: Vec<(RowKey, RowValue)>,
}

impl<'e> Cursor<'e> {
    pub(super) fn new(
        engine: &'e Engine,
        rows: Option<fjall::Iter>,
        range: RowRange,
        order: Order,
    ) -> Cursor<'e> {
        Cursor { engine, rows, range, order, ahead: None, long: Vec::new() }
    }

    fn read(&mut self) -> Result<Option<Stored>, StoreError> {
        if let Some(row) = self.ahead.take() {
            return Ok(Some(row));
        }
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let next = match self.order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        };
        next.map(|row| row.into_inner().map_err(|error| self.engine.failed("read", &error))).transpose()
    }

    /// The next row.
    pub(super) fn next(&mut self) -> Result<Option<(RowKey, RowValue)>, StoreError> {
        loop {
            if let Some(row) = self.long.pop() {
                return Ok(Some(row));
            }
            let Some((key, value)) = self.read()? else { return Ok(None) };
            if key.len() <= SHORT_KEY_BYTES {
                return self.engine.row_of(&key, &value).map(Some);
            }
            self.gather((key, value))?;
        }
    }

    fn gather(&mut self, first: Stored) -> Result<(), StoreError> {
        let beginning = first.0.clone();
        let mut next = Some(first);
        while let Some((key, value)) = next {
            if key.get(..=SHORT_KEY_BYTES) != beginning.get(..=SHORT_KEY_BYTES) {
                self.ahead = Some((key, value));
                break;
            }
            let row = self.engine.row_of(&key, &value)?;
            if self.range.contains(row.0.borrow()) {
                self.long.push(row);
            }
            next = self.read()?;
        }
        self.long.sort_unstable_by(|(a, _), (b, _)| match self.order {
            Order::Ascending => b.cmp(a),
            Order::Descending => a.cmp(b),
        });
        Ok(())
    }
}
