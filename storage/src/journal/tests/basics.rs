//! What the journal does when nothing goes wrong.

use std::sync::Arc;
use std::sync::mpsc::channel;

use super::super::format::{FrameKind, Framing};
use super::support::*;
use crate::journal::{AppendError, Journal, OpenError, Options, SubmitError};

#[test]
fn round_trip_over_several_segments() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..3 {
        // The real disk, and every setting but the size at its default.
        let mut options = Options::new(directory.path(), ID);
        options.create = round == 0;
        options.segment_bytes = 1024;
        let mut replayed = Vec::new();
        let mut journal = Journal::open(
            options,
            |record| {
                replayed.push(record.to_vec());
                Ok(())
            },
            || {},
        )
        .unwrap();
        assert_eq!(replayed, expected, "round {round}");
        for index in 0..40 {
            let batch = records(expected.len(), &[index, 0, 100 - index]);
            append(&mut journal, &batch).result.unwrap();
            expected.extend(batch);
        }
    }
    assert!(segments(directory.path()).len() > 10);
    assert_eq!(replay(directory.path(), 1024).unwrap(), expected);
}

#[test]
fn many_appends_share_one_sync_and_one_completion() {
    let directory = tempfile::tempdir().unwrap();
    let (in_sync_sender, in_sync) = channel();
    let (go_sender, go) = channel();
    let mut gate = Some((in_sync_sender, go));
    let disk = TestDisk::with_fault(move |operation| {
        // The origin's own sync during recovery passes; the first commit is held until the test says so.
        if matches!(operation, Operation::Write { name, offset: 64.., .. } if name.starts_with("segment-"))
            && let Some((in_sync, go)) = gate.take()
        {
            in_sync.send(()).unwrap();
            go.recv().unwrap();
        }
        Fault::None
    });
    let (mut journal, _) = open_on(disk.clone(), options(directory.path(), 64 << 10)).unwrap();
    let syncs = || disk.log().iter().filter(|operation| operation.is_segment_sync()).count();
    let before = syncs();
    journal.append(batch(&records(0, &[10]))).unwrap();
    in_sync.recv().unwrap();
    let last =
        (1..100).map(|index| journal.append(batch(&records(index, &[10, 20]))).unwrap()).last().unwrap();
    go_sender.send(()).unwrap();
    assert_eq!(journal.wait().through, 1);
    assert_eq!(journal.wait().through, last, "99 batches, one completion");
    assert_eq!(syncs() - before, 2);
    assert!(journal.poll().is_none());
}

#[test]
fn wake_is_called_for_each_completion_and_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, wakes) = channel();
    let mut journal = Journal::open_on(
        TestDisk::new(),
        options(directory.path(), 1024),
        |_| Ok(()),
        move || {
            let _ = sender.send(());
        },
    )
    .unwrap();
    for index in 0..3 {
        let number = journal.append(batch(&records(index, &[5]))).unwrap();
        wakes.recv().unwrap();
        assert_eq!(journal.poll().unwrap().through, number);
    }
    drop(journal);
    assert_eq!(wakes.iter().count(), 1);
}

#[test]
fn batches_are_written_when_the_journal_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = open_on(TestDisk::new(), options(directory.path(), 512)).unwrap();
    let all = records(0, &[50; 30]);
    for record in &all {
        journal.append(batch(std::slice::from_ref(record))).unwrap();
    }
    drop(journal);
    assert_eq!(replay(directory.path(), 512).unwrap(), all);
}

#[test]
fn a_batch_must_fit_into_a_segment_and_the_queue_has_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let (in_write_sender, in_write) = channel();
    let (go_sender, go) = channel::<()>();
    let disk = TestDisk::with_fault(move |operation| {
        if matches!(operation, Operation::Write { name, offset: 64.., .. } if name.starts_with("segment-")) {
            let _ = in_write_sender.send(());
            let _ = go.recv();
        }
        Fault::None
    });
    let mut options = options(directory.path(), 1024);
    options.queue_bytes_max = 200;
    let (mut journal, _) = open_on(disk, options).unwrap();
    // 1024 − header 64 − seal 16 − frame 16
    let largest = 1024 - 64 - 16 - 16;
    let error = journal.append(batch(&records(0, &[largest + 1]))).unwrap_err();
    assert_eq!(error, SubmitError::TooLarge { bytes: 945, bytes_max: 944 });
    let error = journal.checkpoint(batch(&records(0, &[1, largest + 1]))).unwrap_err();
    assert!(matches!(error, SubmitError::TooLarge { .. }));

    assert_eq!(
        journal.append(batch(&records(0, &[largest]))).unwrap(),
        1,
        "an idle journal takes any batch that fits"
    );
    in_write.recv().unwrap();
    assert_eq!(journal.append(batch(&records(1, &[100]))).unwrap(), 2);
    let error = journal.append(batch(&records(2, &[100]))).unwrap_err();
    assert_eq!(error, SubmitError::QueueFull { bytes: 116, bytes_max: 200 });
    drop(go_sender);
    wait_for(&mut journal, 2).result.unwrap();
    assert_eq!(journal.append(batch(&records(2, &[100]))).unwrap(), 3, "refused batches used up no number");
    wait_for(&mut journal, 3).result.unwrap();
    drop(journal);
    assert_eq!(replay(directory.path(), 1024).unwrap(), records(0, &[largest, 100, 100]));
}

