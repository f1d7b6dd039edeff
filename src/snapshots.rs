//! A node's snapshots: where they lie, and how they are taken beside the running machine.
//!
//! At most one is being written at a time, on a thread of its own, and the newest ones stay: a peer may be copying the one before. `due` says when it is time
//! for one, `pieces` takes them from node to node, `loaded` has what is in them.

mod due;
mod loaded;
mod pieces;

pub use loaded::{Attachment, Loaded, attachment_of};
pub use pieces::Fetched;

use crate::codec;
use crate::disk::Spare;
use bytes::Bytes;
use consensus::{Ledger, ViewState};
use pieces::Incoming;
use std::cell::Cell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use storage::machine::Machine;
use storage::snapshot::{self, SnapshotError, SnapshotReader};
use storage::store::AnyStore;
use tracing::{info, warn};

const KEEP: usize = 2;
/// How far the thread that writes a snapshot steps back behind the node's own.
const SNAPSHOT_NICENESS: i32 = 10;

/// Where they are.
enum Place {
    Disk(PathBuf),
    /// By slot, the newest first.
    Memory(Vec<(u64, Bytes)>),
}

/// A snapshot's slot and, if it is kept in memory, its bytes.
type Written = (u64, Option<Bytes>);

/// A node's snapshots.
pub struct Snapshots {
    place: Place,
    id: [u8; 16],
    is_writing: bool,
    /// After a failure: not before this.
    retry_at: Option<Instant>,
    done: Sender<Result<Written, String>>,
    finished: Receiver<Result<Written, String>>,
    /// The snapshot being put together: its slot, and what has come.
    incoming: Option<(u64, Incoming)>,
    /// When somebody last wanted a piece.
    asked_at: Cell<Option<Instant>>,
    /// The same, or when there was last a new one to ask for.
    used_at: Cell<Option<Instant>>,
    /// How large the last one was, as far as that is known.
    newest_bytes: u64,
    /// When one was last finished.
    finished_at: Option<Instant>,
    /// Bytes of pieces that were kept so far.
    kept_bytes: u64,
    /// Called when a snapshot is written.
    wake: std::sync::Arc<dyn Fn() + Send + Sync>,
}

impl Snapshots {
    /// The snapshots in `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(
        directory: PathBuf,
        id: [u8; 16],
        wake: std::sync::Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Snapshots> {
        fs::create_dir_all(&directory)?;
        let mut snapshots = Self::at(Place::Disk(directory), id, wake);
        snapshots.measure();
        Ok(snapshots)
    }

    /// How much room the disk has that they lie on.
    #[must_use]
    pub fn disk_free(&self) -> Option<u64> {
        let Place::Disk(directory) = &self.place else { return None };
        let disk = rustix::fs::statvfs(directory).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Whether nothing of this is written to a disk.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        !matches!(self.place, Place::Disk(_))
    }

    /// Snapshots that are kept in memory.
    #[must_use]
    pub fn in_memory(id: [u8; 16], wake: std::sync::Arc<dyn Fn() + Send + Sync>) -> Snapshots {
        Self::at(Place::Memory(Vec::new()), id, wake)
    }

    fn at(place: Place, id: [u8; 16], wake: std::sync::Arc<dyn Fn() + Send + Sync>) -> Snapshots {
        let (done, finished) = channel();
        let (asked_at, used_at) = (Cell::new(None), Cell::new(None));
        Snapshots {
            place,
            id,
            is_writing: false,
            retry_at: None,
            done,
            finished,
            incoming: None,
            asked_at,
            used_at,
            newest_bytes: 0,
            finished_at: None,
            kept_bytes: 0,
            wake,
        }
    }

    /// The newest snapshot that is whole; damaged ones are passed over with a warning.
    ///
    /// # Errors
    /// When the directory cannot be read, or holds another cluster's snapshots.
    pub fn newest(&self) -> Result<Option<Loaded>, SnapshotError> {
        self.newest_with(Loaded::from_reader)
    }

