//! What the host holds: opens a journal, hands requests to its thread and takes the completions.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;

use super::directory::Directory;
use super::disk::{Disk, SystemDisk};
use super::error::{AppendError, Failure, OpenError, SubmitError};
use super::format::{FileName, HEADER_BYTES, Header, SegmentKind};
use super::lock::DirectoryLock;
use super::recovery;
use super::room::Gauges;
use super::segment::LiveSegment;
use super::spares::Spares;
use super::writer::{self, Progress, Request, Writer};
use super::{Completion, Options, ReplayResult, Then, Wake};

/// The smallest segment that makes sense, for tests.
const SEGMENT_BYTES_MIN: u32 = 256;

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
            try_again_after: options.try_again_after,
            delay: options.delay,
            requests,
            backlog: VecDeque::new(),
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
            _lock: lock,
        })
    }

    /// Hands a batch over and returns its number. Never blocks. Batches become durable in the order of their numbers; after
    /// a crash during the write, a prefix of the batch's records may be there.
    pub fn append(&mut self, records: Vec<Bytes>) -> Result<u64, SubmitError> {
        self.append_batch(records, None)
    }

    /// The same, and `then` is called on the journal's thread as soon as the batch is durable (never, if it does not get so). The host is woken
    /// for it only if `then` says so, or if it watches: see [`Journal::watch`].
    pub fn append_then(&mut self, records: Vec<Bytes>, then: Then) -> Result<u64, SubmitError> {
        self.append_batch(records, Some(then))
    }

    /// The host waits for something that is under way, and for which it need not have been woken. To be called before a `poll`: what that does not
    /// find wakes the host.
    pub fn watch(&self) {
        self.gauges.watch();
    }

    fn append_batch(&mut self, records: Vec<Bytes>, then: Option<Then>) -> Result<u64, SubmitError> {
        let bytes = records.iter().map(|record| writer::framed_bytes(record)).sum();
        if bytes > self.frames_max {
            return Err(SubmitError::TooLarge { bytes, bytes_max: self.frames_max });
        }
        let queued = self.queued_bytes();
        if queued.saturating_add(bytes) > self.queue_bytes_max && queued > 0 {
            return Err(SubmitError::QueueFull { bytes: queued, bytes_max: self.queue_bytes_max });
        }
        let number = self.submitted + 1;
        self.submit(bytes, Request::Append { number, bytes, records, then });
        Ok(number)
    }

    /// Replaces everything appended so far by these records: after a crash, the next open replays them and what was
    /// appended later. They must say all that the host still needs of the batches before, also of those that are not durable
    /// yet: it takes the place of batches that wait for room. Appends wait while it is written. When its completion comes, older
    /// segments are gone.
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
        self.gauges.add_to_queue(bytes);
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

    /// The next completion, if it comes within `patience`.
    pub fn wait_for(&mut self, patience: Duration) -> Option<Completion> {
        match self.completions.recv_timeout(patience) {
            Ok(completion) => Some(self.note(completion)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(self.stopped()).map(|completion| self.note(completion))
            }
        }
    }

    fn stopped(&self) -> Completion {
        Completion {
            through: self.submitted,
            result: Err(AppendError::Stopped),
            at: std::time::Instant::now(),
        }
    }

    fn note(&mut self, completion: Completion) -> Completion {
        self.completed = completion.through;
        completion
    }

    /// Bytes that wait for the thread.
    pub fn queued_bytes(&self) -> u64 {
        self.gauges.queued_bytes()
    }

    /// Why nothing gets durable now, if the disk is full. It goes on by itself as soon as there is room.
    pub fn disk_full(&self) -> Option<Arc<Failure>> {
        self.gauges.disk_full()
    }

    /// Bytes that an open would have to replay now; a host makes a checkpoint when this is large.
    pub fn live_bytes(&self) -> u64 {
        self.gauges.live_bytes()
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
