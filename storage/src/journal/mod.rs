//! The journal: opaque records that are on the disk when the journal says so.
//!
//! A host appends batches of records and is told when they are durable; many batches share one write and one sync. At the
//! next start all durable records come back in order. A checkpoint replaces everything before it by the records that still
//! count. The journal knows no Paxos, no tokio and no clock; a record is bytes.
//!
//! Parts: [`format`](self) bytes of the files · `directory` file operations · [`disk`](Disk) the seam for fault
//! injection · `lock` one process per directory · `segment` the open end · `spares` files prepared ahead · `writer` the
//! thread · `recovery` replay and repair · [`error`](OpenError) words for the operator.
//!
//! # Use
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! use storage_journal::{Journal, Options};
//! # use warlock_storage::journal as storage_journal;
//! let mut options = Options::new(directory.path(), [7; 16]);
//! options.create = true;
//! # options.segment_bytes = 4096;
//! let mut journal = Journal::open(options, |record| Ok(println!("replayed {record:?}")), || { /* wake the host */ })?;
//! let number = journal.append(vec!["a".into(), "b".into()])?;
//! // An async host calls `poll` after each wake instead.
//! let completion = journal.wait();
//! assert!(completion.through >= number && completion.result.is_ok());
//! # Ok(()) }
//! ```
//!
//! # Files
//!
//! | name | what |
//! |---|---|
//! | `lock` | flock of the process that has the journal open; its pid as text |
//! | `segment-<20 digits>` | a segment; numbers start at 1, grow by 1 and are never used again |
//! | `spare-<20 digits>` | allocated and written, waits to become a segment; its content means nothing |
//! | `preparing-<20 digits>` | a spare in the making; removed at open |
//!
//! A segment (all numbers little-endian):
//!
//! ```text
//! offset  0  magic "WARLOCKJ"
//!         8  format version u32
//!        12  kind u32: 1 origin, 2 continuation, 3 checkpoint
//!        16  directory id, 16 bytes
//!        32  segment number u64
//!        40  length of the file u32
//!        44  where the frames of the previous segment end u32 (0 for the origin)
//!        48  zeros
//!        60  crc32c of bytes 0..60
//!        64  frames, one after the other without padding, then zeros or whatever the recycled file held
//!
//! frame + 0  length of the payload u32
//!       + 4  crc32c of: directory id, segment number u64, offset of the frame in the segment u32, then the frame's
//!            fields at 0, 8 and 12, then the payload
//!       + 8  write start u32: everything in this segment before it was synced before this frame was written
//!       +12  kind u8: 1 record, 2 checkpoint record, 3 checkpoint end (payload: record count u64), 4 barrier, 5 seal
//!       +13  upper 24 bits of crc32c(directory id, segment number), a filter for searching
//!       +16  payload
//! ```
//!
//! # Invariants
//!
//! - **J1** A frame is written only after everything before its write start was synced.
//! - **J2** A segment gets its name only after its header is durable and after every frame of the segment before is synced.
//!   Its header says where those frames end.
//! - **J3** A segment is sealed only after the name of the next one is durable; a segment gets frames only after the one
//!   before is sealed.
//! - **J4** A checkpoint is complete when its end frame follows its records directly. Older segments go away only after the
//!   end frame is durable. A replay begins at the newest complete checkpoint.
//! - **J5** A batch lies in one segment, and is written only when there is room for all of it.
//! - **J6** Every block of a segment was allocated and written before it got its name, so that a full disk is met only while a
//!   spare is prepared, never in a commit. (True where a write in place needs no room: ext4, xfs. On a copy-on-write file
//!   system a commit can find the disk full; that poisons the journal.)
//! - **J7** After a failed write or sync nothing is written any more.
//!
//! # Guarantees
//!
//! *Crash or power loss* at any point, assuming that synced bytes stay and that a device sector rewritten with the same
//! leading bytes keeps those: `open` succeeds and replays every record that was reported durable, in order, then possibly
//! some of the records of the last write (a prefix of them, perhaps part of a batch), and nothing else. What it replayed is
//! durable when it returns.
//!
//! *Damage* (flipped bits, lost files, cut files) gives an error that names file and offset, with this limit: damage within
//! the **last write** of the journal cannot be told from a torn write and is cut like one. The last write is the one group
//! of frames behind which nothing was written any more. A barrier is written behind it when the journal was idle for
//! [`Options::barrier_after`] and when it is closed; from then on the barrier is the last write and damage to every record
//! is reported. In detail:
//!
//! - a flipped bit in a frame before the last write, in a header, or in a file name: error. Two places are
//!   indifferent and give the correct state: what lies behind the end of the frames, and the seal before a last segment
//!   that is still empty.
//! - the last segment cut at any length, or zero from there on: the records before the cut (a correct earlier state), but an
//!   error if the cut is inside the header, or inside the checkpoint that replaced all older segments;
//! - a missing segment, also the newest one: error. (If the newest was created but never written when the power failed, its
//!   predecessor may be unsealed; then losing it loses nothing.)
//! - never a state that the journal was not in.
//!
//! A whole directory that is replaced by an older copy of itself cannot be recognised here.
//!
//! # Disk full
//!
//! [`AppendError::DiskFull`] refuses appends for which no segment can be made. Nothing of them was written, and the journal
//! takes appends again as soon as there is room: each attempt tries anew. So that the order has no gap, batches that the
//! host appended before it took the refusal with [`Journal::poll`] are refused too ([`AppendError::AfterRefusal`]). One
//! spare is held back for [`Journal::checkpoint`], which makes room even on a full disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;

