//! A node's snapshots: taken beside the running machine, sent to peers in pieces, put together from pieces, loaded.

#[cfg(test)]
mod tests;

use crate::codec;
use crate::disk::Spare;
use bytes::Bytes;
use consensus::{Ledger, Message, ViewState};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use storage::machine::Machine;
use storage::snapshot::{self, SnapshotError, SnapshotReader};
use storage::store::AnyStore;
use tracing::{info, warn};

/// A snapshot is taken when the journal has so many times the bytes of the last one: what a node keeps in memory to help others, and replays at a start, is then in
/// proportion to its data.
const JOURNAL_PER_SNAPSHOT: u64 = 4;
/// But not below this, however little data there is,
const JOURNAL_BYTES_LEAST: u64 = 64 << 20;
/// not so soon after the last one, because a node that writes much would do little else,
const QUIET: Duration = Duration::from_secs(10);
/// and always above this.
const JOURNAL_BYTES_MOST: u64 = 256 << 20;
/// The same, while a peer copies an earlier one: it wants to go on behind that with the log when it has it, and the file must stay until then.
const JOURNAL_BYTES_COPYING: u64 = 512 << 20;
/// A peer that wanted a piece so lately is still copying.
const COPYING: Duration = Duration::from_secs(10);
const KEEP: usize = 2;
/// How far the thread that writes a snapshot steps back behind the node's own.
const SNAPSHOT_NICENESS: i32 = 10;
/// A disk that refused a snapshot is left alone for a while.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// What consensus keeps beside the rows.
#[derive(Serialize, Deserialize)]
pub struct Attachment {
    /// What has been applied.
    pub ledger: Ledger,
    /// The configuration at that time.
    pub view: ViewState,
}

/// What consensus put into a snapshot.
///
/// # Errors
/// When another version of it did.
pub fn attachment_of(reader: &SnapshotReader) -> Result<Attachment, SnapshotError> {
    codec::from_bytes(reader.attachment()).map_err(|error| SnapshotError::Foreign {
        path: reader.path().to_path_buf(),
        problem: format!("what consensus put into it cannot be read: {error}"),
    })
}

/// A snapshot that a peer sent, complete, as a file.
pub struct Fetched {
    path: PathBuf,
    id: [u8; 16],
}

impl Fetched {
    /// Checks its header.
    ///
    /// # Errors
    /// When it is damaged, or another cluster's.
    pub fn open(&self) -> Result<SnapshotReader, SnapshotError> {
        SnapshotReader::open(&self.path, self.id)
    }

    /// It is not needed any more.
    pub fn remove(&self) {
        // Otherwise the next one takes its place.
        let _ = fs::remove_file(&self.path);
    }
}

/// A loaded snapshot.
pub struct Loaded {
    /// The slot that it covers.
    pub slot: u64,
    /// What has been applied.
    pub ledger: Ledger,
    /// The configuration when it was taken.
    pub view: ViewState,
    /// The rows.
    pub machine: Machine<AnyStore>,
}

impl Loaded {
    /// Reads a snapshot of any node: a backup.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn read(path: &Path) -> Result<Loaded, SnapshotError> {
        Self::from_reader(SnapshotReader::open_any(path)?)
    }

    fn from_reader(reader: SnapshotReader) -> Result<Loaded, SnapshotError> {
        let slot = reader.slot();
        let attachment = attachment_of(&reader)?;
        let mut machine = Machine::in_memory();
        machine.install(reader)?;
        Ok(Loaded { slot, ledger: attachment.ledger, view: attachment.view, machine })
    }

    /// Writes it as the first snapshot of another node.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn write(&self, directory: &Path, id: [u8; 16]) -> Result<(), SnapshotError> {
        let attachment =
            codec::to_bytes(&Attachment { ledger: self.ledger.clone(), view: self.view.clone() });
        snapshot::write(directory, id, &attachment, &self.machine.snapshot()).map(|_| ())
    }
}

/// Where they are.
enum Place {
    Disk(PathBuf),
    /// By slot, the newest first.
    Memory(Vec<(u64, Bytes)>),
}

/// A snapshot's slot and, if it is kept in memory, its bytes.
type Written = (u64, Option<Bytes>);

