//! Writing a snapshot file. Meant for a thread of its own: it reads a handle, so nothing waits for it.

use super::error::SnapshotError;
use super::files::{path_of, unfinished_path_of};
use super::format::{BLOCK_BYTES, DirectoryId, MAGIC, VERSION, block_crc, footer};
use crate::machine::{Checksum, Snapshot};
use crate::row::{RowKeyRef, RowRange};
use crate::store::{Order, Rows};
use crate::varint;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A snapshot file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// The slot whose state it is.
    pub slot: u64,
    /// How large it is.
    pub bytes: u64,
    /// Its rows, counted and summed.
    pub checksum: Checksum,
}

/// Writes `snapshot` into `directory`. When it returns, the file is complete and durable.
pub fn write<R: Rows>(
    directory: &Path,
    id: DirectoryId,
    attachment: &[u8],
    snapshot: &Snapshot<R>,
) -> Result<Written, SnapshotError> {
    write_while(directory, id, attachment, snapshot, &|| Ok(()))
}

/// The same, as long as `may_go_on`, which is asked after every few megabytes, says yes. Nothing is left of a file that was given up.
pub fn write_while<R: Rows>(
    directory: &Path,
    id: DirectoryId,
    attachment: &[u8],
    snapshot: &Snapshot<R>,
    may_go_on: &dyn Fn() -> io::Result<()>,
) -> Result<Written, SnapshotError> {
    let slot = snapshot.applied();
    let unfinished = unfinished_path_of(directory, slot);
    let file = File::create(&unfinished).map_err(SnapshotError::io("create", &unfinished))?;
    let mut sink = Paced { file: &file, unsynced: 0, may_go_on };
    let mut writer = Writer::new(&mut sink, &unfinished);
    let result = writer.write_all(id, slot, attachment, snapshot.rows());
    let (bytes, checksum) = (writer.bytes, writer.checksum);
    let finish = || {
        result?;
        file.sync_all().map_err(SnapshotError::io("sync", &unfinished))?;
        let path = path_of(directory, slot);
        fs::rename(&unfinished, &path).map_err(SnapshotError::io("rename to its final name", &unfinished))?;
        // Without this the new name may be lost with the power.
        let sync = File::open(directory).and_then(|directory| directory.sync_all());
        sync.map_err(SnapshotError::io("sync", directory))?;
        Ok(Written { path, slot, bytes, checksum })
    };
    finish().inspect_err(|_| {
        // A full disk needs the room back. What cannot be removed now, `remove_old` removes later.
        let _ = fs::remove_file(&unfinished);
    })
}

/// `snapshot` as the bytes of a file, for who keeps it in memory.
///
/// # Errors
/// When the rows cannot be read.
pub fn encode<R: Rows>(
    id: DirectoryId,
    attachment: &[u8],
    snapshot: &Snapshot<R>,
) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, Path::new("memory")).write_all(
        id,
        snapshot.applied(),
        attachment,
        snapshot.rows(),
    )?;
    Ok(bytes)
}

/// Syncs after every few megabytes: the device never has a long queue in front of the journal's next commit, as it would if one sync at the
/// end wrote everything.
struct Paced<'a> {
    file: &'a File,
    unsynced: usize,
    may_go_on: &'a dyn Fn() -> io::Result<()>,
}

/// What the device may have to write at once for a snapshot.
const SYNC_EVERY_BYTES: usize = 2 << 20;

impl Write for Paced<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_EVERY_BYTES {
            self.unsynced = 0;
            self.file.sync_data()?;
            (self.may_go_on)()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

struct Writer<'a> {
    file: &'a mut dyn Write,
    path: &'a Path,
    block: Vec<u8>,
    block_rows: u32,
    bytes: u64,
    checksum: Checksum,
}

impl<'a> Writer<'a> {
    fn new(file: &'a mut dyn Write, path: &'a Path) -> Writer<'a> {
        Writer {
            file,
            path,
            block: Vec::with_capacity(BLOCK_BYTES * 2),
            block_rows: 0,
            bytes: 0,
            checksum: Checksum::default(),
        }
    }

    fn write_all(
        &mut self,
        id: DirectoryId,
        slot: u64,
        attachment: &[u8],
        rows: &dyn Rows,
    ) -> Result<(), SnapshotError> {
        self.write_header(id, slot, attachment)?;
        let (mut room, mut failure) = (Vec::new(), None);
        rows.scan(&RowRange::all(), Order::Ascending, &mut |key, value| {
            self.add(key, value, &mut room);
            if self.block.len() < BLOCK_BYTES {
                return ControlFlow::Continue(());
            }
            match self.write_block() {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        self.write_block()?;
        self.put(&footer(self.checksum.rows, self.checksum.sum))
    }

    fn write_header(&mut self, id: DirectoryId, slot: u64, attachment: &[u8]) -> Result<(), SnapshotError> {
        let too_long =
            |_| SnapshotError::io("write", self.path)(io::Error::other("the attachment is too long"));
        let length = u32::try_from(attachment.len()).map_err(too_long)?;
        let mut header = Vec::with_capacity(attachment.len() + 64);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&id);
        header.extend_from_slice(&slot.to_le_bytes());
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(attachment);
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        self.put(&header)
    }

    fn add(&mut self, key: RowKeyRef<'_>, value: &[u8], room: &mut Vec<u8>) {
        varint::put(&mut self.block, key.byte_count() as u64);
        key.write_to(&mut self.block);
        varint::put(&mut self.block, value.len() as u64);
        self.block.extend_from_slice(value);
        self.block_rows += 1;
        self.checksum.add(key, value, room);
    }

    fn write_block(&mut self) -> Result<(), SnapshotError> {
        if self.block_rows == 0 {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        let too_long =
            |_| SnapshotError::io("write", self.path)(io::Error::other("a row is longer than 4 GiB"));
        let length = u32::try_from(block.len()).map_err(too_long)?;
        self.put(&length.to_le_bytes())?;
        self.put(&self.block_rows.to_le_bytes())?;
        self.put(&block_crc(length, self.block_rows, &block).to_le_bytes())?;
        self.put(&block)?;
        self.block = block;
        self.block.clear();
        // One huge row must not keep its room for the rest of the file.
        self.block.shrink_to(BLOCK_BYTES * 2);
        self.block_rows = 0;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(SnapshotError::io("write", self.path))
    }
}
