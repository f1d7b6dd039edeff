//! From the files of a directory to the records and the open end: find where to begin, replay, judge the tail, repair.
//!
//! Reading never changes anything; only after the last record was replayed without an error does `repair` write.

use std::collections::VecDeque;
use std::path::PathBuf;

use super::directory::{Directory, is_fully_allocated};
use super::error::{Failure, OpenError};
use super::format::{
    FORMAT_VERSION, FRAME_BYTES, FileName, Frame, FrameKind, Framing, HEADER_BYTES, Header, HeaderError,
    SegmentKind,
};
use super::segment::{LiveSegment, SEAL_BYTES};
use super::{Closed, ReplayResult};

/// What recovery hands to the writer.
pub(super) struct Recovered {
    /// The last segment, ready for the next frame.
    pub(super) live: LiveSegment,
    /// The segments before it that a replay needs, ascending.
    pub(super) closed: Vec<Closed>,
    /// Segments older than the newest complete checkpoint, ascending.
    pub(super) obsolete: Vec<u64>,
}

/// Replays the journal and makes its end ready for writing. `numbers` are the segments found, ascending, at least one.
pub(super) fn recover(
    directory: &Directory,
    numbers: &[u64],
    replay: &mut dyn FnMut(&[u8]) -> ReplayResult,
) -> Result<Recovered, OpenError> {
    let chain = Chain::find(directory, numbers)?;
    let (last_bytes, tail) = chain.replay(replay)?;
    let live = chain.repair(&last_bytes, &tail)?;
    let first = chain.header(0)?.number;
    let mut closed = Vec::with_capacity(chain.headers.len());
    for (header, next) in chain.headers.iter().zip(chain.headers.iter().skip(1)) {
        closed.push(Closed { number: header.number, end: next.previous_end });
    }
    let obsolete = numbers.iter().copied().filter(|&number| number < first).collect();
    Ok(Recovered { live, closed, obsolete })
}

/// The segments from the newest complete checkpoint (or the origin) to the last, without a gap.
struct Chain<'a> {
    directory: &'a Directory,
    headers: VecDeque<Header>,
}

/// Where the valid frames of a segment end.
struct Tail {
    offset: u32,
    /// Start of the last write: everything before it was synced by the process that wrote it.
    write_start: u32,
    /// Valid frames of the same, torn, write lie behind `offset`.
    has_remnants: bool,
}

/// Whether `walk` shall go on after a frame.
enum Step {
    Continue,
    Stop,
}

impl<'a> Chain<'a> {
    /// Walks back from the newest segment. Older segments than needed are not even looked at.
    fn find(directory: &'a Directory, numbers: &[u64]) -> Result<Chain<'a>, OpenError> {
        let mut chain = Chain { directory, headers: VecDeque::new() };
        let mut incomplete = None;
        for &number in numbers.iter().rev() {
            if let Some(newer) = chain.headers.front()
                && newer.number != number + 1
            {
                break;
            }
            chain.headers.push_front(chain.read_header(number)?);
            match chain.header(0)?.kind {
                SegmentKind::Origin => return Ok(chain),
                SegmentKind::Continuation => {}
                SegmentKind::Checkpoint => match chain.checkpoint_cut_at()? {
                    None => return Ok(chain),
                    Some(cut) => incomplete = Some(cut),
                },
            }
        }
        let oldest = chain.header(0)?;
        if let (SegmentKind::Checkpoint, Some((file, offset))) = (oldest.kind, incomplete) {
            // Segments are removed only after the checkpoint that replaces them is durable, so it was complete once.
            let reason = "the checkpoint ends here, but the segments that it replaced are gone".into();
            return Err(OpenError::Damaged { file, offset: offset.into(), reason });
        }
        Err(OpenError::Missing {
            file: directory.file(FileName::Segment(oldest.number.saturating_sub(1))),
            needed_by: directory.file(FileName::Segment(oldest.number)),
        })
    }

    /// Headers are pushed before they are asked for; the error is only there to avoid a panic.
    fn header(&self, index: usize) -> Result<Header, OpenError> {
        self.headers
            .get(index)
            .copied()
            .ok_or_else(|| OpenError::Absent { directory: self.directory.path.clone() })
    }

    fn path(&self, index: usize) -> Result<PathBuf, OpenError> {
        Ok(self.directory.file(FileName::Segment(self.header(index)?.number)))
    }

    fn read_header(&self, number: u64) -> Result<Header, OpenError> {
        let file = self.directory.file(FileName::Segment(number));
        let damaged =
            |reason: &str| OpenError::Damaged { file: file.clone(), offset: 0, reason: reason.to_string() };
        let mut bytes = [0; HEADER_BYTES as usize];
        let opened = std::fs::File::open(&file).map_err(Failure::of("open", &file))?;
        match std::io::Read::read_exact(&mut &opened, &mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(damaged("the file is shorter than a segment header"));
            }
            Err(error) => return Err(Failure::of("read", &file)(error).into()),
        }
        let header = match Header::decode(&bytes) {
            Ok(header) => header,
            Err(HeaderError::Damaged(reason)) => return Err(damaged(reason)),
            Err(HeaderError::Version(found)) => {
                return Err(OpenError::Format { file, found, expected: FORMAT_VERSION });
            }
        };
        if header.id != self.directory.id {
            return Err(OpenError::Foreign { file, found: header.id, expected: self.directory.id });
        }
        if header.number != number {
            return Err(damaged("the segment number in the header is not the one in the file name"));
        }
        if header.capacity < HEADER_BYTES + FRAME_BYTES + SEAL_BYTES {
            return Err(damaged("the segment header gives an impossible size"));
        }
        Ok(header)
    }