mod directory;
mod disk;
mod error;
mod format;
mod lock;
mod recovery;
mod segment;
mod spares;
#[cfg(test)]
mod tests;
mod writer;

pub use disk::{Disk, SystemDisk};
pub use error::{AppendError, Failure, OpenError, SubmitError};

use directory::Directory;
use format::{FileName, HEADER_BYTES, Header, SegmentKind};
use lock::DirectoryLock;
use segment::LiveSegment;
use spares::Spares;
use writer::{Gauges, Progress, Request, Writer};

/// What the reader of the records says about one: an error stops the replay and becomes [`OpenError::Rejected`].
pub type ReplayResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

type Wake = Arc<dyn Fn() + Send + Sync>;

/// The smallest segment that makes sense, for tests.
const SEGMENT_BYTES_MIN: u32 = 256;

/// How to open a journal.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the files are. Nothing else should be kept there.
    pub directory: PathBuf,
    /// Identifies cluster and node; a directory with another id is refused.
    pub id: [u8; 16],
    /// Make a new journal if there is none. A host that knows that its journal exists says `false`, so that a lost
    /// directory is an error and not a node without memory.
    pub create: bool,
    /// Size of new segments; also the limit for a batch.
    pub segment_bytes: u32,
    /// How many unused segments are kept for reuse; further ones are removed. At least 2 are kept in any case.
    pub spare_segments_max: usize,
    /// Appends are refused while more than this waits for the disk.
    pub queue_bytes_max: u64,
    /// A write is not made larger than this by adding batches.
    pub write_bytes_max: usize,
    /// How long the journal is idle before it writes a barrier, see "Guarantees". `None`: only when it is closed.
    pub barrier_after: Option<Duration>,
}

impl Options {
    /// The defaults: 64 MiB segments, up to 4 spares, 256 MiB waiting, writes of up to 4 MiB, a barrier after 100 ms.
    pub fn new(directory: impl Into<PathBuf>, id: [u8; 16]) -> Options {
        Options {
            directory: directory.into(),
            id,
            create: false,
            segment_bytes: 64 << 20,
            spare_segments_max: 4,
            queue_bytes_max: 256 << 20,
            write_bytes_max: 4 << 20,
            barrier_after: Some(Duration::from_millis(100)),
        }
    }
}

/// The outcome of all requests after those of the completion before, up to and including `through`.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Number of the last request concerned, as returned by `append` or `checkpoint`.
    pub through: u64,
    /// Durable, or why not.
    pub result: Result<(), AppendError>,
    /// How many refusals for want of room there were so far.
    refusals: u64,
}

