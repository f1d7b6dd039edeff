//! The tree against `BTreeMap`, and handles against later changes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

impl Tree {
    fn check(&self) {
        self.root.check(true, None, None);
        let mut rows = 0;
        self.ascend(&RowRange::all(), &mut |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(rows, self.len());
    }

    fn contents(&self, range: &RowRange, descending: bool, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let mut visit = |key: RowKeyRef<'_>, value: &RowValue| {
            if found.len() == limit {
                return ControlFlow::Break(());
            }
            let mut bytes = Vec::new();
            key.write_to(&mut bytes);
            found.push((bytes, value.to_vec()));
            ControlFlow::Continue(())
        };
        if descending {
            self.descend(range, &mut visit)
        } else {
            self.ascend(range, &mut visit)
        }
        found
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Both: keys that differ in the head, and many that differ only in the tail.
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        (0..800_u32).prop_map(|n| [&[7; 16][..], &n.to_be_bytes()].concat()),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, u8),
    Remove(Vec<u8>),
    /// Removes the first keys from here on: whole leaves go.
    RemoveRun(Vec<u8>, usize),
    /// Adds ascending keys.
    InsertRun(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (key(), any::<u8>()).prop_map(|(k, v)| Step::Insert(k, v)),
        3 => key().prop_map(Step::Remove),
        1 => (key(), 1..300_usize).prop_map(|(k, n)| Step::RemoveRun(k, n)),
        1 => any::<u16>().prop_map(Step::InsertRun),
    ]
}

fn run(tree: &mut Tree, model: &mut Model, step: &Step) {
    match step {
        Step::Insert(key, value) => {
            let old = tree.insert(RowKey::new(key), RowValue::new(&[*value]));
            assert_eq!(old.map(|old| old.to_vec()), model.insert(key.clone(), vec![*value]));
        }
        Step::Remove(key) => {
            let old = tree.remove(RowKeyRef::new(key));
            assert_eq!(old.map(|old| old.to_vec()), model.remove(key));
        }
        Step::RemoveRun(from, count) => {
            let keys: Vec<_> = model.range(from.clone()..).take(*count).map(|(k, _)| k.clone()).collect();
            for key in keys {
                model.remove(&key);
                assert!(tree.remove(RowKeyRef::new(&key)).is_some());
            }
        }
        Step::InsertRun(from) => {
            for n in u32::from(*from)..u32::from(*from) + 400 {
                let key = [&[8; 12][..], &n.to_be_bytes()].concat();
                tree.insert(RowKey::new(&key), RowValue::new(&key));
                model.insert(key.clone(), key);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_a_btree_map(
        before in prop::collection::vec(step(), 0..300),
        after in prop::collection::vec(step(), 0..100),
        from in key(),
        to in key(),
        limit in 0..50_usize,
    ) {
        let (mut tree, mut model) = (Tree::default(), Model::new());
        before.iter().for_each(|step| run(&mut tree, &mut model, step));
        tree.check();
        let (handle, handle_model) = (tree.clone(), model.clone());
        after.iter().for_each(|step| run(&mut tree, &mut model, step));
        tree.check();
        handle.check();

        for (tree, model) in [(&tree, &model), (&handle, &handle_model)] {
            let all: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            prop_assert_eq!(&tree.contents(&RowRange::all(), false, usize::MAX), &all);
            let range = RowRange { from: RowKey::new(&from), to: Some(RowKey::new(&to)) };
            let mut part: Vec<_> = all.iter().filter(|(k, _)| *k >= from && *k < to).cloned().collect();
            prop_assert_eq!(tree.contents(&range, false, limit), part.iter().take(limit).cloned().collect::<Vec<_>>());
            part.reverse();
            prop_assert_eq!(tree.contents(&range, true, limit), part.iter().take(limit).cloned().collect::<Vec<_>>());
            for (key, value) in all.iter().take(50) {
                prop_assert_eq!(tree.get(RowKeyRef::new(key)).map(|v| v.to_vec()), Some(value.clone()));
            }
        }
    }
}

#[test]
fn removing_everything_leaves_an_empty_tree() {
    let mut tree = Tree::default();
    let keys: Vec<_> = (0..20_000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()).collect();
    keys.iter().for_each(|key| assert!(tree.insert(RowKey::new(key), RowValue::EMPTY).is_none()));
    tree.check();
    keys.iter().for_each(|key| assert!(tree.remove(RowKeyRef::new(key)).is_some()));
    tree.check();
    assert!(tree.is_empty());
    assert!(matches!(tree.root, Node::Leaf(_)));
}

#[test]
fn ascending_rows_fill_their_leaves() {
    let mut tree = Tree::default();
    (0..32_000_u32).for_each(|n| {
        tree.insert(RowKey::new(&n.to_be_bytes()), RowValue::EMPTY);
    });
    tree.check();
    // 1,000 full leaves under 16 full inner nodes: three levels. Half-full ones would do too; many more levels would not.
    assert_eq!(tree.root.check(true, None, None), 3);
}