    fn read(&self, index: usize) -> Result<Vec<u8>, OpenError> {
        let path = self.path(index)?;
        let mut bytes = std::fs::read(&path).map_err(Failure::of("read", &path))?;
        bytes.truncate(self.header(index)?.capacity as usize);
        Ok(bytes)
    }

    fn damaged<T>(&self, index: usize, offset: u32, reason: impl Into<String>) -> Result<T, OpenError> {
        Err(OpenError::Damaged { file: self.path(index)?, offset: offset.into(), reason: reason.into() })
    }

    /// Shows `visit` each frame of a segment but the seal, in order, with its offset. In all but the last segment, every
    /// frame up to the end that the next segment's header gives must be valid.
    fn walk(
        &self,
        index: usize,
        bytes: &[u8],
        visit: &mut dyn FnMut(u32, &Frame) -> Result<Step, OpenError>,
    ) -> Result<Tail, OpenError> {
        let header = self.header(index)?;
        let framing = Framing::new(&header.id, header.number);
        let end = self.headers.get(index + 1).map(|next| next.previous_end);
        let mut tail = Tail { offset: HEADER_BYTES, write_start: HEADER_BYTES, has_remnants: false };
        while end != Some(tail.offset) {
            let Some(frame) = framing.decode(bytes, tail.offset) else {
                if end.is_some() {
                    return self.damaged(
                        index,
                        tail.offset,
                        "no valid frame here, and a later segment exists",
                    );
                }
                tail.has_remnants = self.judge_tail(index, bytes, &framing, tail.offset)?;
                return Ok(tail);
            };
            if end.is_some_and(|end| frame.end > end) {
                return self.damaged(
                    index,
                    tail.offset,
                    "the frame reaches past the end of the segment's frames",
                );
            }
            if frame.kind == FrameKind::Seal {
                if end.is_some() {
                    return self.damaged(
                        index,
                        tail.offset,
                        "the seal comes before the end of the segment's frames",
                    );
                }
                // The next segment's name was durable before the seal was written.
                return Err(OpenError::Missing {
                    file: self.directory.file(FileName::Segment(header.number + 1)),
                    needed_by: self.path(index)?,
                });
            }
            if let Step::Stop = visit(tail.offset, &frame)? {
                return Ok(tail);
            }
            tail.write_start = frame.write_start;
            tail.offset = frame.end;
        }
        self.check_seal(index, bytes, &framing, tail.offset)?;
        Ok(tail)
    }

    /// In the last segment there is no valid frame at `offset`: the end, a torn write, or damage?
    ///
    /// A crash can leave any part of the last, unsynced write, even its later sectors without its earlier ones. So a valid
    /// frame further on proves damage only if it belongs to a later write: then `offset` was synced before. Returns
    /// whether there are frames of the same write, which must be wiped.
    fn judge_tail(
        &self,
        index: usize,
        bytes: &[u8],
        framing: &Framing,
        offset: u32,
    ) -> Result<bool, OpenError> {
        let mut has_remnants = false;
        for (at, frame) in framing.search(bytes, offset) {
            if frame.write_start > offset {
                let reason = format!(
                    "no valid frame here, but the one at {at} was written after this place was synced"
                );
                return self.damaged(index, offset, reason);
            }
            has_remnants = true;
        }
        Ok(has_remnants)
    }

    /// The seal became durable before the first frame of the next segment was written.
    fn check_seal(
        &self,
        index: usize,
        bytes: &[u8],
        framing: &Framing,
        offset: u32,
    ) -> Result<(), OpenError> {
        if framing.decode(bytes, offset).is_some_and(|frame| frame.kind == FrameKind::Seal) {
            return Ok(());
        }
        let next = self.header(index + 1)?;
        let next_is_empty = index + 2 == self.headers.len()
            && Framing::new(&next.id, next.number).decode(&self.read(index + 1)?, HEADER_BYTES).is_none();
        if next_is_empty {
            return Ok(());
        }
        self.damaged(index, offset, "the seal of the segment is not valid, and the next segment has frames")
    }

