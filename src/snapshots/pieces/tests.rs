//! What becomes of pieces that a peer sent.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::host::backend::MachineBackend;
use consensus::{Ballot, Body, Config, Ledger, Value, ViewState};
use std::sync::Arc;
use storage::machine::Machine;

const ID: [u8; 16] = [7; 16];

/// A whole snapshot of this slot.
fn bytes_of(slot: u64) -> Vec<u8> {
    let (mut ledger, mut backend) = (Ledger::default(), MachineBackend::new(Machine::in_memory()));
    for next in 1..=slot {
        let value = Value { made_in: Ballot::default(), stamp_ms: next, body: Body::Noop };
        ledger.apply(next, &value, &mut backend, &Config::default(), &mut Vec::new());
        backend.machine.finish_slot(next).unwrap();
    }
    let (view, directory) = (ViewState::unknown(), tempfile::tempdir().unwrap());
    Loaded { slot, ledger, view, machine: backend.machine }.write(directory.path(), ID).unwrap();
    fs::read(snapshot::path_of(directory.path(), slot)).unwrap()
}

/// Where snapshots lie, and which do.
fn on_disk(directory: &Path) -> (Snapshots, impl Fn() -> Vec<u64>) {
    let snapshots = Snapshots::open(directory.to_path_buf(), ID, Arc::new(|| ())).unwrap();
    let directory = directory.to_path_buf();
    (snapshots, move || snapshot::list(&directory).unwrap().into_iter().map(|(slot, _)| slot).collect())
}

#[test]
fn a_snapshot_of_another_slot_gets_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let (mut snapshots, slots) = on_disk(directory.path());
    snapshots.keep(9, 0, &bytes_of(3)).unwrap();
    let error = snapshots.install(9).err().unwrap();
    assert!(error.contains("slot 9") && error.contains("slot 3"), "{error}");
    assert!(slots().is_empty(), "the node would start from it");
    let mut in_memory = Snapshots::in_memory(ID, Arc::new(|| ()));
    in_memory.keep(9, 0, &bytes_of(3)).unwrap();
    assert!(in_memory.install(9).is_err() && in_memory.newest_finished().is_none());
}

#[test]
fn who_installs_one_after_another_keeps_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let (mut snapshots, slots) = on_disk(directory.path());
    for slot in 3..=6 {
        snapshots.keep(slot, 0, &bytes_of(slot)).unwrap();
        assert_eq!(snapshots.install(slot).unwrap().slot, slot);
    }
    assert_eq!(slots(), [6, 5]);
}
