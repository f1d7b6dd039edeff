//! The contract, and what only this store promises: boundaries that survive, rows that are exchanged whole.

use super::{Attachment, DiskStore, Workshop};
use crate::row::{Change, RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::{Order, Rows, Store, StoreError, conformance};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn workshop(directory: &Path) -> Workshop {
    Workshop::new(directory, 1 << 20, Arc::new(|| ()))
}

fn attachment(slot: u64) -> Attachment {
    Attachment { slot, bytes: format!("consensus at {slot}").into() }
}

fn fresh(directory: &Path) -> DiskStore {
    let workshop = workshop(directory);
    workshop.found(workshop.prepare(std::iter::empty::<Result<_, StoreError>>(), None).unwrap()).unwrap()
}

fn put(key: &[u8], value: &[u8]) -> Change {
    Change { key: RowKey::new(key), value: Some(RowValue::new(value)) }
}

fn number(rows: &dyn Rows, key: &[u8]) -> Option<u64> {
    let value = rows.get(RowKeyRef::new(key)).unwrap()?;
    Some(u64::from_be_bytes(*value.first_chunk().unwrap()))
}

/// A store in a directory that goes with it.
struct Kept {
    store: DiskStore,
    _directory: tempfile::TempDir,
}

impl Rows for Kept {
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<std::borrow::Cow<'_, RowValue>>, StoreError> {
        self.store.get(key)
    }

    fn scan(
        &self,
        range: &RowRange,
        order: Order,
        visit: &mut crate::store::Visit<'_>,
    ) -> Result<(), StoreError> {
        self.store.scan(range, order, visit)
    }
}

impl Store for Kept {
    type Snapshot = super::DiskSnapshot;

    fn as_rows(&self) -> &dyn Rows {
        self
    }

    fn stage(&mut self, batch: &mut crate::row::Batch) -> Result<(), StoreError> {
        self.store.stage(batch)
    }

    fn commit(&mut self, batch: &mut crate::row::Batch) -> Result<(), StoreError> {
        self.store.commit(batch)
    }

    fn snapshot(&self) -> super::DiskSnapshot {
        self.store.snapshot()
    }

    fn replace<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E> {
        self.store.replace(rows)
    }
}

#[test]
fn keeps_the_contract() {
    // Layers stay active, are sealed, and are with the engine, in all mixtures.
    let turn = Cell::new(0_u64);
    let between = |kept: &mut Kept| {
        turn.set(turn.get() + 1);
        match turn.get() % 4 {
            0 => {}
            1 => kept.store.seal(attachment(turn.get()), false).unwrap(),
            2 => kept.store.seal(attachment(turn.get()), true).unwrap(),
            _ => {
                kept.store.seal(attachment(turn.get()), false).unwrap();
                kept.store.settle().unwrap();
            }
        }
    };
    let fresh = || {
        let directory = tempfile::tempdir().unwrap();
        Kept { store: fresh(directory.path()), _directory: directory }
    };
    conformance::check(24, fresh, &between);
}

#[test]
fn what_was_not_sealed_is_gone_after_a_restart_and_what_was_durable_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = fresh(directory.path());
    for slot in 1..=20_u64 {
        let value = slot.to_be_bytes();
        store.commit(&mut vec![put(b"slot", &value), put(&value, &vec![7; 300])]).unwrap();
        if slot <= 15 {
            store.seal(attachment(slot), slot == 10).unwrap();
        }
    }
    store.settle().unwrap();
    assert_eq!(store.take_durable().unwrap(), Some(10));
    assert_eq!(store.take_durable().unwrap(), None);
    assert_eq!(number(&store, b"slot"), Some(20));
    drop(store);
    let (store, found) = workshop(directory.path()).open().unwrap().unwrap();
    assert_eq!(found, Some(attachment(15)));
    assert_eq!(number(&store, b"slot"), Some(15));
    assert!(store.get(RowKeyRef::new(&15_u64.to_be_bytes())).unwrap().is_some());
    assert!(store.get(RowKeyRef::new(&16_u64.to_be_bytes())).unwrap().is_none());
}

