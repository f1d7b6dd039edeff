//! One node of the world: what survives a crash (its disk, its snapshot) and what does not (its process).

use crate::disk::Disk;
use bytes::Bytes;
use std::collections::BTreeMap;
use warlock_consensus::*;

/// Remembers what it executed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tape(pub(super) Vec<Bytes>);

impl Machine for Tape {
    fn apply(&mut self, _stamp: &Stamp, _id: CommandId, payload: &Bytes) -> Bytes {
        self.0.push(payload.clone());
        payload.clone()
    }
}

/// The state of a node's machine at some slot.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) ledger: Ledger,
    pub(super) machine: Tape,
}

impl Snapshot {
    pub(super) fn bytes(&self) -> Bytes {
        Bytes::from(format!("{:?} {:?}", self.ledger, self.machine))
    }

    pub(super) fn view(&self) -> Option<ViewState> {
        let current = self.ledger.view()?.clone();
        Some(ViewState { current, established: true, previous: None })
    }
}

pub(super) struct Process {
    pub(super) node: Node,
    pub(super) ledger: Ledger,
    pub(super) machine: Tape,
    pub(super) next_seq: u64,
    /// Clients that wait for a command.
    pub(super) waiting: BTreeMap<u64, String>,
    pub(super) reads: Vec<String>,
    pub(super) fetched: Vec<u8>,
    pub(super) was_master: bool,
}

pub(super) struct Host {
    pub(super) disk: Disk,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) process: Option<Process>,
}
