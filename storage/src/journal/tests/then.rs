//! What is done on the journal's thread when a batch is durable, and whom it wakes.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::support::*;
use crate::journal::Journal;

/// A journal on `disk`, and how often it woke its host.
fn open(disk: Arc<TestDisk>, directory: &std::path::Path) -> (Journal, Arc<AtomicUsize>) {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = wakes.clone();
    let wake = move || {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    (Journal::open_on(disk, options(directory, 4096), |_| Ok(()), wake).unwrap(), wakes)
}

#[test]
fn it_runs_behind_the_sync_and_wakes_the_host_only_if_it_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::new();
    let (mut journal, wakes) = open(disk.clone(), directory.path());
    for is_loud in [false, true] {
        let (seen, seen_disk) = (channel(), disk.clone());
        let before = wakes.load(Ordering::SeqCst);
        let then = move || {
            let last =
                seen_disk.log().into_iter().rfind(|operation| !format!("{operation:?}").contains("spare"));
            seen.0.send(last.is_some_and(|operation| operation.is_segment_sync())).unwrap();
            is_loud
        };
        let number = journal.append_then(batch(&records(0, &[10])), Box::new(then)).unwrap();
        assert!(seen.1.recv().unwrap(), "the sync is the last thing that happened");
        assert_eq!(journal.wait().through, number);
        // The next completion is loud, so that the thread is certainly past this one.
        journal.append(batch(&records(0, &[10]))).unwrap();
        journal.wait();
        while wakes.load(Ordering::SeqCst) < before + usize::from(is_loud) + 1 {
            std::thread::yield_now();
        }
        assert_eq!(wakes.load(Ordering::SeqCst), before + usize::from(is_loud) + 1);
    }
}

#[test]
fn it_never_runs_for_a_batch_that_is_not_durable() {
    let directory = tempfile::tempdir().unwrap();
    let failing = Arc::new(AtomicBool::new(false));
    let flag = failing.clone();
    let disk = TestDisk::with_fault(move |operation| match flag.load(Ordering::SeqCst) {
        true if operation.is_segment_sync() => Fault::Error(ErrorKind::Other),
        _ => Fault::None,
    });
    let (mut journal, wakes) = open(disk, directory.path());
    failing.store(true, Ordering::SeqCst);
    let ran = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let ran = ran.clone();
        let then = move || ran.swap(true, Ordering::SeqCst);
        journal.append_then(batch(&records(0, &[10])), Box::new(then)).unwrap();
        assert!(journal.wait().result.is_err());
    }
    drop(journal);
    assert!(!ran.load(Ordering::SeqCst));
    assert!(wakes.load(Ordering::SeqCst) >= 2, "the host must hear of a failure");
}

#[test]
fn a_host_that_watches_misses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, wakes) = open(TestDisk::new(), directory.path());
    for round in 0..2_000 {
        let mut seen = wakes.load(Ordering::SeqCst);
        let number = journal.append_then(batch(&records(round, &[10])), Box::new(|| false)).unwrap();
        if round % 3 == 0 {
            std::thread::yield_now();
        }
        journal.watch();
        let until = Instant::now() + Duration::from_secs(60);
        // A wake-up may still belong to a completion that was found without it; then the next one comes.
        let found = loop {
            if let Some(completion) = journal.poll() {
                break completion;
            }
            while wakes.load(Ordering::SeqCst) == seen {
                assert!(Instant::now() < until, "round {round}: nobody was woken");
                std::thread::yield_now();
            }
            seen = wakes.load(Ordering::SeqCst);
        };
        assert_eq!(found.through, number);
    }
}
