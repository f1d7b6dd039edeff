//! What can go wrong with the journal, in words for the operator: the file, the offset and the way out.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The way out when the journal's content cannot be trusted.
const REJOIN: &str = "do not edit or truncate the file; remove this node from the cluster (WARLOCK REMOVE), empty its data \
                      directory and add it again as a new member with a new id";

/// A file operation that failed.
#[derive(Debug)]
pub struct Failure {
    /// What was tried, as a verb: "write", "sync" …
    pub operation: &'static str,
    /// The file or directory concerned.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl Failure {
    /// To be used with `map_err`: the same operation on the same path may fail in several calls.
    pub(super) fn of(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
        let path = path.to_path_buf();
        move |source| Failure { operation, path, source }
    }

    /// Whether the disk, or the quota on it, is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether a write, and not a sync, found the disk full: it may be made again.
    pub(super) fn is_write_without_room(&self) -> bool {
        self.operation == "write" && self.is_disk_full()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot {} {}: {}", self.operation, self.path.display(), self.source)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Why a journal could not be opened. `Display` names the file, the offset where there is one, and the way out.
#[derive(Debug)]
pub enum OpenError {
    /// A setting makes no sense.
    Setting(String),
    /// Another process has the directory open.
    Locked {
        /// The lock file.
        file: PathBuf,
        /// The process that wrote itself into the lock file, if it got that far.
        pid: Option<u32>,
    },
    /// The directory holds no journal although one was expected.
    Absent {
        /// The directory.
        directory: PathBuf,
    },
    /// Synced bytes are not what was written.
    Damaged {
        /// The damaged segment.
        file: PathBuf,
        /// Where the first bad frame starts.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A segment that must exist does not.
    Missing {
        /// The segment that is not there.
        file: PathBuf,
        /// The segment that proves that it existed.
        needed_by: PathBuf,
    },
    /// The directory belongs to another node or cluster.
    Foreign {
        /// The segment that says so.
        file: PathBuf,
        /// The id in the file.
        found: [u8; 16],
        /// The id that was given to `open`.
        expected: [u8; 16],
    },
    /// An intact file of an older or newer format.
    Format {
        /// The segment.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The only version that this program reads.
        expected: u32,
    },
    /// The reader of the records refused one.
    Rejected {
        /// The segment.
        file: PathBuf,
        /// Where the record's frame starts.
        offset: u64,
        /// What the reader said.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No room to create or complete a segment.
    DiskFull(Failure),
    /// A file operation failed.
    Io(Failure),
}

impl OpenError {
    /// What the operator can do about it.
    pub fn way_out(&self) -> &'static str {
        match self {
            OpenError::Setting(_) => "correct the setting",
            OpenError::Locked { .. } => "stop that process first, or give this node its own data directory",
            OpenError::Absent { .. } => {
                "if the directory was moved, put it back or give the right path; if its content is lost, remove this node \
                 from the cluster (WARLOCK REMOVE) and add it again as a new member with a new id"
            }
            OpenError::Damaged { .. } => REJOIN,
            OpenError::Missing { .. } => {
                "if the file was moved away, stop everything else that uses this directory and put it back unchanged; \
                 otherwise remove this node from the cluster (WARLOCK REMOVE), empty its data directory and add it again as \
                 a new member with a new id"
            }
            OpenError::Foreign { .. } => {
                "give this node its own data directory; journals of different nodes or clusters cannot be mixed"
            }
            OpenError::Format { .. } => {
                "start the version of warlock that wrote it, or remove this node from the cluster (WARLOCK REMOVE), empty \
                 its data directory and add it again as a new member with a new id"
            }
            OpenError::Rejected { .. } => {
                "the record is intact but this program does not understand it: start the version of warlock that wrote it, \
                 or remove this node from the cluster (WARLOCK REMOVE), empty its data directory and add it again as a new \
                 member with a new id"
            }
            OpenError::DiskFull(_) => "make room on this file system and start again",
            OpenError::Io(_) => "check the disk, the permissions and the kernel log, then start again",
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Setting(message) => write!(formatter, "journal setting: {message}")?,
            OpenError::Locked { file, pid: Some(pid) } => {
                write!(formatter, "the journal is in use: process {pid} holds {}", file.display())?
            }
            OpenError::Locked { file, pid: None } => {
                write!(formatter, "the journal is in use: another process holds {}", file.display())?
            }
            OpenError::Absent { directory } => write!(formatter, "no journal in {}", directory.display())?,
            OpenError::Damaged { file, offset, reason } => {
                write!(formatter, "damaged journal: {} at offset {offset}: {reason}", file.display())?
            }
            OpenError::Missing { file, needed_by } => write!(
                formatter,
                "missing journal segment: {} does not exist but {} (offset 0) needs it",
                file.display(),
                needed_by.display()
            )?,
            OpenError::Foreign { file, found, expected } => write!(
                formatter,
                "foreign journal: {} at offset 16 has directory id {:032x}, this node has {:032x}",
                file.display(),
                u128::from_be_bytes(*found),
                u128::from_be_bytes(*expected)
            )?,
            OpenError::Format { file, found, expected } => write!(
                formatter,
                "journal of another format: {} at offset 8 has version {found}, this program reads version {expected}",
                file.display()
            )?,
            OpenError::Rejected { file, offset, reason } => {
                write!(formatter, "record not understood: {} at offset {offset}: {reason}", file.display())?
            }
            OpenError::DiskFull(failure) => write!(formatter, "disk full: {failure}")?,
            OpenError::Io(failure) => write!(formatter, "journal: {failure}")?,
        }
        write!(formatter, "; what to do: {}", self.way_out())
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Rejected { reason, .. } => Some(reason.as_ref()),
            OpenError::DiskFull(failure) | OpenError::Io(failure) => Some(failure),
            _ => None,
        }
    }
}

impl From<Failure> for OpenError {
    fn from(failure: Failure) -> OpenError {
        if failure.is_disk_full() { OpenError::DiskFull(failure) } else { OpenError::Io(failure) }
    }
}

/// Why the journal did not take a request at all. Nothing was queued and no number was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The batch, or one record of a checkpoint, does not fit into a segment.
    TooLarge {
        /// Its size with the frames.
        bytes: u64,
        /// What a segment can hold.
        bytes_max: u64,
    },
    /// Too much is waiting for the disk already; take completions first.
    QueueFull {
        /// What waits.
        bytes: u64,
        /// What may wait.
        bytes_max: u64,
    },
}

impl fmt::Display for SubmitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::TooLarge { bytes, bytes_max } => {
                write!(formatter, "{bytes} bytes do not fit into a journal segment ({bytes_max} bytes)")
            }
            SubmitError::QueueFull { bytes, bytes_max } => {
                write!(formatter, "{bytes} bytes wait for the disk already (limit {bytes_max})")
            }
        }
    }
}

impl std::error::Error for SubmitError {}

/// Why accepted requests did not become durable.
#[derive(Clone, Debug)]
pub enum AppendError {
    /// A write or sync failed: the journal is poisoned and the node must stop. Whether these batches are on the disk is
    /// unknown until the journal is opened again.
    Failed(Arc<Failure>),
    /// The journal's thread is gone, which is a bug; the node must stop.
    Stopped,
}

impl fmt::Display for AppendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Failed(failure) => {
                write!(
                    formatter,
                    "journal failed, this node must stop: {failure}; check the disk and the kernel log"
                )
            }
            AppendError::Stopped => formatter.write_str("the journal's thread is gone, this node must stop"),
        }
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AppendError::Failed(failure) => Some(failure.as_ref()),
            AppendError::Stopped => None,
        }
    }
}