    /// Where the checkpoint that begins the chain breaks off; `None` if it is complete.
    fn checkpoint_cut_at(&self) -> Result<Option<(PathBuf, u32)>, OpenError> {
        let mut complete = false;
        for index in 0..self.headers.len() {
            if index > 0 && self.header(index)?.kind != SegmentKind::Continuation {
                return Ok(Some((self.path(index)?, 0)));
            }
            let mut stopped = false;
            let tail = self.walk(index, &self.read(index)?, &mut |_, frame| {
                if frame.kind == FrameKind::CheckpointRecord {
                    return Ok(Step::Continue);
                }
                // Any other frame means that the checkpoint was given up and the journal went on in its segment.
                complete = frame.kind == FrameKind::CheckpointEnd;
                stopped = true;
                Ok(Step::Stop)
            })?;
            if complete {
                return Ok(None);
            }
            if stopped || index + 1 == self.headers.len() {
                return Ok(Some((self.path(index)?, tail.offset)));
            }
        }
        Ok(Some((self.path(0)?, HEADER_BYTES)))
    }

    /// Gives every record to `replay`; returns the last segment's bytes and where they end.
    fn replay(&self, replay: &mut dyn FnMut(&[u8]) -> ReplayResult) -> Result<(Vec<u8>, Tail), OpenError> {
        // Records of later checkpoints are skipped: those are incomplete, or the chain would begin there.
        let mut in_first_checkpoint = self.header(0)?.kind == SegmentKind::Checkpoint;
        let mut checkpoint_records = 0u64;
        for index in 0..self.headers.len() {
            let (path, bytes) = (self.path(index)?, self.read(index)?);
            let tail = self.walk(index, &bytes, &mut |offset, frame| {
                let payload = bytes.get(frame.payload.clone()).unwrap_or_default();
                let deliver = match frame.kind {
                    FrameKind::Record => true,
                    FrameKind::CheckpointRecord => in_first_checkpoint,
                    FrameKind::CheckpointEnd => {
                        if !in_first_checkpoint || payload != checkpoint_records.to_le_bytes() {
                            return self.damaged(
                                index,
                                offset,
                                "the checkpoint does not have as many records as it says",
                            );
                        }
                        in_first_checkpoint = false;
                        false
                    }
                    FrameKind::Barrier | FrameKind::Seal => false,
                };
                if deliver {
                    checkpoint_records += u64::from(in_first_checkpoint);
                    replay(payload).map_err(|reason| OpenError::Rejected {
                        file: path.clone(),
                        offset: offset.into(),
                        reason,
                    })?;
                }
                Ok(Step::Continue)
            })?;
            if index + 1 == self.headers.len() {
                return Ok((bytes, tail));
            }
        }
        Err(OpenError::Absent { directory: self.directory.path.clone() })
    }

    /// Cuts the tail and makes everything that was replayed durable. Does the same again if it is interrupted.
    fn repair(&self, bytes: &[u8], tail: &Tail) -> Result<LiveSegment, OpenError> {
        let index = self.headers.len().saturating_sub(1);
        let (header, path) = (self.header(index)?, self.path(index)?);
        // A process that was killed may have left the last segment's name in the kernel's memory only. J3: it must be
        // durable before the segment gets frames and before the one before it is sealed.
        self.directory.sync()?;
        let file = self.directory.open(&path)?;
        let metadata = file.metadata().map_err(Failure::of("inspect", &path))?;
        if tail.has_remnants || !is_fully_allocated(&metadata, header.capacity) {
            // A remnant could become the successor of a new record that happens to have the length of the lost one.
            self.directory.write_zeros(&file, &path, u64::from(tail.offset)..u64::from(header.capacity))?;
        }
        // The last write may never have been synced, or its sync may have failed, after which the kernel shows the
        // bytes but considers them written. Writing them again makes the coming sync a true one.
        let last_write = bytes.get(tail.write_start as usize..tail.offset as usize).unwrap_or_default();
        self.directory.write_all(&file, &path, last_write, u64::from(tail.write_start))?;
        self.directory.sync_file(&file, &path)?;
        if index > 0 {
            // The same holds for the seal of the segment before; and it may not have been written at all.
            let previous = self.header(index - 1)?;
            let path = self.path(index - 1)?;
            let file = self.directory.open(&path)?;
            let mut sealed = LiveSegment::resume(self.directory, file, path, previous, header.previous_end)?;
            sealed.encode(FrameKind::Seal, &[]);
            sealed.commit(self.directory)?;
        }
        Ok(LiveSegment::resume(self.directory, file, path, header, tail.offset)?)
    }
}
