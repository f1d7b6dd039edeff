//! Our own machine as the back end of the engine, and the sums of its rows where a mark asked for them.

use super::core::Backend;
use bytes::Bytes;
use consensus::CommandId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use storage::machine::{Caller, Checksum, Event, Machine, Stamp};
use storage::reply::waiting_until;
use storage::store::{MemoryStore, StoreError};
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
    pub machine: Machine<MemoryStore>,
    /// The store's failure, after which the node must stop.
    pub failure: Option<StoreError>,
    mark: Bytes,
    /// The slot that is being applied has a mark.
    is_marked: bool,
    marks: Marks,
}

impl MachineBackend {
    /// A back end that has not failed.
    #[must_use]
    pub fn new(machine: Machine<MemoryStore>) -> MachineBackend {
        let mark = storage::commands::mark();
        MachineBackend { machine, failure: None, mark, is_marked: false, marks: Marks::default() }
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

impl consensus::Machine for MachineBackend {
    fn apply(&mut self, stamp: &consensus::Stamp, id: CommandId, payload: &Bytes) -> Bytes {
        let stamp = Stamp { slot: stamp.slot, index: stamp.index, at_ms: stamp.at_ms };
        self.is_marked |= *payload == self.mark;
        self.machine.apply_for(&stamp, caller(id), payload).to_bytes()
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

    fn take_events(&mut self) -> Vec<Event> {
        self.machine.take_events()
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