#[test]
fn rows_are_exchanged_whole_also_when_the_exchange_is_cut_short() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = fresh(directory.path());
    store.commit(&mut vec![put(b"old", &1_u64.to_be_bytes())]).unwrap();
    store.seal(attachment(1), true).unwrap();
    store.settle().unwrap();
    let shop = workshop(directory.path());
    let row = |key: &[u8]| Ok::<_, StoreError>((RowKey::new(key), RowValue::new(&[9; 8])));
    // Prepared, and the process ends before it counts.
    let unfinished = shop.prepare([row(b"new")].into_iter(), Some(&attachment(9))).unwrap();
    unfinished.engine.keep();
    drop((unfinished, store));
    let (mut store, found) = shop.open().unwrap().unwrap();
    assert_eq!((found, number(&store, b"old")), (Some(attachment(1)), Some(1)));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "'current' and what it names");
    // Not adopted: nothing is left of it.
    drop(shop.prepare([row(b"new")].into_iter(), Some(&attachment(9))).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    // Adopted: what was sealed before does not come back, and old snapshots can be read to their end.
    let before = store.snapshot();
    let prepared = shop.prepare([row(b"new")].into_iter(), Some(&attachment(9))).unwrap();
    store.commit(&mut vec![put(b"old", &2_u64.to_be_bytes())]).unwrap();
    store.seal(attachment(2), true).unwrap();
    store = shop.adopt(&store, prepared).unwrap();
    assert_eq!((number(&store, b"old"), number(&store, b"new").is_some()), (None, true));
    assert_eq!(number(&before, b"old"), Some(1));
    drop((before, store));
    let (store, found) = shop.open().unwrap().unwrap();
    assert_eq!((found, number(&store, b"old")), (Some(attachment(9)), None));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn who_asks_for_room_never_has_too_many_layers_and_nothing_is_lost_on_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = fresh(directory.path());
    for slot in 1..=200_u64 {
        while !store.has_room().unwrap() {
            std::thread::yield_now();
        }
        let mut batch = (0..50).map(|n: u64| put(&(slot * 50 + n).to_be_bytes(), &[1; 900])).collect();
        store.commit(&mut batch).unwrap();
        store.seal(attachment(slot), false).unwrap();
        assert!(store.sealed.len() <= super::SEALED_MAX + 1);
    }
    let mut rows = 0;
    let count = &mut |_: RowKeyRef<'_>, _: &RowValue| {
        rows += 1;
        ControlFlow::Continue(())
    };
    store.scan(&RowRange::all(), Order::Ascending, count).unwrap();
    assert_eq!(rows, 200 * 50);
}

#[test]
fn a_store_in_use_is_not_opened_twice_and_a_damaged_name_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let store = fresh(directory.path());
    let error = workshop(directory.path()).open().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("another process uses it"), "{error}");
    drop(store);
    std::fs::write(directory.path().join("current"), "nonsense").unwrap();
    let error = workshop(directory.path()).open().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
    assert!(workshop(&directory.path().join("nowhere")).open().unwrap().is_none());
}

#[test]
fn rows_that_are_named_but_gone_are_told_and_nothing_else_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = fresh(directory.path());
    store.seal(attachment(1), true).unwrap();
    store.settle().unwrap();
    drop(store);
    let (rows, other) = (directory.path().join("rows-1"), directory.path().join("rows-7"));
    std::fs::create_dir(&other).unwrap();
    let aside = directory.path().join("aside");
    std::fs::rename(&rows, &aside).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            std::fs::create_dir(&rows).unwrap();
        }
        let error = workshop(directory.path()).open().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("rows-1 is missing or empty"), "{error}");
        assert!(other.exists());
        assert_eq!(rows.exists(), is_empty, "no database was made in its place");
    }
    // Put back, it is opened, and what does not count goes.
    std::fs::remove_dir(&rows).unwrap();
    std::fs::rename(&aside, &rows).unwrap();
    assert_eq!(workshop(directory.path()).open().unwrap().unwrap().1, Some(attachment(1)));
    assert!(!other.exists());
}

#[test]
fn while_nobody_knows_which_rows_count_both_stay() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = fresh(directory.path());
    store.seal(attachment(1), true).unwrap();
    store.settle().unwrap();
    let shop = workshop(directory.path());
    let row = Ok::<_, StoreError>((RowKey::new(b"new"), RowValue::new(&[9; 8])));
    let prepared = shop.prepare(std::iter::once(row), Some(&attachment(9))).unwrap();
    // The disk says no when they are to be named.
    let in_the_way = directory.path().join("current.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    let error = shop.adopt(&store, prepared).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("cannot write 'current'"), "{error}");
    drop(store);
    for name in ["rows-1", "rows-2"] {
        assert!(directory.path().join(name).join("keyspaces").exists(), "{name} is gone");
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(shop.open().unwrap().unwrap().1, Some(attachment(1)));
}
