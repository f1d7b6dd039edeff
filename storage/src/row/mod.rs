//! A row: an ordered key and a value, both plain bytes.
//!
//! Everything the machine knows is rows, so a row must be small and quick to compare. The first 16 bytes of a key are
//! held as one big number (the *head*), the rest (the *tail*) and the value in place when they are short: a typical row
//! of a small string is 80 bytes in one piece, and finding it compares numbers that lie side by side.
//!
//! Invariant K1: the order of keys is the order of their bytes, whatever their length. (Heads of keys shorter than 16
//! bytes are padded with zeros; [`RowKeyRef`] remembers the length to break the tie with a key that really has the
//! zeros.)

mod key;
mod small;

pub use key::{RowKey, RowKeyRef, RowRange, Tail};
pub use small::SmallBytes;

/// A row's value.
pub type RowValue = SmallBytes;

/// A row that is written (`Some`) or removed (`None`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which row.
    pub key: RowKey,
    /// Its new value, or nothing.
    pub value: Option<RowValue>,
}

/// Changes that belong together. Keys are unique in it, so their order does not matter.
pub type Batch = Vec<Change>;
