//! Overlays: reads see their own writes, dropping undoes, scans merge.

use super::support::{Lab, rows};
use crate::machine::{Machine, Stamp, Txn, encode_command};
use crate::reply::Reply;
use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::{MemoryStore, Order, Rows, Store, StoreError, Visit};
use bytes::Bytes;
use proptest::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn scan(rows: &dyn Rows, range: &RowRange, order: Order, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    rows.scan(range, order, &mut |key, value| {
        let mut bytes = Vec::new();
        key.write_to(&mut bytes);
        found.push((bytes, value.to_vec()));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .unwrap();
    found
}

proptest! {
    #[test]
    fn a_transaction_is_its_store_with_changes(
        base in prop::collection::btree_map(prop::collection::vec(0..3_u8, 0..4), prop::collection::vec(any::<u8>(), 0..3), 0..60),
        changes in prop::collection::vec(
            (prop::collection::vec(0..3_u8, 0..4), prop::option::of(prop::collection::vec(any::<u8>(), 0..3))), 0..40),
        from in prop::collection::vec(0..3_u8, 0..4),
        to in prop::option::of(prop::collection::vec(0..3_u8, 0..4)),
        limit in 1..20_usize,
    ) {
        let mut store = MemoryStore::default();
        let row = |key: &Vec<u8>, value: &Vec<u8>| Ok::<_, StoreError>((RowKey::new(key), RowValue::new(value)));
        store.replace(base.iter().map(|(key, value)| row(key, value))).unwrap();
        let stamp = Stamp { slot: 1, index: 0, at_ms: 0 };
        let meta = crate::machine::Meta::default();
        let mut txn = Txn::new(&store, &meta, &stamp, Vec::new());
        let mut model: Model = base.clone();
        for (key, value) in changes {
            match value {
                Some(value) => {
                    txn.put_row(RowKey::new(&key), RowValue::new(&value));
                    model.insert(key, value);
                }
                None => {
                    txn.remove_row(RowKey::new(&key));
                    model.remove(&key);
                }
            }
        }
        for key in base.keys().chain(model.keys()) {
            prop_assert_eq!(txn.row(RowKeyRef::new(key)).map(|value| value.to_vec()), model.get(key).cloned());
        }
        let range = RowRange { from: RowKey::new(&from), to: to.as_ref().map(|to| RowKey::new(to)) };
        let mut part: Vec<_> = model
            .iter()
            .filter(|(key, _)| **key >= from && to.as_ref().is_none_or(|to| *key < to))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let some = |part: &[(Vec<u8>, Vec<u8>)]| part.iter().take(limit).cloned().collect::<Vec<_>>();
        prop_assert_eq!(scan(&txn, &range, Order::Ascending, limit), some(&part));
        part.reverse();
        prop_assert_eq!(scan(&txn, &range, Order::Descending, limit), some(&part));

        let (mut batch, ..) = txn.finish().unwrap();
        prop_assert_eq!(rows(&store).len(), base.len(), "nothing is changed before the commit");
        store.commit(&mut batch).unwrap();
        prop_assert_eq!(scan(&store, &RowRange::all(), Order::Ascending, usize::MAX), model.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn commands_of_a_slot_see_each_other() {
    let mut machine = Machine::default();
    let stamp = |index| Stamp { slot: 1, index, at_ms: 5 };
    assert_eq!(machine.apply(&stamp(0), &encode_command(0, &["SET", "a", "1"])), Reply::Ok);
    assert_eq!(machine.apply(&stamp(1), &encode_command(0, &["INCR", "a"])), Reply::Integer(2));
    assert_eq!(machine.apply(&stamp(2), &encode_command(0, &["GET", "a"])), Reply::bulk(b"2"));
    assert_eq!(machine.apply(&stamp(3), &encode_command(0, &["DBSIZE"])), Reply::Integer(1));
    machine.finish_slot(1).unwrap();
    assert_eq!(machine.applied(), 1);
    assert_eq!(machine.snapshot().applied(), 1);
}

#[test]
#[should_panic(expected = "M2")]
fn half_a_slot_is_not_shown() {
    let mut machine = Machine::default();
    machine.apply(&Stamp { slot: 1, index: 0, at_ms: 5 }, &encode_command(0, &["SET", "a", "1"]));
    let _ = machine.view(5);
}

#[test]
fn wrong_entries_are_error_replies() {
    let mut lab = Lab::new();
    for payload in [
        &[][..],
        &[1],
        &[9, 0, 1, 1, b'x'],
        &[1, 16, 1, 3, b'G', b'E', b'T'],
        &[1, 0, 0],
        &[1, 0, 0xFF, 0xFF, 0xFF, 0x7F, 1],
    ] {
        assert!(lab.apply(&Bytes::copy_from_slice(payload)).is_error());
    }
    assert!(lab.apply(&encode_command(0, &["NOSUCH"])).is_error());
    assert!(lab.apply(&encode_command(0, &["SET", "a"])).is_error());
    assert_eq!(lab.data_rows(), []);
    assert_eq!(lab.machine.applied(), 8);
}

/// A store that fails to read one key.
#[derive(Default)]
struct Broken(MemoryStore);

impl Rows for Broken {
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        if key.tail() == b"bad" { Err(StoreError::new("bad sector")) } else { self.0.get(key) }
    }
    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.0.scan(range, order, visit)
    }
}

impl Store for Broken {
    type Snapshot = crate::store::MemorySnapshot;

    fn as_rows(&self) -> &dyn Rows {
        self
    }
    fn stage(&mut self, batch: &mut Vec<crate::row::Change>) -> Result<(), StoreError> {
        self.0.stage(batch)
    }
    fn commit(&mut self, batch: &mut Vec<crate::row::Change>) -> Result<(), StoreError> {
        self.0.commit(batch)
    }
    fn snapshot(&self) -> Self::Snapshot {
        self.0.snapshot()
    }
    fn replace<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E> {
        self.0.replace(rows)
    }
}

#[test]
fn a_store_that_fails_stops_the_machine() {
    let mut machine = Machine::open(Broken::default()).unwrap();
    let stamp = |slot| Stamp { slot, index: 0, at_ms: 5 };
    assert_eq!(machine.apply(&stamp(1), &encode_command(0, &["SET", "good", "1"])), Reply::Ok);
    machine.finish_slot(1).unwrap();
    let view = machine.view(5);
    assert!(view.find(0, b"bad").is_none());
    assert_eq!(view.check().unwrap_err().to_string(), "bad sector");
    machine.apply(&stamp(2), &encode_command(0, &["SET", "bad", "1"]));
    assert!(machine.apply(&stamp(2), &encode_command(0, &["SET", "good", "2"])).is_error());
    assert_eq!(machine.finish_slot(2).unwrap_err().to_string(), "bad sector");
    assert_eq!(machine.applied(), 1);
}

#[test]
fn a_look_between_two_commands_changes_nothing_and_may_fail() {
    let mut machine = Machine::open(Broken::default()).unwrap();
    let stamp = Stamp { slot: 1, index: 0, at_ms: 5 };
    let command = |words: &[&str]| encode_command(0, words);
    assert_eq!(machine.apply(&stamp, &command(&["SET", "good", "1"])), Reply::Ok);
    assert_eq!(machine.peek(&stamp, &command(&["GET", "good"])), Reply::Bulk("1".into()));
    assert!(machine.peek(&stamp, &command(&["GET", "bad"])).is_error());
    assert_eq!(machine.peek(&stamp, &command(&["INCR", "good"])), Reply::Integer(2));
    assert_eq!(machine.apply(&stamp, &command(&["INCR", "good"])), Reply::Integer(2));
    let fields: Vec<String> = (0..100).map(|field| field.to_string()).collect();
    let mut words = vec!["HSET", "hash"];
    words.extend(fields.iter().flat_map(|field| [field.as_str(), "x"]));
    machine.apply(&stamp, &command(&words));
    let random: Vec<Reply> =
        (0..16).map(|_| machine.peek(&stamp, &command(&["HRANDFIELD", "hash"]))).collect();
    assert!(random.iter().any(|field| *field != random[0]), "all the same: {random:?}");
    machine.finish_slot(1).unwrap();
    assert_eq!(machine.applied(), 1);
}