enum Incoming {
    File(fs::File),
    Bytes(Vec<u8>),
}

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

    fn load(&self, path: &Path) -> Result<Loaded, SnapshotError> {
        Loaded::from_reader(SnapshotReader::open(path, self.id)?)
    }

    /// Whether one should be taken now.
    #[must_use]
    pub fn is_due(&self, journal_bytes: u64) -> bool {
        journal_bytes > JOURNAL_BYTES_LEAST && self.is_due_at(journal_bytes, Instant::now())
    }

    fn is_due_at(&self, journal_bytes: u64, now: Instant) -> bool {
        if self.is_writing {
            return false;
        }
        let is_within = |time: Duration, at: Option<Instant>| at.is_some_and(|at| now < at + time);
        let proportional = self.newest_bytes.saturating_mul(JOURNAL_PER_SNAPSHOT);
        let most = if is_within(COPYING, self.asked_at.get()) {
            JOURNAL_BYTES_COPYING
        } else if is_within(QUIET, self.finished_at) {
            JOURNAL_BYTES_MOST
        } else {
            proportional.clamp(JOURNAL_BYTES_LEAST, JOURNAL_BYTES_MOST)
        };
        journal_bytes > most && self.may_try()
    }

    /// Looks how large the newest one is.
    fn measure(&mut self) {
        self.newest_bytes = self.newest_finished().map_or(0, |(_, bytes)| bytes);
    }

    /// Not so soon after a failure.
    #[must_use]
    pub fn may_try(&self) -> bool {
        self.retry_at.is_none_or(|at| at <= Instant::now())
    }

    /// One cannot be written now: it is not tried again for a while.
    pub fn put_off(&mut self, why: &str) {
        warn!(error = why, "a snapshot could not be written; it is tried again soon");
        self.retry_at = Some(Instant::now() + RETRY_AFTER);
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
            warn!(%error, "cannot start a thread for a snapshot");
            self.is_writing = false;
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

    /// A piece of the snapshot of `slot`, or of the newest one if that is gone; of `bytes` at most.
    #[must_use]
    pub fn chunk(&self, slot: u64, offset: u64, bytes: usize) -> Option<Message> {
        let slots: Vec<u64> = match &self.place {
            Place::Memory(all) => all.iter().map(|(slot, _)| *slot).collect(),
            Place::Disk(directory) => {
                snapshot::list(directory).ok()?.into_iter().map(|(slot, _)| slot).collect()
            }
        };
        self.asked_at.set(Some(Instant::now()));
        self.used_at.set(self.asked_at.get());
        let (slot, offset) = if slots.contains(&slot) { (slot, offset) } else { (*slots.first()?, 0) };
        let (total, data) = self.piece(slot, offset, bytes)?;
        Some(Message::SnapshotChunk { slot, offset, total, data })
    }

    fn piece(&self, slot: u64, offset: u64, bytes_max: usize) -> Option<(u64, Bytes)> {
        match &self.place {
            Place::Memory(all) => {
                let (_, bytes) = all.iter().find(|(known, _)| *known == slot)?;
                let from = usize::try_from(offset).ok().filter(|from| *from <= bytes.len())?;
                let to = bytes.len().min(from.saturating_add(bytes_max));
                Some((bytes.len() as u64, bytes.slice(from..to)))
            }
            Place::Disk(directory) => {
                let mut file = fs::File::open(snapshot::path_of(directory, slot)).ok()?;
                let total = file.metadata().ok()?.len();
                file.seek(SeekFrom::Start(offset)).ok()?;
                let mut data = Vec::new();
                file.take(bytes_max as u64).read_to_end(&mut data).ok()?;
                Some((total, Bytes::from(data)))
            }
        }
    }

    /// Keeps a piece that a peer sent.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn keep(&mut self, slot: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset == 0 {
            let incoming = match &self.place {
                Place::Disk(directory) => Incoming::File(fs::File::create(directory.join("incoming"))?),
                Place::Memory(_) => Incoming::Bytes(Vec::new()),
            };
            self.incoming = Some((slot, incoming));
        }
        self.kept_bytes += data.len() as u64;
        match &mut self.incoming {
            Some((known, Incoming::File(file))) if *known == slot => file.write_all(data),
            Some((known, Incoming::Bytes(bytes))) if *known == slot => {
                bytes.extend_from_slice(data);
                Ok(())
            }
            _ => Err(io::Error::other("a piece of a snapshot whose beginning is missing")),
        }
    }

    /// Bytes of peers' snapshots that came so far.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// How many bytes of pieces are on the disk, to be overwritten when another snapshot begins.
    #[must_use]
    pub fn incoming_bytes(&self) -> u64 {
        match &self.place {
            Place::Disk(directory) => fs::metadata(directory.join("incoming")).map_or(0, |file| file.len()),
            Place::Memory(_) => 0,
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

    /// All pieces are here: the file, durable, not checked yet.
    ///
    /// # Errors
    /// When the pieces are of another slot, or the disk says no.
    pub fn fetched(&mut self, slot: u64) -> Result<Fetched, String> {
        match (self.incoming.take().filter(|(known, _)| *known == slot), &self.place) {
            (Some((_, Incoming::File(file))), Place::Disk(directory)) => {
                file.sync_all().map_err(|error| error.to_string())?;
                Ok(Fetched { path: directory.join("incoming"), id: self.id })
            }
            _ => Err("the snapshot's pieces are not here".into()),
        }
    }

    /// All pieces are here: checks them, makes the file durable under its name, and loads it.
    ///
    /// # Errors
    /// When it is damaged or the disk says no.
    pub fn install(&mut self, slot: u64) -> Result<Loaded, String> {
        let loaded = self.install_incoming(slot)?;
        self.measure();
        Ok(loaded)
    }

    fn install_incoming(&mut self, slot: u64) -> Result<Loaded, String> {
        match (self.incoming.take().filter(|(known, _)| *known == slot), &self.place) {
            (Some((_, Incoming::File(file))), Place::Disk(directory)) => {
                let incoming = directory.join("incoming");
                file.sync_all().map_err(|error| error.to_string())?;
                let loaded = self.load(&incoming).map_err(|error| error.to_string())?;
                let path = snapshot::path_of(directory, loaded.slot);
                let rename = || -> io::Result<()> {
                    fs::rename(&incoming, &path)?;
                    fs::File::open(directory)?.sync_all()
                };
                rename().map_err(|error| error.to_string())?;
                Ok(loaded)
            }
            (Some((_, Incoming::Bytes(bytes))), Place::Memory(_)) => {
                let bytes = Bytes::from(bytes);
                let reader = SnapshotReader::of_bytes(bytes.clone(), self.id);
                let loaded = reader.and_then(Loaded::from_reader);
                let loaded = loaded.map_err(|error| error.to_string())?;
                self.remember(loaded.slot, bytes);
                Ok(loaded)
            }
            _ => Err("the snapshot's pieces are not here".into()),
        }
    }
}
