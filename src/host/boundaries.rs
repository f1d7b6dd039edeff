//! The affairs of rows that are on disk: when they are put away, and what the journal may forget then.
//!
//! A boundary that is durable in the store makes the journal below it superfluous for this node; but the values below it are also what a peer that was away for a
//! moment gets instead of a copy of everything. So the journal is cut at the boundary before the newest one.

use crate::codec;
use crate::snapshots::Attachment;
use bytes::Bytes;
use consensus::{Ledger, ViewState};
use storage::store::StoreError;
use storage::store::disk::{Attachment as StoreAttachment, DiskStore};

/// Bytes of the journal between two boundaries.
const EVERY_BYTES: u64 = 16 << 20;
/// The same, while a peer copies this node's rows: it wants to go on behind them when it has them.
const EVERY_BYTES_COPYING: u64 = 256 << 20;

/// See the module's description.
#[derive(Debug, Default)]
pub struct Boundaries {
    /// Whose rows they are: those of another node are not taken for this one's.
    id: Option<[u8; 16]>,
    /// A boundary is on its way to the disk.
    is_under_way: bool,
    /// And the journal is to be cut there at once.
    is_exact: bool,
    /// Somebody asked for one where the journal is cut at once, and it has not begun.
    is_wanted: bool,
    /// The newest durable one.
    newest: Option<u64>,
}

impl Boundaries {
    /// Those of the node with this id.
    #[must_use]
    pub fn new(id: [u8; 16]) -> Boundaries {
        Boundaries { id: Some(id), ..Boundaries::default() }
    }

    /// Whether rows are put away at all: who only looks at a node's rows leaves them as they are.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.id.is_some()
    }

    /// Somebody wants the journal to be cut at once. There is never more than one boundary on its way: however often it is asked for, what waits for the engine is bounded.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whether the journal has grown so much that the rows should be put away, or somebody wants it.
    #[must_use]
    pub fn is_due(&self, journal_bytes: u64, is_copying: bool) -> bool {
        let every = if is_copying { EVERY_BYTES_COPYING } else { EVERY_BYTES };
        let kept = if self.newest.is_some() { EVERY_BYTES } else { 0 };
        !self.is_under_way && (self.is_wanted || journal_bytes > every + kept)
    }

    /// Seals the store's layer here. With `is_synced` the boundary becomes durable, and the journal is cut right there if somebody wants it.
    ///
    /// # Errors
    /// When the store has failed.
    pub fn seal(
        &mut self,
        store: &mut DiskStore,
        (ledger, view): (&Ledger, &ViewState),
        is_synced: bool,
    ) -> Result<(), StoreError> {
        let Some(id) = self.id else { return Ok(()) };
        if is_synced {
            self.is_under_way = true;
            self.is_exact = std::mem::take(&mut self.is_wanted);
        }
        store.seal(to_store(id, ledger, view), is_synced)
    }

    /// The slot through which the journal may forget, if that has changed.
    ///
    /// # Errors
    /// When the store has failed.
    pub fn forgettable(&mut self, store: &mut DiskStore) -> Result<Option<u64>, StoreError> {
        let Some(slot) = store.take_durable()? else { return Ok(None) };
        self.is_under_way = false;
        let before = self.newest.replace(slot);
        Ok(if std::mem::take(&mut self.is_exact) { Some(slot) } else { before })
    }
}

/// What consensus knows, as the store of the node `id` keeps it.
#[must_use]
pub fn to_store(id: [u8; 16], ledger: &Ledger, view: &ViewState) -> StoreAttachment {
    let rest = codec::to_bytes(&Attachment { ledger: ledger.clone(), view: view.clone() });
    StoreAttachment { slot: ledger.applied(), bytes: Bytes::from([&id[..], &rest].concat()) }
}

/// What consensus knew where the store of the node `id` stands.
///
/// # Errors
/// When it is another node's, or cannot be read.
pub fn from_store(id: [u8; 16], stored: &StoreAttachment) -> Result<Attachment, String> {
    let Some(rest) = stored.bytes.strip_prefix(&id[..]) else {
        return Err("its rows belong to another node; give the directory that belongs to this one".into());
    };
    let attachment: Attachment = codec::from_bytes(rest)
        .map_err(|error| format!("what consensus put into it cannot be read: {error}"))?;
    if attachment.ledger.applied() == stored.slot {
        Ok(attachment)
    } else {
        Err(format!(
            "its ledger is of slot {}, its rows of slot {}",
            attachment.ledger.applied(),
            stored.slot
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn another_nodes_rows_are_not_taken() {
        let stored = to_store([7; 16], &Ledger::default(), &ViewState::unknown());
        assert_eq!(from_store([7; 16], &stored).unwrap().ledger, Ledger::default());
        assert!(from_store([8; 16], &stored).is_err_and(|error| error.contains("another node")));
        let moved = StoreAttachment { slot: 5, ..stored };
        assert!(from_store([7; 16], &moved).is_err_and(|error| error.contains("slot 5")));
    }

    #[test]
    fn the_journal_is_cut_one_boundary_behind() {
        let mut boundaries = Boundaries::new([1; 16]);
        assert!(!boundaries.is_due(EVERY_BYTES, false));
        assert!(boundaries.is_due(EVERY_BYTES + 1, false));
        assert!(!boundaries.is_due(EVERY_BYTES + 1, true));
        boundaries.newest = Some(1);
        assert!(!boundaries.is_due(2 * EVERY_BYTES, false));
        assert!(boundaries.is_due(2 * EVERY_BYTES + 1, false));
        boundaries.want();
        assert!(boundaries.is_due(0, true), "somebody wants it");
        boundaries.is_under_way = true;
        assert!(!boundaries.is_due(u64::MAX, false), "not before the one on its way has arrived");
    }
}
