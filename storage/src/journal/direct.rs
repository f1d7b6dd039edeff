//! Writing past the page cache: one call, and the bytes are durable when it returns.
//!
//! A write to the page cache and a sync after it cost two walks through the file system, and several nodes on one disk wait longer for each other
//! (three writers on one disk: 320 against 410 us, and a third less CPU). The price is that only whole blocks can be written, from aligned memory: the block
//! in which the segment ends is written again with every commit, as the page cache would do.
//!
//! Invariant D1: what is written again in front of the new frames is byte for byte what is durable there already.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::directory::Directory;
use super::error::Failure;

/// After a large commit the buffer gives back what it holds above this.
const BUFFER_KEPT_BYTES: usize = 8 << 20;

/// Whether the system says that it does not know writes of this kind.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// A segment that is open past the page cache.
pub(super) struct Direct {
    file: File,
    block: usize,
    /// The durable bytes of the block in which the segment ends.
    tail: Vec<u8>,
    /// What is written, somewhere in here at a block's boundary in memory.
    buffer: Vec<u8>,
}

impl Direct {
    /// `None` where the file system has no such way, or the file is not made of whole blocks. `cached` is the same file, open in the usual way.
    pub(super) fn open(
        directory: &Directory,
        path: &Path,
        cached: &File,
        (durable_end, capacity): (u32, u32),
    ) -> Result<Option<Direct>, Failure> {
        let Some((file, block)) = directory.disk.open_direct(path) else { return Ok(None) };
        if !(capacity as usize).is_multiple_of(block) {
            return Ok(None);
        }
        let mut tail = vec![0; durable_end as usize % block];
        let from = u64::from(durable_end) - tail.len() as u64;
        cached.read_exact_at(&mut tail, from).map_err(Failure::of("read", path))?;
        Ok(Some(Direct { file, block, tail, buffer: Vec::new() }))
    }

    /// Makes `frames` durable at `end`. False: the system does not take writes of this kind, and nothing was written.
    pub(super) fn write(
        &mut self,
        directory: &Directory,
        path: &Path,
        frames: &[u8],
        end: u32,
    ) -> Result<bool, Failure> {
        let used = self.tail.len() + frames.len();
        let length = used.next_multiple_of(self.block);
        self.buffer.clear();
        self.buffer.reserve(length + self.block);
        let start = self.buffer.as_ptr().align_offset(self.block).min(self.block);
        self.buffer.resize(start, 0);
        self.buffer.extend_from_slice(&self.tail);
        self.buffer.extend_from_slice(frames);
        self.buffer.resize(start + length, 0);
        let (mut blocks, mut offset) = (&self.buffer[start..], u64::from(end) - self.tail.len() as u64);
        while !blocks.is_empty() {
            match directory.disk.write_durably(&self.file, path, blocks, offset) {
                Ok(written) if written > 0 && written.is_multiple_of(self.block) => {
                    blocks = blocks.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
                Ok(_) => return Err(Failure::of("write", path)(io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_refusal(&error) && blocks.len() == length => return Ok(false),
                Err(error) => return Err(Failure::of("write", path)(error)),
            }
        }
        let whole = used - used % self.block;
        let last = start + whole..start + used;
        self.tail.clear();
        self.tail.extend_from_slice(&self.buffer[last]);
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        Ok(true)
    }
}
