//! The changes of a transaction, over the rows of a store.
//!
//! Almost every command changes one or two rows: those are kept in a short list, searched from end to end. A tree is made only for
//! commands that change many.

use crate::row::{Batch, Change, RowKey, RowKeyRef, RowRange, RowValue};
use std::collections::BTreeMap;

/// With more changes than this, a tree is quicker.
const FEW_MAX: usize = 16;

/// Changed rows.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    /// In use while `many` is empty.
    few: Batch,
    many: BTreeMap<RowKey, Option<RowValue>>,
}

impl Overlay {
    /// An empty overlay that uses the room of an old batch.
    pub(crate) fn with_room(mut room: Batch) -> Overlay {
        room.clear();
        Overlay { few: room, many: BTreeMap::new() }
    }

    /// What a row became, if it changed.
    #[inline]
    pub(crate) fn get(&self, key: RowKeyRef<'_>) -> Option<Option<&RowValue>> {
        if self.many.is_empty() {
            self.few.iter().find(|change| change.key.borrow() == key).map(|change| change.value.as_ref())
        } else {
            self.many.get(&key.to_owned()).map(Option::as_ref)
        }
    }

    /// Changes a row.
    pub(crate) fn set(&mut self, key: RowKey, value: Option<RowValue>) {
        if !self.many.is_empty() {
            self.many.insert(key, value);
        } else if let Some(change) = self.few.iter_mut().find(|change| change.key == key) {
            change.value = value;
        } else if self.few.len() < FEW_MAX {
            self.few.push(Change { key, value });
        } else {
            self.many.extend(self.few.drain(..).map(|change| (change.key, change.value)));
            self.many.insert(key, value);
        }
    }

    /// The changes in a range, ascending.
    pub(crate) fn in_range(&self, range: &RowRange) -> Vec<(RowKeyRef<'_>, Option<&RowValue>)> {
        if self.many.is_empty() {
            let mut found: Vec<_> = self
                .few
                .iter()
                .map(|change| (change.key.borrow(), change.value.as_ref()))
                .filter(|(key, _)| range.contains(*key))
                .collect();
            found.sort_unstable_by_key(|(key, _)| *key);
            return found;
        }
        let from = self.many.range(&range.from..);
        let below_end = |key: &RowKey| range.to.as_ref().is_none_or(|to| key < to);
        from.take_while(|(key, _)| below_end(key))
            .map(|(key, value)| (key.borrow(), value.as_ref()))
            .collect()
    }

    /// All changes.
    pub(crate) fn into_batch(self) -> Batch {
        let mut batch = self.few;
        batch.extend(self.many.into_iter().map(|(key, value)| Change { key, value }));
        batch
    }
}
