//! BACKUP: a snapshot that holds everything acknowledged before it was asked for, handed out in pieces.
//!
//! The file is an ordinary snapshot: rows, their checksum, and what consensus needs. The cluster goes on meanwhile.

use super::Running;
use super::report::{number, text};
use consensus::Message;
use std::time::Duration;
use storage::reply::Reply;

/// How long a snapshot may take.
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What one request for a piece brings.
const PIECE_BYTES: usize = 1 << 20;

impl Running {
    pub(super) async fn begin_backup(&self) -> Result<Reply, String> {
        // What was acknowledged anywhere before this mark is applied here when it is answered.
        let mark = self.mark().await?;
        let wait = async {
            loop {
                let taken = self.snapshot_taken.notified();
                let newest = self.snapshots.borrow().newest_finished();
                if let Some(found) = newest.filter(|(slot, _)| *slot >= mark) {
                    return Ok::<_, String>(found);
                }
                match &self.disk {
                    None => self.write_snapshot(),
                    Some(disk) => self
                        .write_file(disk, &mut self.snapshots.borrow_mut())
                        .map_err(|why| format!("ERR nothing was done: {why}"))?,
                }
                // One that failed is not told.
                let _ = tokio::time::timeout(LOOK_AGAIN, taken).await;
            }
        };
        let Ok(found) = tokio::time::timeout(PATIENCE, wait).await else {
            return Err(format!(
                "ERR no snapshot could be written within {PATIENCE:?}; the node's log says why"
            ));
        };
        let (slot, bytes) = found?;
        Ok(Reply::Map(vec![(text("slot"), number(slot)), (text("bytes"), number(bytes))]))
    }

    pub(super) fn backup_piece(&self, slot: &str, offset: &str) -> Result<Reply, String> {
        let (Ok(slot), Ok(offset)) = (slot.parse(), offset.parse()) else {
            return Err("ERR slot and offset are numbers, as WARLOCK BACKUP said".into());
        };
        match self.snapshots.borrow().chunk(slot, offset, PIECE_BYTES) {
            Some(Message::SnapshotChunk { slot: found, data, .. }) if found == slot => Ok(Reply::Bulk(data)),
            _ => Err(format!(
                "ERR the snapshot of slot {slot} is not here any more; begin again with WARLOCK BACKUP"
            )),
        }
    }

    /// Writes a snapshot file of rows in memory.
    pub(super) fn write_snapshot(&self) {
        let core = self.core.borrow();
        let view = core.node.replica().view().clone();
        self.snapshots.borrow_mut().take(&core.ledger, &view, &core.backend.machine, None);
    }
}
