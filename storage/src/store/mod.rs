//! Stores keep rows.
//!
//! [`Rows`] is reading, [`Store`] is reading and writing. Command handlers see only `&dyn Rows`, so there is one implementation of
//! every command for every store. The contract, checked by one conformance test for all stores (`conformance`):
//!
//! * S1: staged changes are seen by `get` and `scan` at once.
//! * S2: everything staged since the last commit, and the commit's own batch, becomes permanent as one unit. The machine
//!   puts the applied slot into that batch, so a store never knows half a slot after a crash.
//! * S3: a snapshot shows the rows of the last commit, for ever, on any thread. Taking it is O(1).
//! * S4: `scan` shows the rows of a range in key order, ascending or descending, each once.
//! * S5: `replace` keeps the old rows if it fails.

mod any;
#[cfg(test)]
pub(crate) mod conformance;
pub mod disk;
mod memory;
pub mod tree;

pub use any::{AnySnapshot, AnyStore};
pub use memory::{MemorySnapshot, MemoryStore};

use crate::row::{Batch, RowKey, RowKeyRef, RowRange, RowValue};
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A store could not read or write. Not a reply: the node must stop, because its rows are no longer those of its peers.
#[derive(Clone, Debug)]
pub struct StoreError(Arc<str>);

impl StoreError {
    /// An error that says what failed, where.
    #[must_use]
    pub fn new(text: impl Into<String>) -> StoreError {
        StoreError(Arc::from(text.into()))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}

/// Which end of a range comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The lowest key first.
    Ascending,
    /// The highest key first.
    Descending,
}

/// What a scan calls for each row. Breaking ends the scan.
pub type Visit<'a> = dyn FnMut(RowKeyRef<'_>, &RowValue) -> ControlFlow<()> + 'a;

/// Ordered rows that can be read.
pub trait Rows {
    /// A row's value, borrowed where the store holds it in memory.
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError>;

    /// Shows the rows of `range` to `visit`, in `order`, until it breaks.
    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError>;
}

/// Rows that can be changed. See the module's description for the contract.
pub trait Store: Rows {
    /// The rows at a commit, for reading elsewhere.
    type Snapshot: Rows + Clone + Send + Sync + 'static;

    /// The same rows, behind one pointer: who looks at many rows asks once which kind of store it is.
    fn as_rows(&self) -> &dyn Rows;

    /// Takes changes that the next commit will make permanent; leaves `batch` empty, with its room.
    fn stage(&mut self, batch: &mut Batch) -> Result<(), StoreError>;

    /// Stages `batch` and ends the unit.
    fn commit(&mut self, batch: &mut Batch) -> Result<(), StoreError>;

    /// The rows of the last commit. Must not be called with changes staged.
    fn snapshot(&self) -> Self::Snapshot;

    /// Throws all rows away for those of `rows`, which ascend.
    fn replace<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E>;
}
