//! Reading a snapshot file, row by row, checking everything.

use super::error::SnapshotError;
use super::format::{
    CRC_BYTES, DirectoryId, FOOTER_REST_BYTES, HEADER_BYTES, MAGIC, VERSION, block_crc, footer,
};
use crate::machine::Checksum;
use crate::row::{RowKey, RowKeyRef, RowValue};
use crate::varint;
use bytes::{Buf, Bytes};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// An open snapshot file: its header, then an iterator over its rows.
///
/// The rows count only if the iterator ends without an error: the last thing it checks is the footer.
pub struct SnapshotReader {
    file: Box<dyn Read + Send>,
    path: PathBuf,
    /// Where the next part begins, and how long the file is.
    offset: u64,
    length: u64,
    slot: u64,
    id: DirectoryId,
    attachment: Bytes,
    block: Vec<u8>,
    block_at: usize,
    block_rows_left: u32,
    last: Option<RowKey>,
    checksum: Checksum,
    room: Vec<u8>,
    is_done: bool,
}

impl SnapshotReader {
    /// Opens a file of the data directory `id` and checks its header.
    pub fn open(path: &Path, id: DirectoryId) -> Result<SnapshotReader, SnapshotError> {
        let reader = SnapshotReader::open_any(path)?;
        reader.check_id(id, path)?;
        Ok(reader)
    }

    /// Opens a file of any data directory: a backup, or one that a peer sent.
    pub fn open_any(path: &Path) -> Result<SnapshotReader, SnapshotError> {
        let file = File::open(path).map_err(SnapshotError::io("open", path))?;
        let length = file.metadata().map_err(SnapshotError::io("open", path))?.len();
        Self::begin(Box::new(BufReader::with_capacity(256 * 1024, file)), path, length)
    }

    /// Opens the bytes of a file of the data directory `id`.
    pub fn of_bytes(bytes: Bytes, id: DirectoryId) -> Result<SnapshotReader, SnapshotError> {
        let (path, length) = (Path::new("memory"), bytes.len() as u64);
        let reader = Self::begin(Box::new(bytes.reader()), path, length)?;
        reader.check_id(id, path)?;
        Ok(reader)
    }

    fn check_id(&self, id: DirectoryId, path: &Path) -> Result<(), SnapshotError> {
        if self.id == id {
            return Ok(());
        }
        let problem = "it was written for another data directory".into();
        Err(SnapshotError::Foreign { path: path.to_path_buf(), problem })
    }

