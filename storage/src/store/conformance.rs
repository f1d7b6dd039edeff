//! The contract of [`Store`] as one test for every store: `conformance::check(|| an empty store)`.

use super::{Order, Rows, Store, StoreError};
use crate::row::{Change, RowKey, RowKeyRef, RowRange, RowValue};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs every part of the contract against fresh stores.
pub(crate) fn check<S: Store>(fresh: impl Fn() -> S) {
    staged_changes_are_seen(fresh());
    snapshots_stay(fresh());
    snapshots_are_read_on_other_threads(fresh());
    scans_are_ordered(fresh());
    replace_is_all_or_nothing(fresh());
    agrees_with_a_model(&fresh);
}

fn put(key: &[u8], value: &[u8]) -> Change {
    Change { key: RowKey::new(key), value: Some(RowValue::new(value)) }
}

fn gone(key: &[u8]) -> Change {
    Change { key: RowKey::new(key), value: None }
}

fn get(rows: &dyn Rows, key: &[u8]) -> Option<Vec<u8>> {
    rows.get(RowKeyRef::new(key)).unwrap().map(|value| value.to_vec())
}

fn scan(rows: &dyn Rows, range: &RowRange, order: Order, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = &mut |key: RowKeyRef<'_>, value: &RowValue| {
        if found.len() == limit {
            return ControlFlow::Break(());
        }
        let mut bytes = Vec::new();
        key.write_to(&mut bytes);
        found.push((bytes, value.to_vec()));
        ControlFlow::Continue(())
    };
    rows.scan(range, order, visit).unwrap();
    found
}

fn all(rows: &dyn Rows) -> Model {
    scan(rows, &RowRange::all(), Order::Ascending, usize::MAX).into_iter().collect()
}

/// S1.
fn staged_changes_are_seen<S: Store>(mut store: S) {
    store.stage(&mut vec![put(b"a", b"1"), put(b"b", b"2")]).unwrap();
    assert_eq!(get(&store, b"a"), Some(b"1".to_vec()));
    let mut batch = vec![gone(b"a"), put(b"b", b"3"), gone(b"never there")];
    store.stage(&mut batch).unwrap();
    assert!(batch.is_empty());
    assert_eq!(all(&store), Model::from([(b"b".to_vec(), b"3".to_vec())]));
    store.commit(&mut vec![put(b"marker", b"7")]).unwrap();
    assert_eq!(all(&store.snapshot()), all(&store));
}

/// S3.
fn snapshots_stay<S: Store>(mut store: S) {
    store.commit(&mut vec![put(b"a", b"1"), put(b"b", &[9; 100])]).unwrap();
    let first = store.snapshot();
    store.commit(&mut vec![put(b"a", b"2"), gone(b"b"), put(b"c", b"3")]).unwrap();
    let second = first.clone();
    let third = store.snapshot();
    assert_eq!(get(&first, b"a"), Some(b"1".to_vec()));
    assert_eq!(get(&second, b"b"), Some(vec![9; 100]));
    assert_eq!(get(&second, b"c"), None);
    drop(first);
    assert_eq!(all(&third).len(), 2);
    assert_eq!(get(&store, b"b"), None);
}

/// S3, while commits go on.
fn snapshots_are_read_on_other_threads<S: Store>(mut store: S) {
    let number = |n: u32| n.to_be_bytes();
    store.commit(&mut (0..5_000).map(|n| put(&number(n), b"old")).collect()).unwrap();
    let snapshot = store.snapshot();
    let reader = std::thread::spawn(move || all(&snapshot));
    for n in 0..5_000 {
        store.commit(&mut vec![put(&number(n), b"new"), put(&number(n + 5_000), b"new")]).unwrap();
    }
    let seen = reader.join().unwrap();
    assert_eq!(seen.len(), 5_000);
    assert!(seen.values().all(|value| value == b"old"));
    assert_eq!(all(&store).len(), 10_000);
}

/// S4.
fn scans_are_ordered<S: Store>(mut store: S) {
    let keys: [&[u8]; 6] = [b"", b"a", b"a\0", b"aaaaaaaaaaaaaaaa", b"aaaaaaaaaaaaaaaa\0", b"b"];
    store.commit(&mut keys.iter().rev().map(|key| put(key, key)).collect()).unwrap();
    let names = |range: &RowRange, order, limit| {
        scan(&store, range, order, limit).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(names(&RowRange::all(), Order::Ascending, 99), keys);
    assert_eq!(names(&RowRange::prefix(b"a"), Order::Ascending, 99), keys[1..5]);
    assert_eq!(names(&RowRange::prefix(b"a"), Order::Descending, 2), [keys[4], keys[3]]);
    let upside_down = RowRange { from: RowKey::new(b"b"), to: Some(RowKey::new(b"a")) };
    assert_eq!(names(&upside_down, Order::Ascending, 99).len(), 0);
    assert_eq!(names(&upside_down, Order::Descending, 99).len(), 0);
}

/// S5.
fn replace_is_all_or_nothing<S: Store>(mut store: S) {
    store.commit(&mut vec![put(b"a", b"1")]).unwrap();
    let row = |key: &[u8]| Ok((RowKey::new(key), RowValue::new(b"x")));
    let broken = [row(b"b"), Err(StoreError::new("torn"))];
    assert!(store.replace(broken.into_iter()).is_err());
    assert_eq!(all(&store).len(), 1);
    assert_eq!(get(&store, b"a"), Some(b"1".to_vec()));
    let before = store.snapshot();
    store.replace([row(b"b"), row(b"c")].into_iter()).unwrap();
    assert_eq!(all(&store).into_keys().collect::<Vec<_>>(), [b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(all(&before).len(), 1);
}

fn agrees_with_a_model<S: Store>(fresh: &impl Fn() -> S) {
    use proptest::prelude::*;
    let key = || prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255]), 0..20);
    let change = (key(), prop::option::of(prop::collection::vec(any::<u8>(), 0..40)));
    let batches = prop::collection::vec((prop::collection::vec(change, 0..20), any::<bool>()), 0..20);
    proptest!(ProptestConfig::with_cases(64), |(batches in batches, from in key(), to in key())| {
        let (mut store, mut model) = (fresh(), Model::new());
        for (changes, is_commit) in batches {
            let unique: BTreeMap<_, _> = changes.into_iter().collect();
            let mut batch = unique.iter().map(|(key, value)| match value {
                Some(value) => put(key, value),
                None => gone(key),
            }).collect();
            for (key, value) in unique {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            if is_commit { store.commit(&mut batch).unwrap() } else { store.stage(&mut batch).unwrap() }
            prop_assert_eq!(&all(&store), &model);
        }
        let range = RowRange { from: RowKey::new(&from), to: Some(RowKey::new(&to)) };
        let mut part: Vec<_> = model.into_iter().filter(|(k, _)| *k >= from && *k < to).collect();
        prop_assert_eq!(&scan(&store, &range, Order::Ascending, usize::MAX), &part);
        part.reverse();
        prop_assert_eq!(&scan(&store, &range, Order::Descending, usize::MAX), &part);
    });
}
