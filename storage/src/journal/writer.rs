//! The thread that writes: drains what waits, commits it with one write and one sync, reports one completion.
//!
//! Invariant W1: completions leave in the order of the requests, and each says the truth about all requests since the one
//! before. Invariant W2: a batch lies in one segment, and room for it is found before its first byte is written; so a batch
//! that waits for room has left nothing on the disk. What waits for room, and what then happens to it: `room`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::directory::Directory;
use super::error::{AppendError, Failure};
use super::format::{FRAME_BYTES, FrameKind, HEADER_BYTES, Header, SegmentKind};
use super::room::Gauges;
use super::segment::{LiveSegment, SEAL_BYTES};
use super::spares::{CHECKPOINT_RESERVE, Spares};
use super::{Closed, Completion, Then, Wake};

/// What the handle asks of the thread.
pub(super) enum Request {
    /// Make the records of a batch durable.
    Append {
        number: u64,
        /// Size with frames.
        bytes: u64,
        records: Vec<Bytes>,
        then: Option<Then>,
    },
    /// Begin a new segment with these records and forget the older ones.
    Checkpoint { number: u64, bytes: u64, records: Vec<Bytes> },
}

impl Request {
    pub(super) fn bytes(&self) -> u64 {
        let (Request::Append { bytes, .. } | Request::Checkpoint { bytes, .. }) = self;
        *bytes
    }

    pub(super) fn is_checkpoint(&self) -> bool {
        matches!(self, Request::Checkpoint { .. })
    }
}

/// Why a step did not succeed.
enum Stop {
    /// No room; everything is as it was before the step.
    Full(Failure),
    /// The journal is poisoned.
    Fatal(AppendError),
}

impl From<AppendError> for Stop {
    fn from(error: AppendError) -> Stop {
        Stop::Fatal(error)
    }
}

/// The state of the thread.
pub(super) struct Writer {
    pub(super) directory: Directory,
    pub(super) live: LiveSegment,
    /// Segments before `live` that a replay needs, ascending.
    pub(super) closed: Vec<Closed>,
    pub(super) spares: Spares,
    pub(super) segment_bytes: u32,
    pub(super) write_bytes_max: usize,
    pub(super) barrier_after: Option<Duration>,
    pub(super) try_again_after: Duration,
    pub(super) delay: fn() -> Duration,
    pub(super) requests: Receiver<Request>,
    /// Requests that came while the thread waited for room.
    pub(super) backlog: VecDeque<Request>,
    pub(super) completions: Sender<Completion>,
    pub(super) wake: Wake,
    pub(super) gauges: Arc<Gauges>,
    pub(super) progress: Progress,
}

/// What the thread remembers between requests.
#[derive(Default)]
pub(super) struct Progress {
    /// The newest batch whose frames wait for the next commit.
    waiting: Option<u64>,
    /// What is to be done when that is durable.
    thens: Vec<Then>,
    /// The host has to be woken then in any case.
    wakes: bool,
    /// Set once, by the first failure that is not a full disk: nothing is written any more.
    pub(super) poisoned: Option<Arc<Failure>>,
    /// Something was committed since the last barrier.
    barrier_due: bool,
}

impl Writer {
    /// Until the handle is dropped, then writes what still waits.
    pub(super) fn run(mut self) {
        while let Some(request) = self.next_request() {
            self.serve(request);
            while self.live.buffered() < self.write_bytes_max
                && let Some(request) = self.backlog.pop_front().or_else(|| self.requests.try_recv().ok())
            {
                self.serve(request);
            }
            self.flush();
        }
        self.write_barrier();
    }

    fn next_request(&mut self) -> Option<Request> {
        if let Some(request) = self.backlog.pop_front() {
            return Some(request);
        }
        if let Some(barrier_after) = self.barrier_after
            && self.progress.barrier_due
        {
            match self.requests.recv_timeout(barrier_after) {
                Ok(request) => return Some(request),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.write_barrier(),
            }
        }
        self.requests.recv().ok()
    }

    fn serve(&mut self, request: Request) {
        self.gauges.take_from_queue(request.bytes());
        match request {
            Request::Append { number, bytes, records, then } => self.append((number, bytes), &records, then),
            Request::Checkpoint { number, records, .. } => {
                self.flush();
                let result = self.checkpoint_when_there_is_room(&records);
                self.update_live_bytes();
                if let Some(result) = result.transpose() {
                    self.finish(number, result);
                }
            }
        }
    }

