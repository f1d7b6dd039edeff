//! Our own machine as the back end of the engine.

use super::core::Backend;
use bytes::Bytes;
use consensus::CommandId;
use storage::machine::{Caller, Event, Machine, Stamp};
use storage::reply::waiting_until;
use storage::store::{MemoryStore, StoreError};

/// The machine, and whether its store has failed.
pub struct MachineBackend {
    /// The machine.
    pub machine: Machine<MemoryStore>,
    /// The store's failure, after which the node must stop.
    pub failure: Option<StoreError>,
}

/// A command's id, as the machine knows it.
#[must_use]
pub fn caller(id: CommandId) -> Caller {
    Caller { node: id.origin.node.0, incarnation: id.origin.incarnation, seq: id.seq }
}

impl consensus::Machine for MachineBackend {
    fn apply(&mut self, stamp: &consensus::Stamp, id: CommandId, payload: &Bytes) -> Bytes {
        let stamp = Stamp { slot: stamp.slot, index: stamp.index, at_ms: stamp.at_ms };
        self.machine.apply_for(&stamp, caller(id), payload).to_bytes()
    }
}

impl Backend for MachineBackend {
    fn finish_slot(&mut self, slot: u64) {
        if let Err(error) = self.machine.finish_slot(slot) {
            self.failure = Some(error);
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
