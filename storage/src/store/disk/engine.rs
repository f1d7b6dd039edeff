//! The embedded engine (fjall) below the layers: one keyspace for the rows and the attachment, so that a batch is atomic also across a loss of power
//! (two keyspaces are flushed apart, and one may come back without the other).
//!
//! ```text
//! 00                              the attachment: slot⁸ (little-endian) · bytes
//! 01 key                          a row with a key shorter than 60,000 bytes
//! 01 key[..60000] hash¹⁶          a row with a longer one (the engine's keys end at 64 KiB): length of the rest (varint) · rest of the key · value
//! ```

use super::Attachment;
use super::cursor::Cursor;
use super::mend::mend;
use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::tree::Tree;
use crate::store::{Order, StoreError};
use crate::varint;
use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::xxh3_128;

/// Longer keys are cut here.
pub(super) const SHORT_KEY_BYTES: usize = 60_000;
const HASH_BYTES: usize = 16;
const ATTACHMENT: [u8; 1] = [0];
const ROWS: u8 = 1;

/// Values from this size on are kept apart from the keys: compaction then moves only the keys.
const SEPARATE_BYTES: u32 = 256;
/// Changes that the engine keeps in memory before it writes a sorted file. Up to five of them.
const MEMTABLE_BYTES: u64 = 8 << 20;
/// A sorted file of keys, about. Who merges files keeps eight bytes for each key of the one that is written, and a reader keeps the whole filter of each that it looks into:
/// with the engine's own 64 MB, a file has all keys of a large database, and both grow with it.
const TABLE_BYTES: u64 = 8 << 20;
/// The engine's own journal; its least.
const JOURNAL_BYTES: u64 = 64 << 20;
const THREADS: usize = 2;
/// Open files. The node reckons with some hundreds besides its clients' sockets.
const FILES: usize = 256;

/// An open database.
pub(super) struct Engine {
    // Closed before what stands behind it.
    rows: Keyspace,
    database: Database,
    cache_bytes: u64,
    cut_bytes: u64,
    place: Place,
}

