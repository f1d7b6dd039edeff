//! Rows on disk, as the host sees them: opened at a start, filled from a snapshot of this node or of a peer.

use crate::host::boundaries::{from_store, to_store};
use crate::host::faults;
use crate::identity::NodeIdentity;
use crate::node::{first_ledger, journal_id};
use crate::snapshots::{Attachment, Fetched, Loaded, Snapshots, attachment_of};
use consensus::{Ledger, ViewState};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use storage::machine::Machine;
use storage::row::{RowKey, RowValue};
use storage::snapshot::{SnapshotError, SnapshotReader};
use storage::store::disk::{DiskStore, Prepared, Workshop};
use storage::store::{AnyStore, StoreError};
use tracing::{info, warn};

/// How much is written before the room is looked at again.
const LOOK_EVERY_BYTES: usize = 4 << 20;

/// What must wait is told so often.
const TELL_EVERY: Duration = Duration::from_secs(10);

type Row = (RowKey, RowValue);

/// Where the rows are in a node's directory.
#[must_use]
pub fn directory(dir: &Path) -> PathBuf {
    dir.join("store")
}

/// Whether a node's directory has its rows in a store on disk.
#[must_use]
pub fn is_used(dir: &Path) -> bool {
    directory(dir).join("current").exists()
}

/// The room on a node's disk above what is to stay free.
#[derive(Clone, Debug)]
pub struct Spare {
    dir: PathBuf,
    reserve: u64,
}

impl Spare {
    /// That of the disk with `dir`, of which `reserve` bytes stay free.
    #[must_use]
    pub fn new(dir: &Path, reserve: u64) -> Spare {
        Spare { dir: dir.to_path_buf(), reserve }
    }

    /// Whether `bytes` have room. A system that cannot tell does not stand in the way.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(&self, bytes: u64) -> Result<(), String> {
        let Ok(disk) = rustix::fs::statvfs(&self.dir) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free >= bytes.saturating_add(self.reserve) {
            return Ok(());
        }
        Err(format!(
            "no room on the disk of {}: {bytes} bytes are needed above disk-reserve ({} bytes), and {free} are free; make room",
            self.dir.display(),
            self.reserve
        ))
    }
}

/// A peer's snapshot, written beside this node's rows.
pub struct Copied {
    /// The slot that it covers.
    pub slot: u64,
    /// What has been applied.
    pub ledger: Ledger,
    /// The configuration when it was taken.
    pub view: ViewState,
    rows: Prepared,
}

