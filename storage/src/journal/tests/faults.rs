//! Disks that fail, fill up or write short.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::support::*;
use crate::journal::{AppendError, Journal};

/// A disk that fails while the flag is set, where `hit` says so.
fn failing_disk(
    kind: ErrorKind,
    hit: impl Fn(&Operation) -> bool + Send + 'static,
) -> (Arc<TestDisk>, Arc<AtomicBool>) {
    let failing = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&failing);
    let disk = TestDisk::with_fault(move |operation| {
        if flag.load(Ordering::SeqCst) && hit(operation) { Fault::Error(kind) } else { Fault::None }
    });
    (disk, failing)
}

fn is_segment_write(operation: &Operation) -> bool {
    matches!(operation, Operation::Write { name, .. } if name.starts_with("segment-"))
}

#[test]
fn a_failed_write_or_sync_poisons_for_good() {
    let hits = [Operation::is_segment_sync as fn(&Operation) -> bool, is_segment_write];
    for (hit, is_direct) in hits.into_iter().flat_map(|hit| [(hit, false), (hit, true)]) {
        let directory = tempfile::tempdir().unwrap();
        let (disk, failing) = failing_disk(ErrorKind::Other, hit);
        let disk = disk.direct(is_direct);
        let (mut journal, _) = open_on(disk.clone(), options(directory.path(), 4096)).unwrap();
        append(&mut journal, &records(0, &[10])).result.unwrap();
        failing.store(true, Ordering::SeqCst);
        let error = append(&mut journal, &records(1, &[10])).result.unwrap_err();
        assert!(matches!(&error, AppendError::Failed(_)), "{error}");
        assert!(error.to_string().contains("segment-00000000000000000001"), "{error}");

        // The disk is well again, but nobody may believe it.
        failing.store(false, Ordering::SeqCst);
        let touched = || disk.log().iter().filter(|operation| is_segment_write(operation)).count();
        let before = touched();
        assert!(append(&mut journal, &records(2, &[10])).result.is_err());
        assert!(checkpoint(&mut journal, &[]).result.is_err());
        drop(journal);
        assert_eq!(touched(), before, "not even a barrier is written");
        let replayed = replay(directory.path(), 4096).unwrap();
        assert!(replayed == records(0, &[10]) || replayed == records(0, &[10, 10]));
    }
}

#[test]
fn everything_that_waits_for_a_failed_sync_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (in_sync_sender, in_sync) = channel();
    let (go_sender, go) = channel::<()>();
    let mut armed = false;
    let disk = TestDisk::with_fault(move |operation| {
        armed |=
            matches!(operation, Operation::Write { name, offset: 64.., .. } if name.starts_with("segment-"));
        if armed && operation.is_segment_sync() {
            let _ = in_sync_sender.send(());
            let _ = go.recv();
            return Fault::Error(ErrorKind::Other);
        }
        Fault::None
    });
    let (mut journal, _) = open_on(disk, options(directory.path(), 4096)).unwrap();
    journal.append(batch(&records(0, &[10]))).unwrap();
    in_sync.recv().unwrap();
    let last = (1..10).map(|index| journal.append(batch(&records(index, &[10]))).unwrap()).last().unwrap();
    drop(go_sender);
    let mut through = 0;
    while through < last {
        let completion = journal.wait();
        assert!(completion.result.is_err());
        assert!(completion.through > through);
        through = completion.through;
    }
}

#[test]
fn failures_while_a_segment_is_started_poison_too() {
    let header_write = |operation: &Operation| matches!(operation, Operation::Write { name, .. } if name.starts_with("spare-"));
    let directory_sync = |operation: &Operation| matches!(operation, Operation::SyncDirectory);
    let rename =
        |operation: &Operation| matches!(operation, Operation::Rename(from, _) if from.starts_with("spare-"));
    for hit in [header_write as fn(&Operation) -> bool, directory_sync, rename] {
        let directory = tempfile::tempdir().unwrap();
        let (disk, failing) = failing_disk(ErrorKind::Other, hit);
        let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
        append(&mut journal, &records(0, &[400])).result.unwrap();
        failing.store(true, Ordering::SeqCst);
        assert!(append(&mut journal, &records(1, &[400])).result.is_err());
        failing.store(false, Ordering::SeqCst);
        assert!(append(&mut journal, &records(1, &[10])).result.is_err());
        drop(journal);
        assert_eq!(replay(directory.path(), 512).unwrap(), records(0, &[400]));
    }
}

