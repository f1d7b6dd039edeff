//! The store that an operator chose, for a host that does not want to know which.

use super::disk::{DiskSnapshot, DiskStore};
use super::memory::{MemorySnapshot, MemoryStore};
use super::{Order, Rows, Store, StoreError, Visit};
use crate::row::{Batch, RowKey, RowKeyRef, RowRange, RowValue};
use std::borrow::Cow;

/// One of our stores.
pub enum AnyStore {
    /// In memory.
    Memory(MemoryStore),
    /// On disk.
    Disk(Box<DiskStore>),
}

/// The rows of one of our stores at one commit.
#[derive(Clone)]
pub enum AnySnapshot {
    /// In memory.
    Memory(MemorySnapshot),
    /// On disk.
    Disk(DiskSnapshot),
}

impl Default for AnyStore {
    fn default() -> AnyStore {
        AnyStore::Memory(MemoryStore::default())
    }
}

impl AnyStore {
    /// The store on disk, if it is that one.
    #[must_use]
    pub fn disk(&self) -> Option<&DiskStore> {
        match self {
            AnyStore::Memory(_) => None,
            AnyStore::Disk(store) => Some(store),
        }
    }

    /// The store on disk, if it is that one.
    pub fn disk_mut(&mut self) -> Option<&mut DiskStore> {
        match self {
            AnyStore::Memory(_) => None,
            AnyStore::Disk(store) => Some(store),
        }
    }
}

impl AnySnapshot {
    fn as_rows(&self) -> &dyn Rows {
        match self {
            AnySnapshot::Memory(rows) => rows,
            AnySnapshot::Disk(rows) => rows,
        }
    }
}

impl Rows for AnyStore {
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        self.as_rows().get(key)
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.as_rows().scan(range, order, visit)
    }
}

impl Rows for AnySnapshot {
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        self.as_rows().get(key)
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.as_rows().scan(range, order, visit)
    }
}

impl Store for AnyStore {
    type Snapshot = AnySnapshot;

    #[inline]
    fn as_rows(&self) -> &dyn Rows {
        match self {
            AnyStore::Memory(store) => store,
            AnyStore::Disk(store) => &**store,
        }
    }

    #[inline]
    fn stage(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        match self {
            AnyStore::Memory(store) => store.stage(batch),
            AnyStore::Disk(store) => store.stage(batch),
        }
    }

    #[inline]
    fn commit(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        match self {
            AnyStore::Memory(store) => store.commit(batch),
            AnyStore::Disk(store) => store.commit(batch),
        }
    }

    fn snapshot(&self) -> AnySnapshot {
        match self {
            AnyStore::Memory(store) => AnySnapshot::Memory(store.snapshot()),
            AnyStore::Disk(store) => AnySnapshot::Disk(store.snapshot()),
        }
    }

    fn replace<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E> {
        match self {
            AnyStore::Memory(store) => store.replace(rows),
            AnyStore::Disk(store) => store.replace(rows),
        }
    }
}
