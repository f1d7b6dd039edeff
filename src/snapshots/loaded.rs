//! What a snapshot of a node holds beside the rows, and a snapshot read back into memory.
//!
//! The ledger, the configuration and the rows of a snapshot are of one slot: they are written together and only ever loaded together.

use crate::codec;
use consensus::{Ledger, ViewState};
use serde::{Deserialize, Serialize};
use std::path::Path;
use storage::machine::Machine;
use storage::snapshot::{self, SnapshotError, SnapshotReader};
use storage::store::AnyStore;

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

    pub(super) fn from_reader(reader: SnapshotReader) -> Result<Loaded, SnapshotError> {
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