/// Its directory, which goes with it if nobody wants it.
struct Place {
    path: PathBuf,
    is_wanted: AtomicBool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_wanted.load(Ordering::Acquire) {
            // What cannot be removed now is removed when the store is opened the next time.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl Engine {
    /// Opens a database that is there, after what a loss of power left half of was cut off.
    pub(super) fn open(path: &Path, cache_bytes: u64) -> Result<Engine, StoreError> {
        let cut_bytes = mend(path)?;
        Ok(Engine { cut_bytes, ..Self::at(path, cache_bytes, true)? })
    }

    /// Makes a new one. It goes when it is dropped, unless it is kept.
    pub(super) fn create(path: &Path, cache_bytes: u64) -> Result<Engine, StoreError> {
        Self::at(path, cache_bytes, false)
    }

    fn at(path: &Path, cache_bytes: u64, is_wanted: bool) -> Result<Engine, StoreError> {
        let place = Place { path: path.to_path_buf(), is_wanted: AtomicBool::new(is_wanted) };
        let failed = |error: fjall::Error| {
            let why = match error {
                fjall::Error::Locked => "another process uses it; stop that one first".to_string(),
                error => format!(
                    "{error}; if the disk is sound, remove this node from its cluster and add it again as a new member"
                ),
            };
            StoreError::new(format!("the rows in {} cannot be opened: {why}", path.display()))
        };
        let database = Database::builder(path)
            .cache_size(cache_bytes)
            .worker_threads(THREADS)
            .max_cached_files(Some(FILES))
            .max_journaling_size(JOURNAL_BYTES)
            .journal_compression(CompressionType::None)
            .open()
            .map_err(failed)?;
        let options = || {
            let apart = KvSeparationOptions::default().separation_threshold(SEPARATE_BYTES);
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES)))
                .with_kv_separation(Some(apart))
        };
        let rows = database.keyspace("rows", options).map_err(failed)?;
        Ok(Engine { rows, database, cache_bytes, cut_bytes: 0, place })
    }

    /// How much was cut off its journal when it was opened.
    pub(super) fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    pub(super) fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// What the rows take on the disk, without those that are only in the engine's journal.
    pub(super) fn row_bytes(&self) -> u64 {
        self.rows.disk_space()
    }

    /// Its directory stays.
    pub(super) fn keep(&self) {
        self.place.is_wanted.store(true, Ordering::Release);
    }

    /// Its directory goes when nobody reads it any more.
    pub(super) fn give_up(&self) {
        self.place.is_wanted.store(false, Ordering::Release);
    }

    pub(super) fn failed(&self, what: &str, error: &fjall::Error) -> StoreError {
        StoreError::new(format!("cannot {what} the rows in {}: {error}", self.place.path.display()))
    }

    pub(super) fn snapshot(&self) -> fjall::Snapshot {
        self.database.snapshot()
    }

    /// A row as it is now, or at a snapshot.
    pub(super) fn get(
        &self,
        key: RowKeyRef<'_>,
        at: Option<&fjall::Snapshot>,
    ) -> Result<Option<RowValue>, StoreError> {
        let stored = stored_key(key);
        let found = match at {
            Some(snapshot) => snapshot.get(&self.rows, &stored),
            None => self.rows.get(&stored),
        };
        let found = found.map_err(|error| self.failed("read", &error))?;
        found.map(|value| self.row_of(&stored, &value).map(|(_, value)| value)).transpose()
    }

    /// The rows of a range as they are now, or at a snapshot.
    pub(super) fn cursor<'e>(
        &'e self,
        range: &RowRange,
        order: Order,
        at: Option<&fjall::Snapshot>,
    ) -> Cursor<'e> {
        let from = stored_bound(range.from.borrow(), false);
        let to = range.to.as_ref().map_or_else(|| vec![ROWS + 1], |to| stored_bound(to.borrow(), true));
        let rows = (from < to).then(|| match at {
            Some(snapshot) => snapshot.range(&self.rows, from..to),
            None => self.rows.range(from..to),
        });
        Cursor::new(self, rows, range.clone(), order)
    }

    /// A row as the machine knows it.
    pub(super) fn row_of(&self, key: &[u8], value: &[u8]) -> Result<(RowKey, RowValue), StoreError> {
        let damaged = || StoreError::new(format!("a row in {} is no row of ours", self.place.path.display()));
        let (_, key) = key.split_first().ok_or_else(damaged)?;
        if key.len() <= SHORT_KEY_BYTES {
            return Ok((RowKey::new(key), RowValue::new(value)));
        }
        let mut rest = value;
        let length = varint::take(&mut rest).and_then(|length| usize::try_from(length).ok());
        let (tail, value) = length.and_then(|length| rest.split_at_checked(length)).ok_or_else(damaged)?;
        let start = key.get(..SHORT_KEY_BYTES).ok_or_else(damaged)?;
        Ok((RowKey::new(&[start, tail].concat()), RowValue::new(value)))
    }

    /// Everything that a layer changed, and its attachment, as one batch.
    pub(super) fn commit(&self, layer: &Tree, attachment: &Attachment) -> Result<(), StoreError> {
        let mut batch = self.database.batch();
        layer.ascend(&RowRange::all(), &mut |key, value| {
            if value.is_gone() {
                batch.remove(&self.rows, stored_key(key));
            } else {
                let (key, value) = stored_row(key, value);
                batch.insert(&self.rows, key, value);
            }
            ControlFlow::Continue(())
        });
        batch.insert(&self.rows, ATTACHMENT, stored_attachment(attachment));
        batch.commit().map_err(|error| self.failed("write", &error))
    }

    /// Writes the first rows of an empty database. They ascend.
    pub(super) fn fill<E: From<StoreError>>(
        &self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
        attachment: Option<&Attachment>,
    ) -> Result<(), E> {
        let failed = |error: fjall::Error| self.failed("write", &error);
        let mut into = self.rows.start_ingestion().map_err(failed)?;
        if let Some(attachment) = attachment {
            into.write(ATTACHMENT, stored_attachment(attachment)).map_err(failed)?;
        }
        // Long keys with the same beginning are ordered by their hashes here.
        let mut long: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for row in rows {
            let (key, value) = row?;
            let (key, value) = stored_row(key.borrow(), &value);
            let beginning = |key: &[u8]| key.get(..=SHORT_KEY_BYTES).map(<[u8]>::to_vec);
            if long.last().is_some_and(|(last, _)| beginning(last) != beginning(&key)) {
                long.sort_unstable();
                for (key, value) in long.drain(..) {
                    into.write(key, value).map_err(failed)?;
                }
            }
            if key.len() > SHORT_KEY_BYTES {
                long.push((key, value));
            } else {
                into.write(key, value).map_err(failed)?;
            }
        }
        long.sort_unstable();
        for (key, value) in long {
            into.write(key, value).map_err(failed)?;
        }
        into.finish().map_err(failed)?;
        Ok(())
    }

    /// The attachment of the boundary that the rows stand at.
    pub(super) fn attachment(&self) -> Result<Option<Attachment>, StoreError> {
        let found = self.rows.get(ATTACHMENT).map_err(|error| self.failed("read", &error))?;
        let parse = |value: fjall::UserValue| {
            let (slot, bytes) = value.split_first_chunk()?;
            Some(Attachment { slot: u64::from_le_bytes(*slot), bytes: Bytes::copy_from_slice(bytes) })
        };
        Ok(found.and_then(parse))
    }

    /// Makes durable what was written.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncAll).map_err(|error| self.failed("sync", &error))
    }
}

fn stored_attachment(attachment: &Attachment) -> Vec<u8> {
    [&attachment.slot.to_le_bytes()[..], &attachment.bytes].concat()
}

fn stored_key(key: RowKeyRef<'_>) -> Vec<u8> {
    let mut stored = Vec::with_capacity(1 + key.byte_count());
    stored.push(ROWS);
    key.write_to(&mut stored);
    if key.byte_count() >= SHORT_KEY_BYTES {
        let hash = xxh3_128(&stored);
        stored.truncate(1 + SHORT_KEY_BYTES);
        stored.extend_from_slice(&hash.to_be_bytes());
    }
    stored
}

fn stored_row(key: RowKeyRef<'_>, value: &RowValue) -> (Vec<u8>, Vec<u8>) {
    let stored = stored_key(key);
    if stored.len() <= SHORT_KEY_BYTES {
        return (stored, value.to_vec());
    }
    let mut whole = Vec::with_capacity(key.byte_count());
    key.write_to(&mut whole);
    let mut long = Vec::new();
    varint::put(&mut long, (whole.len() - SHORT_KEY_BYTES) as u64);
    long.extend_from_slice(&whole[SHORT_KEY_BYTES..]);
    long.extend_from_slice(value);
    (stored, long)
}

/// The end of a range. For a long key it takes in all keys with the same beginning; the cursor looks at those one by one.
fn stored_bound(key: RowKeyRef<'_>, is_upper: bool) -> Vec<u8> {
    let mut stored = stored_key(key);
    if stored.len() > SHORT_KEY_BYTES {
        stored.truncate(1 + SHORT_KEY_BYTES);
        if is_upper {
            stored.extend_from_slice(&[u8::MAX; HASH_BYTES + 1]);
        }
    }
    stored
}
