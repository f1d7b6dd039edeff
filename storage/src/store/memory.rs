//! The store in memory: a [`Tree`], nothing else. Durable by the journal and the snapshot files only.

use super::tree::Tree;
use super::{Order, Rows, Store, StoreError, Visit};
use crate::row::{Batch, RowKey, RowKeyRef, RowRange, RowValue};
use std::borrow::Cow;

/// Rows in memory.
#[derive(Default)]
pub struct MemoryStore {
    tree: Tree,
    /// Changes since the last commit: a snapshot would show half a unit.
    has_staged: bool,
}

/// A handle on the rows of a [`MemoryStore`] at one commit.
#[derive(Clone)]
pub struct MemorySnapshot {
    tree: Tree,
}

impl MemoryStore {
    /// How many rows there are.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.tree.len()
    }
}

impl MemorySnapshot {
    /// How many rows there are.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.tree.len()
    }
}

fn scan(tree: &Tree, range: &RowRange, order: Order, visit: &mut Visit<'_>) {
    match order {
        Order::Ascending => tree.ascend(range, &mut |key, value| visit(key, value)),
        Order::Descending => tree.descend(range, &mut |key, value| visit(key, value)),
    }
}

impl Rows for MemoryStore {
    #[inline]
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        Ok(self.tree.get(key).map(Cow::Borrowed))
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        scan(&self.tree, range, order, visit);
        Ok(())
    }
}

impl Rows for MemorySnapshot {
    #[inline]
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        Ok(self.tree.get(key).map(Cow::Borrowed))
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        scan(&self.tree, range, order, visit);
        Ok(())
    }
}

impl Store for MemoryStore {
    type Snapshot = MemorySnapshot;

    #[inline]
    fn as_rows(&self) -> &dyn Rows {
        self
    }

    fn stage(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        self.has_staged |= !batch.is_empty();
        for change in batch.drain(..) {
            match change.value {
                Some(value) => drop(self.tree.insert(change.key, value)),
                None => drop(self.tree.remove(change.key.borrow())),
            }
        }
        Ok(())
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        self.stage(batch)?;
        self.has_staged = false;
        Ok(())
    }

    fn snapshot(&self) -> MemorySnapshot {
        assert!(!self.has_staged, "S3: a snapshot shows the rows of a commit, never half a unit");
        MemorySnapshot { tree: self.tree.clone() }
    }

    fn replace<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E> {
        let mut tree = Tree::default();
        for row in rows {
            let (key, value) = row?;
            tree.insert(key, value);
        }
        self.tree = tree;
        self.has_staged = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keeps_the_contract() {
        super::super::conformance::check(64, super::MemoryStore::default, &|_| ());
    }
}
