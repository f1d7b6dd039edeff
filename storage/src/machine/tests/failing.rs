//! A store that fails in the middle of several slots: the machine says so again and again, and never panics.

use crate::machine::{Machine, Stamp, encode_command};
use crate::row::{Batch, RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::{MemorySnapshot, MemoryStore, Order, Rows, Store, StoreError, Visit};
use std::borrow::Cow;

/// Takes so many commits, and no more.
struct Failing {
    rows: MemoryStore,
    commits_left: u32,
}

impl Rows for Failing {
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        self.rows.get(key)
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.rows.scan(range, order, visit)
    }
}

impl Store for Failing {
    type Snapshot = MemorySnapshot;

    fn as_rows(&self) -> &dyn Rows {
        self
    }

    fn stage(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        self.rows.stage(batch)
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        if self.commits_left == 0 {
            return Err(StoreError::new("the disk is gone"));
        }
        self.commits_left -= 1;
        self.rows.commit(batch)
    }

    fn snapshot(&self) -> MemorySnapshot {
        self.rows.snapshot()
    }

    fn replace<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E> {
        self.rows.replace(rows)
    }
}

#[test]
fn the_slots_behind_a_failed_one_are_refused() {
    let store = Failing { rows: MemoryStore::default(), commits_left: 1 };
    let mut machine = Machine::open(store).unwrap();
    let set = encode_command(0, &[&b"SET"[..], b"key", b"value"]);
    let stamp = |slot| Stamp { slot, index: 0, at_ms: 1_000 };
    assert!(!machine.apply(&stamp(1), &set).is_error());
    machine.finish_slot(1).unwrap();
    assert!(!machine.apply(&stamp(2), &set).is_error());
    assert!(machine.finish_slot(2).unwrap_err().to_string().contains("gone"));
    // A host applies all slots of a turn before it looks.
    for slot in 3..6 {
        assert!(machine.apply(&stamp(slot), &set).is_error());
        assert!(machine.finish_slot(slot).unwrap_err().to_string().contains("gone"));
    }
}
