//! Snapshots on their way between nodes: cut into pieces for a peer, and put together from a peer's pieces.
//!
//! What comes is kept apart from the node's own snapshots until all of it is here, and becomes one of them only after it was checked as a whole.

#[cfg(test)]
mod tests;

use super::{KEEP, Loaded, Place, Snapshots};
use bytes::Bytes;
use consensus::Message;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use storage::snapshot::{self, SnapshotError, SnapshotReader};
use tracing::warn;

/// The pieces that have come.
pub(super) enum Incoming {
    File(fs::File),
    Bytes(Vec<u8>),
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

impl Snapshots {
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
        if let Place::Disk(directory) = &self.place
            && let Err(error) = snapshot::remove_old(directory, KEEP)
        {
            warn!(%error, "an old snapshot cannot be removed");
        }
        self.measure();
        Ok(loaded)
    }

    fn install_incoming(&mut self, slot: u64) -> Result<Loaded, String> {
        match (self.incoming.take().filter(|(known, _)| *known == slot), &self.place) {
            (Some((_, Incoming::File(file))), Place::Disk(directory)) => {
                let incoming = directory.join("incoming");
                file.sync_all().map_err(|error| error.to_string())?;
                let loaded = must_be_of(slot, self.load(&incoming))?;
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
                let loaded = must_be_of(slot, reader.and_then(Loaded::from_reader))?;
                self.remember(loaded.slot, bytes);
                Ok(loaded)
            }
            _ => Err("the snapshot's pieces are not here".into()),
        }
    }

    fn load(&self, path: &Path) -> Result<Loaded, SnapshotError> {
        Loaded::from_reader(SnapshotReader::open(path, self.id)?)
    }
}

/// Before it gets a name: under one it is what the node starts from.
fn must_be_of(slot: u64, loaded: Result<Loaded, SnapshotError>) -> Result<Loaded, String> {
    let loaded = loaded.map_err(|error| error.to_string())?;
    let (rows, ledger) = (loaded.slot, loaded.ledger.applied());
    if (rows, ledger) == (slot, slot) {
        Ok(loaded)
    } else {
        Err(format!("it came as of slot {slot}; its rows are of slot {rows}, its ledger is of slot {ledger}"))
    }
}