/// A segment that is complete: what a replay reads before the last one.
#[derive(Clone, Copy, Debug)]
struct Closed {
    number: u64,
    end: u32,
}

/// An open journal. Belongs to one host, which appends and polls. Dropping it writes what still waits, then releases the
/// directory.
pub struct Journal {
    requests: Option<Sender<Request>>,
    completions: Receiver<Completion>,
    thread: Option<JoinHandle<()>>,
    gauges: Arc<Gauges>,
    frames_max: u64,
    queue_bytes_max: u64,
    /// Number of the newest request.
    submitted: u64,
    /// Number of the newest request whose completion the host took.
    completed: u64,
    /// Refusals that the host has seen.
    refusals_seen: u64,
    /// Dropped last: the thread has ended by then.
    _lock: DirectoryLock,
}

impl Journal {
    /// Locks the directory, gives every record to `replay` in order, and starts the thread. `wake` is called on that thread
    /// after each completion (and when it ends); it should only tell the host to `poll`.
    pub fn open(
        options: Options,
        replay: impl FnMut(&[u8]) -> ReplayResult,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Journal, OpenError> {
        Journal::open_on(Arc::new(SystemDisk), options, replay, wake)
    }

    /// `open` with another disk, for fault injection.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        mut replay: impl FnMut(&[u8]) -> ReplayResult,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Journal, OpenError> {
        if options.segment_bytes < SEGMENT_BYTES_MIN {
            return Err(OpenError::Setting(format!("segment_bytes must be at least {SEGMENT_BYTES_MIN}")));
        }
        let directory = Directory { path: options.directory, id: options.id, disk };
        prepare_directory(&directory.path, options.create)?;
        let lock = DirectoryLock::acquire(&directory.path)?;
        let mut listing = directory.list()?;
        for &number in &listing.preparing {
            directory.remove(&directory.file(FileName::Preparing(number)))?;
        }
        if listing.segments.is_empty() {
            if !options.create {
                return Err(OpenError::Absent { directory: directory.path });
            }
            create_origin(&directory, options.segment_bytes, &mut listing.spares)?;
            listing.segments.push(1);
        }
        let recovered = recovery::recover(&directory, &listing.segments, &mut replay)?;
        let spare_max = options.spare_segments_max;
        let mut spares = Spares::open(directory.clone(), options.segment_bytes, spare_max, &listing.spares)?;
        writer::retire(&directory, &mut spares, &recovered.obsolete)?;

        let (request_sender, requests) = channel();
        let (completion_sender, completions) = channel();
        let gauges = Arc::new(Gauges::default());
        let wake: Wake = Arc::new(wake);
        let writer = Writer {
            directory: directory.clone(),
            live: recovered.live,
            closed: recovered.closed,
            spares,
            segment_bytes: options.segment_bytes,
            write_bytes_max: options.write_bytes_max,
            barrier_after: options.barrier_after,
            requests,
            completions: completion_sender,
            wake: Arc::clone(&wake),
            gauges: Arc::clone(&gauges),
            progress: Progress::default(),
        };
        writer.update_live_bytes();
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                // Called after the writer and its channel are gone, even by a panic: the host must not wait for ever.
                let _wake_at_end = WakeAtEnd(wake);
                writer.run();
            })
            .map_err(Failure::of("start a thread for", &directory.path))?;
        Ok(Journal {
            requests: Some(request_sender),
            completions,
            thread: Some(thread),
            gauges,
            frames_max: writer::frames_max(options.segment_bytes),
            queue_bytes_max: options.queue_bytes_max,
            submitted: 0,
            completed: 0,
            refusals_seen: 0,
            _lock: lock,
        })
    }

    /// Hands a batch over and returns its number. Never blocks. Batches become durable in the order of their numbers; after
    /// a crash during the write, a prefix of the batch's records may be there.
    pub fn append(&mut self, records: Vec<Bytes>) -> Result<u64, SubmitError> {
        let bytes = records.iter().map(|record| writer::framed_bytes(record)).sum();
        if bytes > self.frames_max {
            return Err(SubmitError::TooLarge { bytes, bytes_max: self.frames_max });
        }
        let queued = self.queued_bytes();
        if queued.saturating_add(bytes) > self.queue_bytes_max && queued > 0 {
            return Err(SubmitError::QueueFull { bytes: queued, bytes_max: self.queue_bytes_max });
        }
        let (number, refusals_seen) = (self.submitted + 1, self.refusals_seen);
        self.submit(bytes, Request::Append { number, bytes, refusals_seen, records });
        Ok(number)
    }

    /// Replaces everything appended so far by these records: after a crash, the next open replays them and what was
    /// appended later. They must say all that the host still needs of the batches before. A full disk refuses the
    /// checkpoint and harms nothing. Appends wait while it is written. When its completion comes, older segments are gone.
    pub fn checkpoint(&mut self, live_records: Vec<Bytes>) -> Result<u64, SubmitError> {
        let mut bytes = 0;
        for record in &live_records {
            let framed = writer::framed_bytes(record);
            if framed > self.frames_max {
                return Err(SubmitError::TooLarge { bytes: framed, bytes_max: self.frames_max });
            }
            bytes += framed;
        }
        let number = self.submitted + 1;
        self.submit(bytes, Request::Checkpoint { number, bytes, records: live_records });
        Ok(number)
    }

    fn submit(&mut self, bytes: u64, request: Request) {
        self.submitted += 1;
        self.gauges.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(requests) = &self.requests {
            // If the thread is gone, `poll` says so.
            let _ = requests.send(request);
        }
    }

    /// The next completion, if there is one. Never blocks.
    pub fn poll(&mut self) -> Option<Completion> {
        match self.completions.try_recv() {
            Ok(completion) => Some(self.note(completion)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => (self.completed < self.submitted)
                .then(|| self.stopped())
                .map(|completion| self.note(completion)),
        }
    }

    /// Blocks until the next completion. Only for hosts without anything else to do, and only when a request is under way.
    pub fn wait(&mut self) -> Completion {
        let completion = self.completions.recv().unwrap_or_else(|_| self.stopped());
        self.note(completion)
    }

    fn stopped(&self) -> Completion {
        Completion {
            through: self.submitted,
            result: Err(AppendError::Stopped),
            refusals: self.refusals_seen,
        }
    }

    fn note(&mut self, completion: Completion) -> Completion {
        self.completed = completion.through;
        self.refusals_seen = completion.refusals;
        completion
    }

    /// Bytes that wait for the thread.
    pub fn queued_bytes(&self) -> u64 {
        self.gauges.queued_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that an open would have to replay now; a host makes a checkpoint when this is large.
    pub fn live_bytes(&self) -> u64 {
        self.gauges.live_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by `poll`; a destructor has nobody to tell.
            let _ = thread.join();
        }
    }
}

struct WakeAtEnd(Wake);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Makes sure that the directory exists; if it had to be created, its name is durable.
fn prepare_directory(path: &Path, create: bool) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    if !create {
        return Err(OpenError::Absent { directory: path.to_path_buf() });
    }
    std::fs::create_dir_all(path).map_err(Failure::of("create", path))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(Failure::of("sync", parent))?;
    Ok(())
}

/// Makes the first segment. A spare left by an attempt that was interrupted is not trusted with its size and replaced.
fn create_origin(directory: &Directory, segment_bytes: u32, spares: &mut Vec<u64>) -> Result<(), OpenError> {
    for number in spares.drain(..) {
        directory.remove(&directory.file(FileName::Spare(number)))?;
    }
    directory.prepare_spare(1, segment_bytes, &AtomicBool::new(false))?;
    let header = Header {
        kind: SegmentKind::Origin,
        id: directory.id,
        number: 1,
        capacity: segment_bytes,
        previous_end: 0,
    };
    let origin = LiveSegment::start(directory, 1, header)?;
    debug_assert_eq!(origin.durable_end(), HEADER_BYTES);
    directory.sync()?;
    Ok(())
}
