//! Rows on disk while the node runs: made durable from time to time, copied to and from peers.
//!
//! A node whose rows are on disk starts from its store, not from a snapshot file. It writes such a file only for who wants one, a peer or a backup, and removes it
//! when nobody asked for a piece of it for a while.

use super::{NodeError, Running};
use crate::codec::Letter;
use crate::disk::{Copied, Disk};
use crate::host::backend::MachineBackend;
use crate::host::clock;
use crate::node::journal_id;
use crate::snapshots::Snapshots;
use consensus::{Message, RoleId};
use std::time::Duration;
use storage::store::disk::DiskStore;
use tracing::{debug, error, info};

/// A peer that got a piece of a snapshot so long ago may still be copying, or writing what it has.
const COPYING: Duration = Duration::from_secs(120);
/// A snapshot that nobody wanted for so long is removed.
const UNUSED: Duration = Duration::from_secs(600);

impl Running {
    /// Does what is due for the store. True: another turn is due at once.
    pub(super) fn put_rows_away(&self, disk: &Disk, snapshots: &mut Snapshots) -> Result<bool, NodeError> {
        let mut has_more = false;
        if let Some((slot, copied)) = disk.copied() {
            self.end_copy(disk, slot, copied)?;
            self.state_exchanged();
            has_more = true;
        }
        let core = &mut *self.core.borrow_mut();
        if let Some(slot) = core.backend.forgettable() {
            debug!(slot, "the rows are durable; the journal forgets what is before");
            core.snapshot_taken(slot)?;
            if !snapshots.is_writing() && !snapshots.is_used_within(UNUSED) {
                snapshots.remove_all();
            }
            has_more = true;
        }
        let is_copying = snapshots.is_writing() || snapshots.is_used_within(COPYING);
        if !core.is_checkpointing() && core.backend.is_checkpoint_due(core.journal_bytes(), is_copying) {
            core.backend.checkpoint(&core.ledger, core.node.replica().view());
        }
        // Told at the beginning of the next turn.
        Ok(has_more || core.backend.failure.is_some())
    }

    /// Makes everything so far durable, so that the journal can forget it: for who asks for it.
    pub(super) fn save(&self) {
        if self.disk.is_none() {
            return self.write_snapshot();
        }
        // The next turn begins it, or a later one.
        self.core.borrow_mut().backend.want_checkpoint();
        self.wake.notify_one();
    }

    /// Whether there is a snapshot file behind which the log goes on. If not, one is begun.
    pub(super) fn has_fresh_snapshot(&self, disk: &Disk, snapshots: &mut Snapshots) -> bool {
        let floor = self.core.borrow().node.replica().snapshot();
        let is_fresh = snapshots.newest_finished().is_some_and(|(slot, _)| slot >= floor);
        if !is_fresh
            && snapshots.may_try()
            && let Err(why) = self.write_file(disk, snapshots)
        {
            snapshots.put_off(&why);
        }
        is_fresh
    }

    /// Begins to write a snapshot file beside the rows, unless one is under way or could not be written just now.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(super) fn write_file(&self, disk: &Disk, snapshots: &mut Snapshots) -> Result<(), String> {
        let core = self.core.borrow();
        if snapshots.is_writing() {
            return Ok(());
        }
        let bytes = core.backend.machine.store().disk().map_or(0, DiskStore::estimated_bytes);
        if let Err(why) = disk.spare.check(bytes) {
            if snapshots.is_used_within(UNUSED) {
                return Err(why);
            }
            snapshots.remove_all();
            disk.spare.check(bytes)?;
        }
        if snapshots.may_try() {
            let view = core.node.replica().view();
            snapshots.take(&core.ledger, view, &core.backend.machine, Some(&disk.spare));
        }
        Ok(())
    }

    /// Loses pieces of a peer's snapshot that have no room, as a network would: they are asked for again.
    pub(super) fn lose_what_has_no_room(&self, letters: &mut Vec<Letter>) {
        let Some(disk) = &self.disk else { return };
        letters.retain(|letter| {
            let Message::SnapshotChunk { offset, total, .. } = letter.message else { return true };
            // The file, and then the rows in it. One that is begun anew takes the place of what there is.
            let here = if offset == 0 { self.snapshots.borrow().incoming_bytes() } else { offset };
            let missing = total.saturating_mul(2).saturating_sub(here);
            let has_room = disk.spare.check(missing);
            if let Err(why) = &has_room {
                disk.tell(why);
            }
            has_room.is_ok()
        });
    }

    /// All pieces of a peer's snapshot are here.
    pub(super) fn begin_copy(&self, disk: &Disk, slot: u64, snapshots: &mut Snapshots) {
        match snapshots.fetched(slot) {
            Ok(fetched) => {
                info!(slot, "a snapshot was fetched; its rows are written");
                disk.copy(slot, fetched);
            }
            Err(error) => self.copy_failed(slot, &error),
        }
    }

    fn copy_failed(&self, slot: u64, error: &str) {
        error!(slot, error, "a fetched snapshot cannot be used; it is fetched again");
        self.core.borrow_mut().post(RoleId::Replica, Message::InstallFailed { slot });
    }

    fn end_copy(&self, disk: &Disk, slot: u64, copied: Result<Copied, String>) -> Result<(), NodeError> {
        let copied = match copied {
            Ok(copied) => copied,
            Err(error) => {
                self.copy_failed(slot, &error);
                return Ok(());
            }
        };
        let core = &mut *self.core.borrow_mut();
        let (stamp_ms, view) = (copied.ledger.cluster_ms(), copied.view.clone());
        // The log may have brought this node further in the meantime.
        if slot > core.ledger.applied() {
            let loaded = disk.adopt(core.backend.machine.store(), copied).map_err(NodeError::Failed)?;
            info!(slot, "snapshot installed");
            let backend = MachineBackend::keeping(loaded.machine, journal_id(&self.identity));
            let old = core.installed(slot, loaded.ledger, backend, clock::now())?;
            // It waits for the engine, and removes gigabytes. Without a thread that happens here.
            drop(std::thread::Builder::new().name("remove".into()).spawn(move || drop(old)));
        }
        let executed_below = core.ledger.executed_below(core.node.origin());
        core.post(RoleId::Replica, Message::Installed { slot, stamp_ms, executed_below, view: Some(view) });
        Ok(())
    }
}
