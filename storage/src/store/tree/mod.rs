//! A copy-on-write ordered map of rows: a B+ tree whose nodes are shared between handles.
//!
//! Cloning a [`Tree`] is O(1) and gives an independent map: a writer copies a node only when another handle still
//! sees it. So a handle *is* a snapshot, and it can be read on another thread while the original goes on changing.
//!
//! Why not a crate: a search among a million rows is bound by cache misses. Here the heads of a node's keys lie side by
//! side and the rest of a row is one cache line. Measured at 1 million rows on a busy machine (best of 40 rounds, ns to find /
//! to replace a row): this 745/830, `imbl::OrdMap` 7.0 1050/1080, `rpds` 2200/2600, and of the maps that cannot be shared
//! `BTreeMap` 800/800, `HashMap` 610/700 (one miss of the cache costs 240 there).
//!
//! Invariants:
//! * T1: keys ascend strictly, inside a leaf and from leaf to leaf.
//! * T2: a separator is greater than every key to its left and at most every key to its right.
//! * T3: all leaves have the same depth.
//! * T4: no node but the root is empty.

mod node;
#[cfg(test)]
mod tests;

use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use node::{Node, Split};
use std::ops::ControlFlow;

/// The map. See the module's description.
#[derive(Clone, Default)]
pub struct Tree {
    root: Node,
    rows: usize,
}

impl Tree {
    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// A row's value.
    #[inline]
    #[must_use]
    pub fn get(&self, key: RowKeyRef<'_>) -> Option<&RowValue> {
        self.root.get(key)
    }

    /// Adds or replaces a row; gives its former value.
    pub fn insert(&mut self, key: RowKey, value: RowValue) -> Option<RowValue> {
        let (old, split) = self.root.insert(key, value);
        if let Some(Split { separator, right }) = split {
            let left = std::mem::take(&mut self.root);
            self.root = Node::parent_of(left, separator, right);
        }
        self.rows += usize::from(old.is_none());
        old
    }

    /// Removes a row; gives its former value.
    pub fn remove(&mut self, key: RowKeyRef<'_>) -> Option<RowValue> {
        // Looked up first: removing nothing must not copy nodes.
        self.get(key)?;
        let old = self.root.remove(key);
        while let Some(only) = self.root.take_only_child() {
            self.root = only;
        }
        self.rows -= usize::from(old.is_some());
        old
    }

    /// Shows the rows of `range` to `visit`, ascending, until it breaks.
    pub fn ascend<'a>(
        &'a self,
        range: &RowRange,
        visit: &mut dyn FnMut(RowKeyRef<'a>, &'a RowValue) -> ControlFlow<()>,
    ) {
        let _ = self.root.ascend(range, visit);
    }

    /// Shows the rows of `range` to `visit`, descending, until it breaks.
    pub fn descend<'a>(
        &'a self,
        range: &RowRange,
        visit: &mut dyn FnMut(RowKeyRef<'a>, &'a RowValue) -> ControlFlow<()>,
    ) {
        let _ = self.root.descend(range, visit);
    }
}
