//! Our own machine as the back end of the engine.

use super::core::Backend;
use bytes::Bytes;
use consensus::CommandId;
use storage::machine::{Machine, Stamp};
use storage::store::{MemoryStore, StoreError};

/// The machine, and whether its store has failed.
pub struct MachineBackend {
    /// The machine.
    pub machine: Machine<MemoryStore>,
    /// The store's failure, after which the node must stop.
    pub failure: Option<StoreError>,
}

impl consensus::Machine for MachineBackend {
    fn apply(&mut self, stamp: &consensus::Stamp, _id: CommandId, payload: &Bytes) -> Bytes {
        let stamp = Stamp { slot: stamp.slot, index: stamp.index, at_ms: stamp.at_ms };
        self.machine.apply(&stamp, payload).to_bytes()
    }
}

impl Backend for MachineBackend {
    fn finish_slot(&mut self, slot: u64) {
        if let Err(error) = self.machine.finish_slot(slot) {
            self.failure = Some(error);
        }
    }
}
