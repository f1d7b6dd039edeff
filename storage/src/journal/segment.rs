//! The segment that is being written: frames gather in a buffer, `commit` makes them durable with one write and one sync.
//!
//! Invariant S1: `write_start` of every frame is the durable end of the segment at the time it was encoded, because a
//! commit ends with a sync before the next frame is encoded. Recovery builds its verdicts on this.

use std::fs::File;
use std::path::PathBuf;

use super::direct::Direct;
use super::directory::Directory;
use super::error::Failure;
use super::format::{FRAME_BYTES, FileName, FrameKind, Framing, HEADER_BYTES, Header};

/// Space that must remain in a segment for the frame that closes it.
pub(super) const SEAL_BYTES: u32 = FRAME_BYTES;
/// After a large commit the buffer gives back what it holds above this.
const BUFFER_KEPT_BYTES: usize = 8 << 20;

/// The open end of the journal.
pub(super) struct LiveSegment {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    framing: Framing,
    /// The same file, past the page cache, if that is possible.
    direct: Option<Direct>,
    /// Everything before this offset is durable.
    durable_end: u32,
    /// Frames that will lie at `durable_end`.
    buffer: Vec<u8>,
}

impl LiveSegment {
    /// A segment whose content up to `durable_end` is known to be durable.
    pub(super) fn resume(
        directory: &Directory,
        file: File,
        path: PathBuf,
        header: Header,
        durable_end: u32,
    ) -> Result<LiveSegment, Failure> {
        let framing = Framing::new(&header.id, header.number);
        let direct = Direct::open(directory, &path, &file, (durable_end, header.capacity))?;
        Ok(LiveSegment { file, path, header, framing, direct, durable_end, buffer: Vec::new() })
    }

    /// Turns a spare into the segment that `header` describes. The name is not durable before the directory is synced.
    ///
    /// The header is durable before the file gets its name: a crash leaves either a spare or a segment with a good header,
    /// so a bad header is always damage.
    pub(super) fn start(directory: &Directory, spare: u64, header: Header) -> Result<LiveSegment, Failure> {
        let spare = directory.file(FileName::Spare(spare));
        let path = directory.file(FileName::Segment(header.number));
        let file = directory.open(&spare)?;
        directory.write_all(&file, &spare, &header.encode(), 0)?;
        directory.sync_file(&file, &spare)?;
        directory.rename(&spare, &path)?;
        LiveSegment::resume(directory, file, path, header, HEADER_BYTES)
    }

    /// How many bytes of frames can still be encoded.
    pub(super) fn room(&self) -> u64 {
        let used = u64::from(self.durable_end) + self.buffer.len() as u64 + u64::from(SEAL_BYTES);
        u64::from(self.header.capacity).saturating_sub(used)
    }

    pub(super) fn durable_end(&self) -> u32 {
        self.durable_end
    }

    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Adds a frame to the next commit. The caller has asked `room` first; the seal alone may use what `room` holds back.
    pub(super) fn encode(&mut self, kind: FrameKind, payload: &[u8]) {
        debug_assert!(
            kind == FrameKind::Seal || self.room() >= u64::from(FRAME_BYTES) + payload.len() as u64
        );
        let offset = self.durable_end + self.buffer.len() as u32;
        self.framing.encode(&mut self.buffer, offset, self.durable_end, kind, payload);
    }

    /// One write, one sync, or one write that is both. After an error nothing is known about the bytes behind `durable_end`, and the caller must not
    /// try again: a second sync may report success for pages that the first one lost. Only a write that found the disk full may be
    /// made again; it was not synced, and puts the same bytes to the same place.
    pub(super) fn commit(&mut self, directory: &Directory) -> Result<(), Failure> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let is_written = match &mut self.direct {
            Some(direct) => direct.write(directory, &self.path, &self.buffer, self.durable_end)?,
            None => false,
        };
        if !is_written {
            self.direct = None;
            directory.write_all(&self.file, &self.path, &self.buffer, u64::from(self.durable_end))?;
            directory.sync_file(&self.file, &self.path)?;
        }
        self.durable_end += self.buffer.len() as u32;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        Ok(())
    }
}