#[test]
fn a_checkpoint_replaces_what_came_before() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::new();
    let (mut journal, _) = open_on(disk, options(directory.path(), 512)).unwrap();
    for index in 0..20 {
        append(&mut journal, &records(index, &[100])).result.unwrap();
    }
    assert!(journal.live_bytes() > 2000);
    // Larger than a segment, so it spans several.
    let live = records(1000, &[200; 6]);
    checkpoint(&mut journal, &live).result.unwrap();
    assert_eq!(
        segments(directory.path()).len(),
        4,
        "two records of 200 bytes per segment, the end frame alone"
    );
    let after = records(2000, &[10, 20]);
    append(&mut journal, &after).result.unwrap();
    drop(journal);
    let expected = [live, after].concat();
    assert_eq!(replay(directory.path(), 512).unwrap(), expected);

    let (mut journal, _) = open_on(TestDisk::new(), options(directory.path(), 512)).unwrap();
    checkpoint(&mut journal, &[]).result.unwrap();
    assert_eq!(segments(directory.path()).len(), 1);
    drop(journal);
    assert_eq!(replay(directory.path(), 512).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_recycled_segment_does_not_resurrect_old_records() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::new();
    let (mut journal, _) = open_on(disk.clone(), options(directory.path(), 512)).unwrap();
    let mut recycled = 0;
    for round in 0..8 {
        // Always the same lengths: old frames lie exactly where new ones end.
        for index in 0..12 {
            append(&mut journal, &records(round * 100 + index, &[40])).result.unwrap();
        }
        checkpoint(&mut journal, &records(round * 100, &[40])).result.unwrap();
        append(&mut journal, &records(round * 100 + 50, &[40])).result.unwrap();
        let expected = [records(round * 100, &[40]), records(round * 100 + 50, &[40])].concat();
        let copy = restore(&snapshot(directory.path()));
        assert_eq!(replay(copy.path(), 512).unwrap(), expected, "round {round}");
        // Make sure that the test tests something: there are old frames behind the new ones.
        let last = std::fs::read(segments(directory.path()).last().unwrap()).unwrap();
        recycled += usize::from(last[64 + 3 * 56 + 24..].iter().any(|&byte| byte != 0));
    }
    assert!(recycled >= 5, "only {recycled} of 8 last segments were recycled");
    assert!(disk.log().iter().any(|operation| {
        matches!(operation, Operation::Rename(from, to) if from.starts_with("segment-") && to.starts_with("spare-"))
    }));
    assert!(files(directory.path(), "spare-").len() <= 6);
}

#[test]
fn the_lock_names_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open_on(TestDisk::new(), options(directory.path(), 512)).unwrap();
    let error = open_on(TestDisk::new(), options(directory.path(), 512)).err().unwrap();
    assert!(
        matches!(error, OpenError::Locked { pid: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("process {}", std::process::id())));
    drop(journal);
    assert!(open_on(TestDisk::new(), options(directory.path(), 512)).is_ok());
}

#[test]
fn an_absent_journal_is_created_only_on_request() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a").join("b");
    assert!(matches!(replay(&directory, 512), Err(OpenError::Absent { .. })));
    std::fs::create_dir_all(&directory).unwrap();
    assert!(matches!(replay(&directory, 512), Err(OpenError::Absent { .. })));
    open_on(TestDisk::new(), options(&directory, 512)).unwrap();
    assert!(replay(&directory, 512).is_ok());
    assert!(matches!(replay(&directory, 255), Err(OpenError::Setting(_))));
}