#[test]
fn short_writes_are_continued() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::with_fault(|operation| match operation {
        Operation::Write { .. } => Fault::Short(7),
        _ => Fault::None,
    });
    let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
    let all = records(0, &[100; 20]);
    for record in &all {
        append(&mut journal, std::slice::from_ref(record)).result.unwrap();
    }
    drop(journal);
    assert_eq!(replay(directory.path(), 512).unwrap(), all);
}

#[test]
fn a_write_that_writes_nothing_poisons() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::with_fault(|operation| match operation {
        Operation::Write { name, offset: 64.., .. } if name.starts_with("segment-") => Fault::Short(0),
        _ => Fault::None,
    });
    let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
    assert!(append(&mut journal, &records(0, &[10])).result.is_err());
}

fn fills_up(operation: &Operation) -> bool {
    match operation {
        Operation::Allocate(..) => true,
        Operation::Write { name, .. } => name.starts_with("preparing-"),
        _ => false,
    }
}

/// Appends until the disk is full; the last batch waits, and its number is returned. All of them are added to `expected`.
fn append_until_full(journal: &mut Journal, expected: &mut Vec<Vec<u8>>) -> u64 {
    for _ in 0..100 {
        let new = records(expected.len(), &[190]);
        let number = journal.append(batch(&new)).unwrap();
        expected.extend(new);
        loop {
            match journal.wait_for(Duration::from_millis(5)) {
                Some(completion) => {
                    completion.result.unwrap();
                    if completion.through >= number {
                        break;
                    }
                }
                None if journal.disk_full().is_some() => return number,
                None => {}
            }
        }
    }
    panic!("the disk never was full");
}

#[test]
fn a_full_disk_delays_and_the_journal_goes_on_by_itself() {
    // Both where the file system can reserve room and where only the zeros find out.
    let only_zeros =
        |operation: &Operation| fills_up(operation) && !matches!(operation, Operation::Allocate(..));
    for hit in [fills_up as fn(&Operation) -> bool, only_zeros] {
        let directory = tempfile::tempdir().unwrap();
        let (disk, full) = failing_disk(ErrorKind::StorageFull, hit);
        let (mut journal, _) = open_on(disk.clone(), options(directory.path(), 512)).unwrap();
        let mut expected = Vec::new();
        full.store(true, Ordering::SeqCst);
        append_until_full(&mut journal, &mut expected);
        assert!(journal.disk_full().unwrap().is_disk_full());
        // What comes now waits behind it, also what would still fit into the segment.
        let small = records(expected.len(), &[1]);
        let last = journal.append(batch(&small)).unwrap();
        expected.extend(small);
        assert!(journal.wait_for(Duration::from_millis(20)).is_none());
        full.store(false, Ordering::SeqCst);
        wait_for(&mut journal, last).result.unwrap();
        assert!(journal.disk_full().is_none());
        for _ in 0..10 {
            let batch = records(expected.len(), &[200]);
            append(&mut journal, &batch).result.unwrap();
            expected.extend(batch);
        }
        drop(journal);
        assert!(files(directory.path(), "preparing-").is_empty(), "a failed attempt gives its room back");
        assert_eq!(replay(directory.path(), 512).unwrap(), expected);
    }
}