/// What is under way beside the running store.
pub struct Disk {
    workshop: Workshop,
    id: [u8; 16],
    /// A full disk ends the engine's threads, so what needs much room asks before.
    pub spare: Spare,
    told_at: Cell<Option<Instant>>,
    done: Sender<(u64, Result<Copied, String>)>,
    finished: Receiver<(u64, Result<Copied, String>)>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Disk {
    /// The store of the node `identity` in `dir`, on whose disk `reserve` bytes stay free. `wake` is called when something is done.
    #[must_use]
    pub fn new(
        (dir, reserve): (&Path, u64),
        cache_bytes: u64,
        identity: &NodeIdentity,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Disk {
        let (done, finished) = channel();
        let workshop =
            Workshop::new(&directory(dir), cache_bytes, wake.clone()).delayed_by(faults::engine_delay);
        let (spare, told_at) = (Spare::new(dir, reserve), Cell::new(None));
        Disk { workshop, id: journal_id(identity), spare, told_at, done, finished, wake }
    }

    /// Opens the rows. When there are none yet, they are those of the newest snapshot, if there is one.
    ///
    /// # Errors
    /// When they cannot be read, or are another node's.
    pub fn open(&self, identity: &NodeIdentity, snapshots: &Snapshots) -> Result<Loaded, String> {
        let text = |error: StoreError| error.to_string();
        if let Some((store, stored)) = self.workshop.open().map_err(text)? {
            let stored = stored.ok_or("the store does not say at which slot it stands")?;
            if store.cut_bytes() > 0 {
                warn!(
                    bytes = store.cut_bytes(),
                    slot = stored.slot,
                    "the last rows were written only in part, as after a loss of power; they are taken from the journal again"
                );
            }
            info!(slot = stored.slot, "the rows on disk are opened");
            return loaded(store, from_store(self.id, &stored)?);
        }
        let from_snapshot = |reader: SnapshotReader| -> Result<_, storage::snapshot::SnapshotError> {
            let attachment = attachment_of(&reader)?;
            info!(slot = reader.slot(), "the store is filled from a snapshot");
            let stored = to_store(self.id, &attachment.ledger, &attachment.view);
            Ok((self.workshop.prepare(reader, Some(&stored))?, attachment))
        };
        let (rows, attachment) =
            match snapshots.newest_with(from_snapshot).map_err(|error| error.to_string())? {
                Some(found) => found,
                None => {
                    let attachment =
                        Attachment { ledger: first_ledger(identity), view: identity.view.clone() };
                    let stored = to_store(self.id, &attachment.ledger, &attachment.view);
                    let nothing = std::iter::empty::<Result<_, StoreError>>();
                    (self.workshop.prepare(nothing, Some(&stored)).map_err(text)?, attachment)
                }
            };
        loaded(self.workshop.found(rows).map_err(text)?, attachment)
    }

    /// Writes a fetched snapshot beside the rows, on a thread of its own: it may be large, and peers wait for what this node says.
    pub fn copy(&self, slot: u64, fetched: Fetched) {
        let (workshop, id, spare) = (self.workshop.clone(), self.id, self.spare.clone());
        let (done, wake) = (self.done.clone(), self.wake.clone());
        let copy = move || {
            let copied = (|| {
                let reader = fetched.open().map_err(|error| error.to_string())?;
                let found = reader.slot();
                let Attachment { ledger, view } =
                    attachment_of(&reader).map_err(|error| error.to_string())?;
                if found != slot || ledger.applied() != slot {
                    return Err(format!("it is of slot {found}, not of slot {slot}"));
                }
                let stored = to_store(id, &ledger, &view);
                let rows = while_there_is_room(reader, spare);
                let rows = workshop.prepare(rows, Some(&stored)).map_err(|error| error.to_string())?;
                fetched.remove();
                Ok(Copied { slot, ledger, view, rows })
            })();
            // Nobody to tell means that the node is stopping.
            let _ = done.send((slot, copied));
            wake();
        };
        if let Err(error) = std::thread::Builder::new().name("copy".into()).spawn(copy) {
            let _ = self.done.send((slot, Err(format!("cannot start a thread: {error}"))));
            (self.wake)();
        }
    }

    /// Says why something must wait, from time to time.
    pub fn tell(&self, why: &str) {
        if self.told_at.get().is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            self.told_at.set(Some(Instant::now()));
            warn!(why, "a copy of the rows must wait");
        }
    }

    /// A copy that was finished since the last call.
    pub fn copied(&self) -> Option<(u64, Result<Copied, String>)> {
        self.finished.try_recv().ok()
    }

    /// Makes copied rows those of the node.
    ///
    /// # Errors
    /// When the disk says no; the rows are the old ones then.
    pub fn adopt(&self, old: &AnyStore, copied: Copied) -> Result<Loaded, String> {
        let Copied { ledger, view, rows, .. } = copied;
        let old = old.disk().ok_or("the rows are not on disk")?;
        let store = self.workshop.adopt(old, rows).map_err(|error| error.to_string())?;
        loaded(store, Attachment { ledger, view })
    }
}

/// Rows, as long as there is room for more of them.
fn while_there_is_room(
    rows: impl Iterator<Item = Result<Row, SnapshotError>>,
    spare: Spare,
) -> impl Iterator<Item = Result<Row, SnapshotError>> {
    let mut unchecked = 0;
    rows.map(move |row| {
        let (key, value) = row?;
        unchecked += key.borrow().byte_count() + value.len();
        if unchecked >= LOOK_EVERY_BYTES {
            unchecked = 0;
            spare.check(0).map_err(StoreError::new)?;
        }
        Ok((key, value))
    })
}

fn loaded(store: DiskStore, attachment: Attachment) -> Result<Loaded, String> {
    let machine = Machine::open(AnyStore::Disk(Box::new(store))).map_err(|error| error.to_string())?;
    let Attachment { ledger, view } = attachment;
    let slot = ledger.applied();
    if machine.applied() == slot {
        Ok(Loaded { slot, ledger, view, machine })
    } else {
        Err(format!("the rows stand at slot {}, the ledger at slot {slot}", machine.applied()))
    }
}