    fn append(&mut self, (number, bytes): (u64, u64), records: &[Bytes], then: Option<Then>) {
        match self.make_room(bytes) {
            Ok(Some(())) => {
                for record in records {
                    self.live.encode(FrameKind::Record, record);
                }
                self.progress.waiting = Some(number);
                self.progress.wakes |= then.is_none();
                self.progress.thens.extend(then);
            }
            Ok(None) => {} // the checkpoint that comes next takes its place
            Err(error) => {
                self.flush();
                self.finish(number, Err(error));
            }
        }
    }

    /// Room for `bytes` in the live segment, sooner or later. `None`: a checkpoint makes it needless.
    fn make_room(&mut self, bytes: u64) -> Result<Option<()>, AppendError> {
        self.check_poison()?;
        if self.live.room() >= bytes {
            return Ok(Some(()));
        }
        self.flush();
        loop {
            match self.roll(SegmentKind::Continuation, CHECKPOINT_RESERVE) {
                Ok(()) => return Ok(Some(())),
                Err(Stop::Fatal(error)) => return Err(error),
                Err(Stop::Full(failure)) => {
                    self.wait_for_room(failure)?;
                    if self.make_way_for_a_checkpoint() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// `None`: a newer checkpoint makes this one needless.
    fn checkpoint_when_there_is_room(&mut self, records: &[Bytes]) -> Result<Option<()>, AppendError> {
        loop {
            match self.checkpoint(records) {
                Ok(()) => return Ok(Some(())),
                Err(Stop::Fatal(error)) => return Err(error),
                Err(Stop::Full(failure)) => {
                    self.wait_for_room(failure)?;
                    if self.make_way_for_a_checkpoint() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Commits what waits and reports it.
    fn flush(&mut self) {
        let Some(number) = self.progress.waiting.take() else { return };
        let result = self.commit();
        self.update_live_bytes();
        let mut wakes = std::mem::take(&mut self.progress.wakes);
        for then in self.progress.thens.drain(..) {
            wakes |= result.is_err() || then();
        }
        self.report(number, result, wakes);
    }

    fn commit(&mut self) -> Result<(), AppendError> {
        self.check_poison()?;
        self.progress.barrier_due = true;
        let delay = (self.delay)();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        self.commit_when_there_is_room()
    }

    /// On a file system where a write in place needs room, a commit can find the disk full. That is not a failed sync: nothing was
    /// promised, and the same bytes go to the same place when there is room.
    fn commit_when_there_is_room(&mut self) -> Result<(), AppendError> {
        loop {
            match self.live.commit(&self.directory) {
                Err(failure) if failure.is_write_without_room() => {
                    self.wait_for_room(failure)?;
                }
                other => {
                    self.gauges.there_is_room();
                    return self.or_poison(other);
                }
            }
        }
    }

    fn check_poison(&self) -> Result<(), AppendError> {
        match &self.progress.poisoned {
            Some(failure) => Err(AppendError::Failed(Arc::clone(failure))),
            None => Ok(()),
        }
    }

    pub(super) fn or_poison<T>(&mut self, result: Result<T, Failure>) -> Result<T, AppendError> {
        result.map_err(|failure| {
            let failure = Arc::clone(self.progress.poisoned.get_or_insert(Arc::new(failure)));
            AppendError::Failed(failure)
        })
    }

    /// For the steps before a new segment has its name: a full disk changes nothing and is not fatal there.
    fn or_full<T>(&mut self, result: Result<T, Failure>) -> Result<T, Stop> {
        match result {
            Err(failure) if failure.is_disk_full() => Err(Stop::Full(failure)),
            other => Ok(self.or_poison(other)?),
        }
    }

    /// Goes on in a new segment. Everything before must be committed: the new header says so.
    fn roll(&mut self, kind: SegmentKind, reserve: usize) -> Result<(), Stop> {
        self.check_poison()?;
        debug_assert_eq!(
            self.live.buffered(),
            0,
            "S1: a segment is left only when all its frames are durable"
        );
        let taken = self.spares.take(reserve);
        let spare = self.or_full(taken)?;
        let header = Header {
            kind,
            id: self.directory.id,
            number: self.live.header.number + 1,
            capacity: self.segment_bytes,
            previous_end: self.live.durable_end(),
        };
        let started = LiveSegment::start(&self.directory, spare, header);
        if started.as_ref().is_err_and(Failure::is_disk_full) {
            self.spares.put_back(spare);
        }
        let next = self.or_full(started)?;
        let named = self.directory.sync();
        self.or_poison(named)?;
        // The seal comes after the next name is durable and before the next frame: a sealed segment without successor, or
        // a successor with frames behind an unsealed one, is damage.
        self.live.encode(FrameKind::Seal, &[]);
        self.commit_when_there_is_room()?;
        self.closed.push(Closed { number: self.live.header.number, end: next.header.previous_end });
        self.live = next;
        Ok(())
    }

    fn checkpoint(&mut self, records: &[Bytes]) -> Result<(), Stop> {
        self.check_poison()?;
        // All the room first, so that a full disk delays the checkpoint instead of breaking it off.
        let wanted = self.spares.ensure(segments_needed(self.segment_bytes, records));
        self.or_full(wanted)?;
        self.roll(SegmentKind::Checkpoint, 0)?;
        let first = self.live.header.number;
        for record in records {
            self.checkpoint_frame(FrameKind::CheckpointRecord, record)?;
        }
        self.checkpoint_frame(FrameKind::CheckpointEnd, &(records.len() as u64).to_le_bytes())?;
        // From here on a replay begins with this checkpoint.
        self.commit()?;
        Ok(self.retire_before(first)?)
    }

    fn checkpoint_frame(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), Stop> {
        if self.live.room() < framed_bytes(payload) {
            self.commit()?;
            // Finds no room only if somebody took the spares away; then the checkpoint stays incomplete, which every later
            // open ignores, and is made again from its beginning.
            self.roll(SegmentKind::Continuation, 0)?;
        }
        self.live.encode(kind, payload);
        if self.live.buffered() >= self.write_bytes_max {
            self.commit()?;
        }
        Ok(())
    }

    fn retire_before(&mut self, first: u64) -> Result<(), AppendError> {
        let (obsolete, needed) =
            std::mem::take(&mut self.closed).into_iter().partition(|closed| closed.number < first);
        self.closed = needed;
        let obsolete: Vec<u64> = Vec::into_iter(obsolete).map(|closed| closed.number).collect();
        let retired = retire(&self.directory, &mut self.spares, &obsolete);
        self.or_poison(retired)
    }

    /// A frame without a record, so that the records before it are no longer the last write: then damage to them is told
    /// apart from a torn write. Written when the journal is idle and when it is closed.
    fn write_barrier(&mut self) {
        let due = std::mem::take(&mut self.progress.barrier_due);
        if due && self.check_poison().is_ok() && self.live.room() >= u64::from(FRAME_BYTES) {
            self.live.encode(FrameKind::Barrier, &[]);
            // Nobody waits for it; if it failed, the next append says so.
            let _ = self.commit_when_there_is_room();
        }
    }

    fn finish(&self, through: u64, result: Result<(), AppendError>) {
        self.report(through, result, true);
    }

    fn report(&self, through: u64, result: Result<(), AppendError>, wakes: bool) {
        let completion = Completion { through, result, at: Instant::now() };
        // Without a receiver the handle is being dropped, and nobody wants to know.
        if self.completions.send(completion).is_ok() && (self.gauges.take_watch() || wakes) {
            (self.wake)();
        }
    }

    pub(super) fn update_live_bytes(&self) {
        let closed: u64 = self.closed.iter().map(|closed| u64::from(closed.end)).sum();
        self.gauges.set_live_bytes(closed + u64::from(self.live.durable_end()));
    }
}

/// Makes spares of segments that no replay needs, oldest first, or removes them.
pub(super) fn retire(directory: &Directory, spares: &mut Spares, segments: &[u64]) -> Result<(), Failure> {
    let mut kept = Vec::new();
    for &segment in segments {
        kept.extend(spares.retire(segment, kept.len())?);
    }
    if segments.is_empty() {
        return Ok(());
    }
    // No replay looks at segments older than its checkpoint, so this is for the people who look: a file that was used again
    // must not turn up under its old name.
    directory.sync()?;
    for spare in kept {
        spares.put_back(spare);
    }
    Ok(())
}

/// What a record takes in a segment.
pub(super) fn framed_bytes(record: &[u8]) -> u64 {
    u64::from(FRAME_BYTES) + record.len() as u64
}

/// What a segment can hold in frames.
pub(super) fn frames_max(segment_bytes: u32) -> u64 {
    u64::from(segment_bytes.saturating_sub(HEADER_BYTES + SEAL_BYTES))
}

/// How many segments a checkpoint with these records fills.
fn segments_needed(segment_bytes: u32, records: &[Bytes]) -> usize {
    let end = [0; 8];
    let (mut segments, mut used) = (1, 0);
    for bytes in records.iter().map(|record| framed_bytes(record)).chain([framed_bytes(&end)]) {
        if used + bytes > frames_max(segment_bytes) {
            segments += 1;
            used = 0;
        }
        used += bytes;
    }
    segments
}