#[test]
fn a_checkpoint_makes_room_on_a_full_disk_and_takes_the_place_of_what_waits() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, full) = failing_disk(ErrorKind::StorageFull, fills_up);
    let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
    let mut expected = Vec::new();
    // Three segments in use before the disk is full, and two spares.
    for _ in 0..5 {
        let batch = records(expected.len(), &[200]);
        append(&mut journal, &batch).result.unwrap();
        expected.extend(batch);
    }
    full.store(true, Ordering::SeqCst);
    append_until_full(&mut journal, &mut expected);
    // Too large for the spare that is held back: it waits like the rest.
    journal.checkpoint(batch(&records(0, &[400; 20]))).unwrap();
    journal.append(batch(&records(1, &[100]))).unwrap();
    assert!(journal.wait_for(Duration::from_millis(20)).is_none() && journal.disk_full().is_some());
    // Small enough: one completion for it and for all that waited, and what it frees is used again although the disk stays full.
    let live = records(5000, &[100]);
    let number = journal.checkpoint(batch(&live)).unwrap();
    let completion = journal.wait();
    assert!(completion.through == number && completion.result.is_ok(), "{completion:?}");
    assert!(journal.disk_full().is_none());
    let after = records(6000, &[200; 4]);
    for record in &after {
        append(&mut journal, std::slice::from_ref(record)).result.unwrap();
    }
    assert_eq!(journal.queued_bytes(), 0);
    drop(journal);
    assert_eq!(replay(directory.path(), 512).unwrap(), [live, after].concat());
}

#[test]
fn what_waits_for_room_when_the_journal_is_closed_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, full) = failing_disk(ErrorKind::StorageFull, fills_up);
    let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
    full.store(true, Ordering::SeqCst);
    let mut expected = Vec::new();
    append_until_full(&mut journal, &mut expected);
    journal.append(batch(&records(1, &[1]))).unwrap();
    drop(journal);
    expected.pop();
    assert_eq!(replay(directory.path(), 512).unwrap(), expected);
}

#[test]
fn a_sync_that_finds_the_disk_full_poisons_and_is_not_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, full) = failing_disk(ErrorKind::StorageFull, Operation::is_segment_sync);
    let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
    append(&mut journal, &records(0, &[10])).result.unwrap();
    full.store(true, Ordering::SeqCst);
    assert!(append(&mut journal, &records(1, &[10])).result.is_err());
    full.store(false, Ordering::SeqCst);
    assert!(append(&mut journal, &records(2, &[10])).result.is_err());
}

#[test]
fn segments_are_written_only_within_what_was_allocated() {
    // J6: a commit never needs new room, so it cannot meet a full disk.
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::new();
    let (mut journal, _) = open_on(disk.clone(), options(directory.path(), 512)).unwrap();
    for index in 0..60 {
        append(&mut journal, &records(index, &[index % 90, 100])).result.unwrap();
        if index % 20 == 19 {
            checkpoint(&mut journal, &records(index, &[300, 300])).result.unwrap();
        }
    }
    drop(journal);
    let mut written = std::collections::BTreeMap::<String, u64>::new();
    for operation in disk.log() {
        match operation {
            Operation::Write { name, offset, bytes } if name.starts_with("preparing-") => {
                *written.entry(name).or_default() = offset + bytes.len() as u64;
            }
            Operation::Write { name, offset, bytes } => {
                assert_eq!(written.get(&name), Some(&512), "{name}");
                assert!(offset + bytes.len() as u64 <= 512);
            }
            Operation::Rename(from, to) => {
                let length = written.remove(&from).unwrap();
                written.insert(to, length);
            }
            _ => {}
        }
    }
}

#[test]
fn the_next_open_writes_the_last_write_again() {
    // After a failed sync the kernel may show bytes that never reached the disk, and a second sync would succeed without
    // writing them. Only a new write makes them dirty again.
    let directory = tempfile::tempdir().unwrap();
    let (disk, failing) = failing_disk(ErrorKind::Other, Operation::is_segment_sync);
    let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
    append(&mut journal, &records(0, &[10])).result.unwrap();
    failing.store(true, Ordering::SeqCst);
    assert!(append(&mut journal, &records(1, &[20])).result.is_err());
    drop(journal);
    let disk = TestDisk::new();
    let (_journal, replayed) = open_on(disk.clone(), options(directory.path(), 512)).unwrap();
    assert_eq!(replayed, records(0, &[10, 20]));
    let log = disk.log();
    let written = log.iter().position(
        |operation| matches!(operation, Operation::Write { offset: 90, bytes, .. } if bytes.len() == 36),
    );
    let synced = log.iter().position(Operation::is_segment_sync);
    assert!(written.is_some() && written < synced, "{log:?}");
}
