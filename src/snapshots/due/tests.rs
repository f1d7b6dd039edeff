//! How long the journal may become before a snapshot is due.
#![allow(clippy::unwrap_used)]

use super::*;
use consensus::{Ledger, ViewState};
use std::sync::Arc;
use std::sync::mpsc::channel;
use storage::machine::{Machine, Stamp, encode_command};

const MIB: u64 = 1 << 20;

/// Snapshots in memory, the newest of a machine with `value_bytes` of data.
fn snapshots(value_bytes: usize) -> Snapshots {
    let mut machine = Machine::in_memory();
    let stamp = Stamp { slot: 1, index: 0, at_ms: 1 };
    machine.apply(&stamp, &encode_command(0, &[b"SET", b"key", &vec![b'x'; value_bytes][..]]));
    machine.finish_slot(1).unwrap();
    let (tell, told) = channel();
    let wake = Arc::new(move || tell.send(()).unwrap_or_default());
    let mut snapshots = Snapshots::in_memory([7; 16], wake);
    assert!(!snapshots.is_due(64 * MIB) && snapshots.is_due(64 * MIB + 1), "nothing is known of the data");
    let view = ViewState::unknown();
    snapshots.take(&Ledger::default(), &view, &machine, None);
    assert!(!snapshots.is_due(1024 * MIB), "one is being written");
    told.recv().unwrap();
    assert_eq!(snapshots.finished(), Some(1));
    snapshots
}

#[test]
fn the_journal_is_in_proportion_to_the_data() {
    for (data, most) in [(1, 64), (20, 80), (66, 256)] {
        let snapshots = snapshots(data << 20);
        let later = snapshots.finished_at.unwrap() + QUIET;
        // A snapshot is its rows, and a little more.
        assert!(!snapshots.is_due_at(most * MIB, later), "{data} MiB of data");
        assert!(snapshots.is_due_at((most + 1) * MIB, later), "{data} MiB of data");
        let soon = later - Duration::from_millis(1);
        assert!(!snapshots.is_due_at(256 * MIB, soon) && snapshots.is_due_at(256 * MIB + 1, soon), "at rest");
    }
}

#[test]
fn who_copies_a_snapshot_finds_the_log_behind_it() {
    let snapshots = snapshots(1);
    assert!(snapshots.chunk(0, 0, 10).is_some());
    assert!(!snapshots.is_due(512 * MIB) && snapshots.is_due(512 * MIB + 1));
}

#[test]
fn a_disk_that_refused_one_is_left_alone_for_a_while() {
    let mut snapshots = snapshots(1);
    snapshots.put_off("no room");
    let later = snapshots.retry_at.unwrap();
    assert!(!snapshots.is_due_at(1024 * MIB, later - Duration::from_millis(1)));
    assert!(snapshots.is_due_at(1024 * MIB, later));
}
