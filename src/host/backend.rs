//! Our own machine as the back end of the engine, and the sums of its rows where a mark asked for them.

use super::boundaries::Boundaries;
use super::core::Backend;
use super::riders::Peek;
use bytes::Bytes;
use consensus::{CommandId, Ledger, ViewState};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use storage::machine::{Caller, Checksum, Event, Machine, Stamp};
use storage::reply::{Reply, ReplyRoom, waiting_until};
use storage::store::disk::DiskStore;
use storage::store::{AnyStore, StoreError};
use tracing::warn;

/// Sums that are remembered.
const MARKS_MAX: usize = 16;

/// The sums of the rows at the last slots that had a mark. Shared with the threads that sum.
#[derive(Clone, Debug, Default)]
pub struct Marks(Arc<Mutex<BTreeMap<u64, Checksum>>>);

impl Marks {
    /// The sum at that slot, if it is known.
    #[must_use]
    pub fn get(&self, slot: u64) -> Option<Checksum> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&slot).copied()
    }

    fn put(&self, slot: u64, checksum: Checksum) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.insert(slot, checksum);
        while marks.len() > MARKS_MAX {
            marks.pop_first();
        }
    }
}

/// The machine, and whether its store has failed.
pub struct MachineBackend {
    /// The machine.
    pub machine: Machine<AnyStore>,
    /// The store's failure, after which the node must stop.
    pub failure: Option<StoreError>,
    replies: ReplyRoom,
    mark: Bytes,
    /// The slot that is being applied has a mark.
    is_marked: bool,
    marks: Marks,
    boundaries: Boundaries,
}

impl MachineBackend {
    /// A back end that has not failed.
    #[must_use]
    pub fn new(machine: Machine<AnyStore>) -> MachineBackend {
        let mark = storage::commands::mark();
        let (marks, boundaries) = (Marks::default(), Boundaries::default());
        MachineBackend {
            machine,
            failure: None,
            replies: ReplyRoom::default(),
            mark,
            is_marked: false,
            marks,
            boundaries,
        }
    }

    /// A back end whose rows are put away for the node `id`, if they are on disk. Without it they never are.
    #[must_use]
    pub fn keeping(machine: Machine<AnyStore>, id: [u8; 16]) -> MachineBackend {
        MachineBackend { boundaries: Boundaries::new(id), ..MachineBackend::new(machine) }
    }

    /// Whether the rows are on disk.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        self.machine.store().disk().is_some()
    }

    /// Whether rows on disk should be made durable, so that the journal can forget.
    #[must_use]
    pub fn is_checkpoint_due(&self, journal_bytes: u64, is_copying: bool) -> bool {
        self.boundaries.is_due(journal_bytes, is_copying)
    }

    /// Somebody wants the journal to be cut: the next checkpoint is due as soon as none is on its way, and the journal is cut at its very slot.
    pub fn want_checkpoint(&mut self) {
        self.boundaries.want();
    }

    /// Begins to make the rows on disk durable.
    pub fn checkpoint(&mut self, ledger: &Ledger, view: &ViewState) {
        self.seal(ledger, view, true);
    }

    /// The slot through which the journal may forget, because rows on disk have become durable.
    pub fn forgettable(&mut self) -> Option<u64> {
        let store = self.machine.store_mut().disk_mut()?;
        self.boundaries.forgettable(store).unwrap_or_else(|error| {
            self.failure = Some(error);
            None
        })
    }

    fn seal(&mut self, ledger: &Ledger, view: &ViewState, is_synced: bool) {
        let Some(store) = self.machine.store_mut().disk_mut() else { return };
        if self.failure.is_none()
            && let Err(error) = self.boundaries.seal(store, (ledger, view), is_synced)
        {
            self.failure = Some(error);
        }
    }

    /// The sums at the last marks.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.marks.clone()
    }

    /// Sums the rows of this slot on a thread of its own: it may take longer than a lease.
    fn sum(&self, slot: u64) {
        let (rows, marks) = (self.machine.snapshot(), self.marks.clone());
        let sum = move || match rows.checksum() {
            Ok(checksum) => marks.put(slot, checksum),
            Err(error) => warn!(slot, %error, "the rows cannot be summed"),
        };
        if let Err(error) = std::thread::Builder::new().name("checksum".into()).spawn(sum) {
            warn!(slot, %error, "cannot start a thread to sum the rows");
        }
    }
}

/// A command's id, as the machine knows it.
#[must_use]
pub fn caller(id: CommandId) -> Caller {
    Caller { node: id.origin.node.0, incarnation: id.origin.incarnation, seq: id.seq }
}

fn machine_stamp(stamp: &consensus::Stamp) -> Stamp {
    Stamp { slot: stamp.slot, index: stamp.index, at_ms: stamp.at_ms }
}

impl consensus::Machine for MachineBackend {
    fn apply(&mut self, stamp: &consensus::Stamp, id: CommandId, payload: &Bytes) -> Bytes {
        self.is_marked |= *payload == self.mark;
        self.machine.apply_for(&machine_stamp(stamp), caller(id), payload).to_bytes_in(&mut self.replies)
    }
}

impl Peek for MachineBackend {
    fn peek(&mut self, stamp: &consensus::Stamp, payload: &Bytes) -> Reply {
        self.machine.peek(&machine_stamp(stamp), payload)
    }
}

impl Backend for MachineBackend {
    fn finish_slot(&mut self, slot: u64) {
        if let Err(error) = self.machine.finish_slot(slot) {
            self.failure = Some(error);
        } else if std::mem::take(&mut self.is_marked) {
            self.sum(slot);
        }
    }

    fn boundary(&mut self, ledger: &Ledger, view: &ViewState) -> bool {
        let Some(store) = self.machine.store_mut().disk_mut().filter(|_| self.boundaries.is_kept()) else {
            return true;
        };
        let has_room = store.has_room().unwrap_or_else(|error| {
            self.failure = Some(error);
            false
        });
        if has_room && self.machine.store().disk().is_some_and(DiskStore::is_seal_due) {
            self.seal(ledger, view, false);
        }
        // Nothing more is applied to a store that has failed.
        has_room && self.failure.is_none()
    }

    fn take_events(&mut self, said: &mut Vec<Event>) {
        self.machine.take_events_into(said);
    }

    fn waiting_until(reply: &[u8]) -> Option<Option<u64>> {
        waiting_until(reply)
    }

    fn is_waiting(&mut self, id: CommandId) -> bool {
        self.machine.is_waiting(caller(id)).unwrap_or_else(|error| {
            self.failure = Some(error);
            true
        })
    }
}
