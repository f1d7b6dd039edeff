//! Snapshot files: all rows of the machine at one slot.
//!
//! ```text
//! magic⁸ version⁴ directory-id¹⁶ slot⁸ attachment-length⁴ attachment crc⁴
//! ( length⁴ rows⁴ crc⁴ payload )…         payload: (key-length key value-length value)…, lengths as varints, keys ascending
//! 0⁴ rows⁸ sum⁸ crc⁴                      the number of rows and their checksum, as `Machine::checksum` has it
//! ```
//!
//! Numbers are little-endian; a CRC32C covers all that comes before it in its part, the length included. The attachment is the host's: consensus
//! state that belongs to the slot.
//!
//! * N1: a file with its final name is complete and durable: written under another name, synced, renamed, directory synced.
//! * N2: a reader gives an error, never a wrong row, if any bit of the file changed: rows count only once the footer was read. (`Store::replace`
//!   keeps the old rows until then.)
//! * N3: an error names the file and the offset, and says what can be done.

mod error;
mod files;
mod format;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use error::SnapshotError;
pub use files::{list, path_of, remove_old};
pub use format::DirectoryId;
pub use reader::SnapshotReader;
pub use writer::{Written, encode, write, write_while};
