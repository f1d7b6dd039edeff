//! The contract of [`Store`] as one test for every store: `conformance::check(cases, || an empty store, what its host may do after a commit)`.

use super::{MemoryStore, Order, Rows, Store, StoreError};
use crate::machine::Checksum;
use crate::row::{Change, RowKey, RowKeyRef, RowRange, RowValue};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a store's host does between two commits; must change nothing that a reader sees.
type Between<'a, S> = &'a dyn Fn(&mut S);

/// Runs every part of the contract against fresh stores.
pub(crate) fn check<S: Store>(cases: u32, fresh: impl Fn() -> S, between: Between<'_, S>) {
    staged_changes_are_seen(fresh());
    snapshots_stay(fresh(), between);
    snapshots_are_read_on_other_threads(fresh(), between);
    scans_are_ordered(fresh(), between);
    long_keys_are_ordered(fresh(), between);
    replace_is_all_or_nothing(fresh(), between);
    agrees_with_a_model(cases, &fresh, between);
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

/// The checksum of the same rows in memory.
fn sum_of(model: &Model) -> Checksum {
    let mut store = MemoryStore::default();
    store.commit(&mut model.iter().map(|(key, value)| put(key, value)).collect()).unwrap();
    Checksum::of(&store).unwrap()
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
fn snapshots_stay<S: Store>(mut store: S, between: Between<'_, S>) {
    store.commit(&mut vec![put(b"a", b"1"), put(b"b", &[9; 100])]).unwrap();
    let first = store.snapshot();
    between(&mut store);
    store.commit(&mut vec![put(b"a", b"2"), gone(b"b"), put(b"c", b"3")]).unwrap();
    between(&mut store);
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
fn snapshots_are_read_on_other_threads<S: Store>(mut store: S, between: Between<'_, S>) {
    let number = |n: u32| n.to_be_bytes();
    store.commit(&mut (0..5_000).map(|n| put(&number(n), b"old")).collect()).unwrap();
    let snapshot = store.snapshot();
    let reader = std::thread::spawn(move || all(&snapshot));
    for n in 0..5_000 {
        store.commit(&mut vec![put(&number(n), b"new"), put(&number(n + 5_000), b"new")]).unwrap();
        if n % 500 == 0 {
            between(&mut store);
        }
    }
    let seen = reader.join().unwrap();
    assert_eq!(seen.len(), 5_000);
    assert!(seen.values().all(|value| value == b"old"));
    assert_eq!(all(&store).len(), 10_000);
}

/// S4.
fn scans_are_ordered<S: Store>(mut store: S, between: Between<'_, S>) {
    let keys: [&[u8]; 6] = [b"", b"a", b"a\0", b"aaaaaaaaaaaaaaaa", b"aaaaaaaaaaaaaaaa\0", b"b"];
    for keys in keys.chunks(2) {
        store.commit(&mut keys.iter().rev().map(|key| put(key, key)).collect()).unwrap();
        between(&mut store);
    }
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

/// S4, for keys that are longer than an engine may take.
fn long_keys_are_ordered<S: Store>(mut store: S, between: Between<'_, S>) {
    let key = |fill: u8, length: usize, end: &[u8]| [&vec![fill; length][..], end].concat();
    let mut keys: Vec<Vec<u8>> = vec![key(6, 10, b""), key(8, 10, b"")];
    for length in [59_998, 59_999, 60_000, 60_001, 65_536, 200_000] {
        keys.extend([&b""[..], b"a", b"b", b"c"].map(|end| key(7, length, end)));
    }
    keys.sort();
    keys.dedup();
    // Every other one lies in another layer than its neighbours.
    for part in [1, 0] {
        let part = keys.iter().skip(part).step_by(2);
        store.commit(&mut part.map(|key| put(key, &key[key.len() - 3..])).collect()).unwrap();
        between(&mut store);
    }
    let removed = keys.remove(9);
    store.commit(&mut vec![gone(&removed)]).unwrap();
    between(&mut store);
    let names = |range: &RowRange, order| {
        scan(&store, range, order, usize::MAX).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert!(names(&RowRange::all(), Order::Ascending) == keys);
    for from in 0..keys.len() {
        assert_eq!(get(&store, &keys[from]).unwrap(), keys[from][keys[from].len() - 3..]);
        let range = RowRange { from: RowKey::new(&keys[from]), to: keys.last().map(|key| RowKey::new(key)) };
        let expected = &keys[from..keys.len() - 1];
        assert!(names(&range, Order::Ascending) == expected);
        assert!(names(&range, Order::Descending).iter().rev().eq(expected));
    }
    assert_eq!(get(&store, &removed), None);
    let rows: Vec<_> = all(&store).into_iter().map(|(k, v)| (RowKey::new(&k), RowValue::new(&v))).collect();
    store.replace(rows.into_iter().map(Ok::<_, StoreError>)).unwrap();
    assert!(all(&store).into_keys().eq(keys));
}

/// S5.
fn replace_is_all_or_nothing<S: Store>(mut store: S, between: Between<'_, S>) {
    store.commit(&mut vec![put(b"a", b"1")]).unwrap();
    between(&mut store);
    let row = |key: &[u8]| Ok((RowKey::new(key), RowValue::new(b"x")));
    let broken = [row(b"b"), Err(StoreError::new("torn"))];
    assert!(store.replace(broken.into_iter()).is_err());
    assert_eq!(all(&store).len(), 1);
    assert_eq!(get(&store, b"a"), Some(b"1".to_vec()));
    let before = store.snapshot();
    store.replace([row(b"b"), row(b"c")].into_iter()).unwrap();
    between(&mut store);
    assert_eq!(all(&store).into_keys().collect::<Vec<_>>(), [b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(all(&before).len(), 1);
}

fn agrees_with_a_model<S: Store>(cases: u32, fresh: &impl Fn() -> S, between: Between<'_, S>) {
    use proptest::prelude::*;
    let key = || prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255]), 0..20);
    let change = (key(), prop::option::of(prop::collection::vec(any::<u8>(), 0..40)));
    let batches = prop::collection::vec((prop::collection::vec(change, 0..20), any::<bool>()), 0..20);
    proptest!(ProptestConfig::with_cases(cases), |(batches in batches, from in key(), to in key())| {
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
            if is_commit {
                store.commit(&mut batch).unwrap();
                between(&mut store);
                let (sum, model) = (Checksum::of(&store).unwrap(), sum_of(&model));
                prop_assert_eq!((sum, Checksum::of(&store.snapshot()).unwrap()), (model, model));
            } else {
                store.stage(&mut batch).unwrap();
            }
            prop_assert_eq!(&all(&store), &model);
        }
        let range = RowRange { from: RowKey::new(&from), to: Some(RowKey::new(&to)) };
        let mut part: Vec<_> = model.into_iter().filter(|(k, _)| *k >= from && *k < to).collect();
        prop_assert_eq!(&scan(&store, &range, Order::Ascending, usize::MAX), &part);
        part.reverse();
        prop_assert_eq!(&scan(&store, &range, Order::Descending, usize::MAX), &part);
    });
}