    /// The same, loaded by somebody else.
    ///
    /// # Errors
    /// As [`Snapshots::newest`].
    pub fn newest_with<T>(
        &self,
        load: impl Fn(SnapshotReader) -> Result<T, SnapshotError>,
    ) -> Result<Option<T>, SnapshotError> {
        let Place::Disk(directory) = &self.place else { return Ok(None) };
        for (slot, path) in snapshot::list(directory)? {
            match SnapshotReader::open(&path, self.id).and_then(&load) {
                Ok(loaded) => return Ok(Some(loaded)),
                Err(error) if error.is_damage() => warn!(slot, %error, "a damaged snapshot is passed over"),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Looks how large the newest one is.
    fn measure(&mut self) {
        self.newest_bytes = self.newest_finished().map_or(0, |(_, bytes)| bytes);
    }

    /// Begins to write one, on a thread of its own, as long as there is room above `spare`, if that is given.
    pub fn take(
        &mut self,
        ledger: &Ledger,
        view: &ViewState,
        machine: &Machine<AnyStore>,
        spare: Option<&Spare>,
    ) {
        if self.is_writing {
            return;
        }
        self.is_writing = true;
        let attachment = codec::to_bytes(&Attachment { ledger: ledger.clone(), view: view.clone() });
        let directory = match &self.place {
            Place::Disk(directory) => Some(directory.clone()),
            Place::Memory(_) => None,
        };
        let (handle, id, spare) = (machine.snapshot(), self.id, spare.cloned());
        let (done, wake) = (self.done.clone(), self.wake.clone());
        let write = move || {
            // On Linux the niceness is the thread's own: a snapshot takes what the node leaves over. If the system says no, it is only faster.
            let _ = rustix::process::nice(SNAPSHOT_NICENESS);
            let written = match directory {
                Some(directory) => {
                    let has_room = || {
                        let check = spare.as_ref().map_or(Ok(()), |spare| spare.check(0));
                        check.map_err(|why| io::Error::new(io::ErrorKind::StorageFull, why))
                    };
                    snapshot::write_while(&directory, id, &attachment, &handle, &has_room).and_then(
                        |written| snapshot::remove_old(&directory, KEEP).map(|()| (written.slot, None)),
                    )
                }
                None => snapshot::encode(id, &attachment, &handle)
                    .map(|bytes| (handle.applied(), Some(Bytes::from(bytes)))),
            };
            // Nobody to tell means that the node is stopping.
            let _ = done.send(written.map_err(|error| error.to_string()));
            wake();
        };
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(write) {
            self.is_writing = false;
            self.put_off(&format!("cannot start a thread for it: {error}"));
        }
    }

    /// The slot of a snapshot that has become durable since the last call.
    pub fn finished(&mut self) -> Option<u64> {
        let outcome = self.finished.try_recv().ok()?;
        self.is_writing = false;
        match outcome {
            Ok((slot, bytes)) => {
                info!(slot, "snapshot taken");
                self.finished_at = Some(Instant::now());
                self.used_at.set(self.finished_at);
                if let Some(bytes) = bytes {
                    self.remember(slot, bytes);
                }
                self.measure();
                Some(slot)
            }
            Err(error) => {
                self.put_off(&error);
                None
            }
        }
    }

    fn remember(&mut self, slot: u64, bytes: Bytes) {
        if let Place::Memory(all) = &mut self.place {
            all.retain(|(known, _)| *known != slot);
            all.push((slot, bytes));
            all.sort_unstable_by_key(|(slot, _)| std::cmp::Reverse(*slot));
            all.truncate(KEEP);
        }
    }

    /// The newest finished snapshot: its slot and its size.
    #[must_use]
    pub fn newest_finished(&self) -> Option<(u64, u64)> {
        match &self.place {
            Place::Memory(all) => all.first().map(|(slot, bytes)| (*slot, bytes.len() as u64)),
            Place::Disk(directory) => {
                let (slot, path) = snapshot::list(directory).ok()?.into_iter().next()?;
                Some((slot, fs::metadata(path).ok()?.len()))
            }
        }
    }

    /// Whether somebody wanted a piece, or could have begun to, in the last `time`.
    #[must_use]
    pub fn is_used_within(&self, time: Duration) -> bool {
        self.used_at.get().is_some_and(|at| at.elapsed() < time)
    }

    /// Removes the files: for a node that does not need them to start. Not while one is being written.
    pub fn remove_all(&self) {
        let Place::Disk(directory) = &self.place else { return };
        for (slot, path) in snapshot::list(directory).unwrap_or_default() {
            match fs::remove_file(&path) {
                Ok(()) => info!(slot, "a snapshot that nobody wants any more is removed"),
                Err(error) => warn!(slot, %error, "an old snapshot cannot be removed"),
            }
        }
    }

    /// Whether one is being written.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.is_writing
    }
}