    fn begin(file: Box<dyn Read + Send>, path: &Path, length: u64) -> Result<SnapshotReader, SnapshotError> {
        let mut reader = SnapshotReader {
            file,
            path: path.to_path_buf(),
            offset: 0,
            length,
            slot: 0,
            id: [0; 16],
            attachment: Bytes::new(),
            block: Vec::new(),
            block_at: 0,
            block_rows_left: 0,
            last: None,
            checksum: Checksum::default(),
            room: Vec::new(),
            is_done: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// The slot whose state it is.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The data directory it was written for.
    #[must_use]
    pub fn directory_id(&self) -> DirectoryId {
        self.id
    }

    /// What the host put in.
    #[must_use]
    pub fn attachment(&self) -> &Bytes {
        &self.attachment
    }

    fn damage(&self, offset: u64, problem: impl Into<String>) -> SnapshotError {
        SnapshotError::Damaged { path: self.path.clone(), offset, problem: problem.into() }
    }

    /// The next `count` bytes. Asked against the length of the file first, so that a false number allocates nothing.
    fn take(&mut self, count: usize, what: &str) -> Result<Vec<u8>, SnapshotError> {
        if count as u64 > self.length - self.offset {
            return Err(self.damage(self.offset, format!("{what} goes beyond the end of the file")));
        }
        let mut bytes = vec![0; count];
        self.file.read_exact(&mut bytes).map_err(SnapshotError::io("read", &self.path))?;
        self.offset += count as u64;
        Ok(bytes)
    }

    fn take_number(&mut self, what: &str) -> Result<u32, SnapshotError> {
        let bytes = self.take(4, what)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    fn read_header(&mut self) -> Result<(), SnapshotError> {
        let mut header = self.take(HEADER_BYTES, "the header")?;
        if header[..8] != MAGIC {
            return Err(self.damage(0, "it does not begin like a snapshot"));
        }
        let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let (version, attachment_length) = (number(8), number(36));
        let slot = header[28..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let id = header[12..].first_chunk().copied().unwrap_or_default();
        let attachment = self.take(attachment_length as usize, "the attachment")?;
        let crc_at = self.offset;
        let crc = self.take_number("the header's checksum")?;
        header.extend_from_slice(&attachment);
        if crc32c::crc32c(&header) != crc {
            return Err(self.damage(crc_at, "the header's checksum is wrong"));
        }
        // Only now: a flipped bit in the version is damage, not another version.
        if version != VERSION {
            let problem = format!("it has format {version}, this program reads format {VERSION}");
            return Err(SnapshotError::Foreign { path: self.path.clone(), problem });
        }
        (self.slot, self.id, self.attachment) = (slot, id, attachment.into());
        Ok(())
    }

    /// Reads the next block, or the footer: then there is nothing more.
    fn read_block(&mut self) -> Result<bool, SnapshotError> {
        let start = self.offset;
        let length = self.take_number("a block")?;
        if length == 0 {
            self.read_footer(start)?;
            return Ok(false);
        }
        let rows = self.take_number("a block")?;
        let crc = self.take_number("a block")?;
        let payload = self.take(length as usize, "a block")?;
        if block_crc(length, rows, &payload) != crc {
            return Err(self.damage(start, "the block's checksum is wrong"));
        }
        (self.block, self.block_at, self.block_rows_left) = (payload, 0, rows);
        Ok(true)
    }

    fn read_footer(&mut self, start: u64) -> Result<(), SnapshotError> {
        let rest = self.take(FOOTER_REST_BYTES, "the footer")?;
        let expected = footer(self.checksum.rows, self.checksum.sum);
        if rest[..] != expected[4..] {
            let crc_at = FOOTER_REST_BYTES - CRC_BYTES;
            let mut whole = vec![0; 4];
            whole.extend_from_slice(&rest[..crc_at]);
            let is_intact = crc32c::crc32c(&whole).to_le_bytes() == rest[crc_at..];
            let problem =
                if is_intact { "rows are missing or changed" } else { "the footer's checksum is wrong" };
            return Err(self.damage(start, problem));
        }
        if self.offset != self.length {
            return Err(self.damage(self.offset, "there is something after the footer"));
        }
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<(RowKey, RowValue)>, SnapshotError> {
        while self.block_rows_left == 0 {
            if self.block_at != self.block.len() {
                return Err(self.damage(self.offset, "a block has more bytes than rows"));
            }
            (self.block_at, self.block) = (0, Vec::new());
            if !self.read_block()? {
                return Ok(None);
            }
        }
        let block_start = self.offset - self.block.len() as u64;
        let at = block_start + self.block_at as u64;
        let mut rest = &self.block[self.block_at..];
        let Some((key, value)) = take_part(&mut rest).and_then(|key| Some((key, take_part(&mut rest)?)))
        else {
            return Err(self.damage(at, "a row does not fit into its block"));
        };
        let key = RowKeyRef::new(key);
        if self.last.as_ref().is_some_and(|last| last.borrow() >= key) {
            return Err(self.damage(at, "rows are out of order"));
        }
        self.checksum.add(key, value, &mut self.room);
        let row = (key.to_owned(), RowValue::new(value));
        self.block_at = self.block.len() - rest.len();
        self.block_rows_left -= 1;
        self.last = Some(row.0.clone());
        Ok(Some(row))
    }
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint::take(rest)?).ok()?;
    let (part, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(part)
}

impl Iterator for SnapshotReader {
    type Item = Result<(RowKey, RowValue), SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let row = self.next_row().transpose();
        self.is_done = !matches!(row, Some(Ok(_)));
        row
    }
}