#[test]
fn a_changed_segment_size_applies_to_new_segments() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for segment_bytes in [512, 2048, 300] {
        let (mut journal, replayed) =
            open_on(TestDisk::new(), options(directory.path(), segment_bytes)).unwrap();
        assert_eq!(replayed, expected);
        for index in 0..20 {
            let batch = records(expected.len(), &[index * 5, 3]);
            append(&mut journal, &batch).result.unwrap();
            expected.extend(batch);
        }
    }
    assert_eq!(replay(directory.path(), 512).unwrap(), expected);
}

#[test]
fn a_record_that_the_host_refuses_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = open_on(TestDisk::new(), options(directory.path(), 512)).unwrap();
    append(&mut journal, &records(0, &[10, 20])).result.unwrap();
    drop(journal);
    let refuse = |record: &[u8]| if record.len() == 20 { Err("unknown kind".into()) } else { Ok(()) };
    let error =
        Journal::open_on(TestDisk::new(), options(directory.path(), 512), refuse, || {}).err().unwrap();
    assert!(matches!(error, OpenError::Rejected { offset: 90, .. }), "{error}");
    assert!(error.to_string().contains("segment-00000000000000000001 at offset 90: unknown kind"), "{error}");
}

#[test]
fn a_panic_of_the_thread_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::with_fault(|operation| match operation {
        Operation::Write { name, offset: 64.., .. } if name.starts_with("segment-") => {
            panic!("planted by a test")
        }
        _ => Fault::None,
    });
    let (mut journal, _) = open_on(disk as Arc<_>, options(directory.path(), 512)).unwrap();
    journal.append(batch(&records(0, &[10]))).unwrap();
    let completion = journal.wait();
    assert!(matches!(completion.result, Err(AppendError::Stopped)));
    assert_eq!(completion.through, 1);
    assert!(journal.poll().is_none());
    journal.append(batch(&records(0, &[10]))).unwrap();
    assert!(journal.poll().unwrap().result.is_err());
}

#[test]
fn an_idle_journal_writes_one_barrier() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, barriers) = channel();
    let disk = TestDisk::with_fault(move |operation| {
        if let Operation::Write { name, bytes, .. } = operation
            && name.starts_with("segment-")
            && bytes.len() == 16
            && bytes[12] == 4
        {
            sender.send(()).unwrap();
        }
        Fault::None
    });
    let mut options = options(directory.path(), 512);
    options.barrier_after = Some(std::time::Duration::from_millis(1));
    let (mut journal, _) = open_on(disk, options).unwrap();
    append(&mut journal, &records(0, &[30])).result.unwrap();
    barriers.recv().unwrap();
    append(&mut journal, &records(1, &[30])).result.unwrap();
    barriers.recv().unwrap();
    drop(journal);
    assert!(barriers.try_recv().is_err(), "no second barrier behind a barrier");
    assert_eq!(replay(directory.path(), 512).unwrap(), records(0, &[30, 30]));
}

#[test]
fn a_frame_is_valid_only_where_it_was_written() {
    let framing = Framing::new(&ID, 7);
    let mut segment = vec![0; 200];
    let mut frame = Vec::new();
    framing.encode(&mut frame, 80, 64, FrameKind::Record, b"payload");
    segment[80..80 + frame.len()].copy_from_slice(&frame);
    assert_eq!(framing.decode(&segment, 80).unwrap().payload, 96..103);
    assert_eq!(framing.search(&segment, 64).map(|(at, _)| at).collect::<Vec<_>>(), [80]);
    // The search finds it wherever it lies, and whatever the tag of the segment is.
    for at in 65..400u32 {
        let framing = Framing::new(&ID, u64::from(at));
        let mut segment = vec![0; 64];
        segment.resize(at as usize, 0xee);
        framing.encode(&mut segment, at, 64, FrameKind::Record, b"payload");
        segment.resize(500, 0);
        assert_eq!(framing.search(&segment, 64).map(|(at, _)| at).collect::<Vec<_>>(), [at]);
        assert_eq!(framing.search(&segment, at).count(), 0);
    }
    // The same bytes in another segment, in another directory, or at another offset.
    for other in [Framing::new(&ID, 8), Framing::new(&ID, 7 + (1 << 40)), Framing::new(&[0; 16], 7)] {
        assert_eq!(other.decode(&segment, 80), None);
    }
    segment.copy_within(80..103, 120);
    assert_eq!(framing.decode(&segment, 120), None, "a misdirected write");
}
