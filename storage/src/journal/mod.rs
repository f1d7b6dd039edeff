//! The journal: opaque records that are on the disk when the journal says so.
//!
//! A host appends batches of records and is told when they are durable; many batches share one write and one sync. At the
//! next start all durable records come back in order. A checkpoint replaces everything before it by the records that still
//! count. The journal knows no Paxos, no tokio and no clock; a record is bytes.
//!
//! Parts: `handle` what the host holds · `writer` the thread · `room` what it does on a full disk · `segment` the open end · `direct` writes past the page cache · `spares` files prepared ahead ·
//! `recovery` replay and repair · `format` the bytes of the files · `directory` file operations · `disk` the seam for fault
//! injection · `lock` one process per directory · `error` words for the operator.
//!
//! # Use
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! use warlock_storage::journal::{Journal, Options};
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
//!   system a commit can find the disk full; then the same bytes are written to the same place when there is room.)
//! - **J7** After a failed sync, or a write that failed for another reason than a full disk, nothing is written any more.
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
//! - a flipped bit in a frame before the last write, in a header, or in a file name: error. Indifferent, and the state is
//!   correct: what lies behind the end of the frames, segments older than the newest complete checkpoint (which a crash
//!   may have left), and the seal before a last segment that is still empty;
//! - the last segment cut at any length, or zero from there on: the records before the cut (a correct earlier state), but an
//!   error if the cut is inside the header, or inside the checkpoint that replaced all older segments. No crash cuts
//!   synced bytes; if something else does and takes a synced suffix, nothing is left that could tell;
//! - a missing segment, also the newest one: error. (If the newest was created but never written when the power failed, its
//!   predecessor may be unsealed; then losing it loses nothing);
//! - never a state that the journal was not in.
//!
//! A whole directory that is replaced by an older copy of itself cannot be recognised here.
//!
//! # Disk full
//!
//! A batch for which no segment can be made waits, and with it everything behind it; nothing of it was written, and nobody was told
//! that it is durable. [`Journal::disk_full`] says so meanwhile. The journal tries again and again, and goes on as soon as there is
//! room. One spare is held back for [`Journal::checkpoint`], which makes room even on a full disk: it takes the place of the
//! batches that wait in front of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

mod direct;
mod directory;
mod disk;
mod error;
mod format;
mod handle;
mod lock;
mod recovery;
mod room;
mod segment;
mod spares;
#[cfg(test)]
mod tests;
mod writer;

pub use disk::{Disk, SystemDisk};
pub use error::{AppendError, Failure, OpenError, SubmitError};
pub use handle::Journal;

/// What the reader of the records says about one: an error stops the replay and becomes [`OpenError::Rejected`].
pub type ReplayResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

type Wake = Arc<dyn Fn() + Send + Sync>;

/// What is done on the journal's thread when a batch is durable; true: the host has to be woken for it.
pub type Then = Box<dyn FnOnce() -> bool + Send>;

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
    /// How long a full disk is left alone before the next try.
    pub try_again_after: Duration,
    /// For tests: how much longer each write takes.
    pub delay: fn() -> Duration,
}

impl Options {
    /// The defaults: 64 MiB segments, up to 4 spares, 256 MiB waiting, writes of up to 4 MiB, a barrier after 100 ms, a full
    /// disk tried again after 200 ms.
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
            try_again_after: Duration::from_millis(200),
            delay: || Duration::ZERO,
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
    /// Since when.
    pub at: std::time::Instant,
}

/// A segment that is complete: what a replay reads before the last one.
#[derive(Clone, Copy, Debug)]
struct Closed {
    number: u64,
    end: u32,
}
