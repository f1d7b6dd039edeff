//! Files that are not what was written: cut, flipped, missing, foreign.

use proptest::prelude::*;

use super::super::format::seal_header;
use super::support::*;
use crate::journal::{Journal, OpenError};

const SEGMENT_BYTES: u32 = 512;

/// One request of a host, by the lengths of its records.
#[derive(Clone, Debug)]
enum Action {
    Append(Vec<usize>),
    Checkpoint(Vec<usize>),
}

/// Batches that fit a segment; now and then a checkpoint.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let lengths = || prop::collection::vec(0usize..60, 1..4);
    prop::collection::vec(
        prop_oneof![6 => lengths().prop_map(Action::Append), 1 => lengths().prop_map(Action::Checkpoint)],
        1..25,
    )
}

/// What a host did, and what must come back.
struct History {
    directory: tempfile::TempDir,
    disk: std::sync::Arc<TestDisk>,
    journal: Journal,
    expected: Vec<Vec<u8>>,
    /// How many of `expected` came with the last request; 0 for a checkpoint.
    last_batch: usize,
}

fn perform(actions: &[Action]) -> History {
    let directory = temporary_directory();
    let disk = TestDisk::new();
    let (mut journal, _) = open_on(disk.clone(), options(directory.path(), SEGMENT_BYTES)).unwrap();
    let (mut expected, mut last_batch) = (Vec::new(), 0);
    for (index, action) in actions.iter().enumerate() {
        match action {
            Action::Append(lengths) => {
                let batch = records(index * 10, lengths);
                append(&mut journal, &batch).result.unwrap();
                last_batch = batch.len();
                expected.extend(batch);
            }
            Action::Checkpoint(lengths) => {
                expected = records(index * 10, lengths);
                checkpoint(&mut journal, &expected).result.unwrap();
                last_batch = 0;
            }
        }
    }
    History { directory, disk, journal, expected, last_batch }
}

/// The file and the offset of the last write of frames.
fn last_write(log: &[Operation]) -> (String, u64) {
    let write = log.iter().rev().find_map(|operation| match operation {
        Operation::Write { name, offset, .. } if name.starts_with("segment-") => {
            Some((name.clone(), *offset))
        }
        _ => None,
    });
    write.unwrap()
}

fn is_prefix(short: &[Vec<u8>], long: &[Vec<u8>]) -> bool {
    long.len() >= short.len() && long[..short.len()] == *short
}

/// Errors must say where and what to do.
fn assert_helpful(error: &OpenError, file: &str) {
    let text = error.to_string();
    assert!(text.contains(file) && text.contains("offset") && text.contains("what to do: "), "{text}");
}

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let directory = temporary_directory();
    let (mut journal, _) = open_on(TestDisk::new(), options(directory.path(), SEGMENT_BYTES)).unwrap();
    let all = records(0, &[30, 40, 50]);
    for record in &all {
        append(&mut journal, std::slice::from_ref(record)).result.unwrap();
    }
    let intact = snapshot(directory.path());
    let (start, end) = (64 + 46 + 56, 64 + 46 + 56 + 66);
    assert_eq!(frame_ends(&intact[0].1).last(), Some(&end));
    for cut in start..=end {
        // What the device did not write keeps what was there before: zeros, other bytes, or nothing at all.
        for filler in [Some(0), Some(0xa5), None] {
            let mut files = intact.clone();
            match filler {
                Some(byte) => files[0].1[cut..].fill(byte),
                None => files[0].1.truncate(cut),
            }
            let copy = restore(&files);
            let kept = if cut == end { 3 } else { 2 };
            let (mut journal, replayed) =
                open_on(TestDisk::new(), options(copy.path(), SEGMENT_BYTES)).unwrap();
            assert_eq!(replayed, all[..kept], "cut at {cut}, filler {filler:?}");
            // The journal goes on behind the cut, also into the next segment.
            let more = records(100, &[7, 50, 200, 200]);
            for record in &more {
                append(&mut journal, std::slice::from_ref(record)).result.unwrap();
            }
            drop(journal);
            assert_eq!(replay(copy.path(), SEGMENT_BYTES).unwrap(), [&all[..kept], &more].concat());
        }
    }
}

#[test]
fn remnants_of_a_torn_write_do_not_come_back() {
    let directory = temporary_directory();
    let (mut journal, _) = open_on(TestDisk::new(), options(directory.path(), SEGMENT_BYTES)).unwrap();
    append(&mut journal, &records(0, &[30])).result.unwrap();
    append(&mut journal, &records(1, &[30, 30, 30])).result.unwrap();
    // Of the last write, the first frame never reached the disk; the two behind it did.
    let mut files = snapshot(directory.path());
    files[0].1[64 + 46..64 + 92].fill(0);
    let copy = restore(&files);
    let (mut journal, replayed) = open_on(TestDisk::new(), options(copy.path(), SEGMENT_BYTES)).unwrap();
    assert_eq!(replayed, records(0, &[30]), "a torn write, not damage");
    // The new record ends exactly where the remnants begin.
    append(&mut journal, &records(9, &[30])).result.unwrap();
    let copy = restore(&snapshot(copy.path()));
    assert_eq!(replay(copy.path(), SEGMENT_BYTES).unwrap(), [records(0, &[30]), records(9, &[30])].concat());
}

#[test]
fn every_missing_segment_is_noticed() {
    let mut history = perform(&vec![Action::Append(vec![50, 50, 50]); 9]);
    let files = snapshot(history.directory.path());
    assert!(files.len() >= 4);
    for missing in 0..files.len() {
        let mut rest = files.clone();
        let (name, _) = rest.remove(missing);
        let error = replay(restore(&rest).path(), SEGMENT_BYTES).unwrap_err();
        assert!(matches!(&error, OpenError::Missing { file, .. } if file.ends_with(&name)), "{error}");
        assert_helpful(&error, &name);
    }
    // The same behind a checkpoint that spans segments.
    checkpoint(&mut history.journal, &records(0, &[200; 7])).result.unwrap();
    append(&mut history.journal, &records(0, &[20])).result.unwrap();
    let files = snapshot(history.directory.path());
    assert_eq!(files.len(), 4);
    for missing in 0..files.len() {
        let mut rest = files.clone();
        let (name, _) = rest.remove(missing);
        let error = replay(restore(&rest).path(), SEGMENT_BYTES).unwrap_err();
        assert!(matches!(&error, OpenError::Missing { file, .. } if file.ends_with(&name)), "{error}");
    }
}

#[test]
fn a_foreign_directory_is_refused() {
    let history = perform(&[Action::Append(vec![10])]);
    drop(history.journal);
    let mut options = options(history.directory.path(), SEGMENT_BYTES);
    options.id = [1; 16];
    let error = open_on(TestDisk::new(), options).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { found: ID, .. }), "{error}");
    assert_helpful(&error, "segment-00000000000000000001");
}

#[test]
fn another_format_version_is_refused() {
    let history = perform(&[Action::Append(vec![10])]);
    for version in [0u32, 2, 77] {
        let mut files = snapshot(history.directory.path());
        let header: &mut [u8; 64] = (&mut files[0].1[..64]).try_into().unwrap();
        header[8..12].copy_from_slice(&version.to_le_bytes());
        seal_header(header);
        let error = replay(restore(&files).path(), SEGMENT_BYTES).unwrap_err();
        assert!(matches!(error, OpenError::Format { found, expected: 1, .. } if found == version), "{error}");
        assert_helpful(&error, "segment-00000000000000000001");
    }
}

#[test]
fn a_renamed_segment_is_refused() {
    let history = perform(&vec![Action::Append(vec![50, 50, 50]); 4]);
    let mut files = snapshot(history.directory.path());
    assert_eq!(files.len(), 2);
    let (first, second) = files.split_at_mut(1);
    std::mem::swap(&mut first[0].1, &mut second[0].1);
    let error = replay(restore(&files).path(), SEGMENT_BYTES).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { offset: 0, .. }), "{error}");
}

#[test]
fn a_closed_journal_notices_every_flipped_bit_of_its_records() {
    let history = perform(&vec![Action::Append(vec![20, 25]); 8]);
    let records_end = |files: &[(String, Vec<u8>)]| *frame_ends(&files.last().unwrap().1).last().unwrap();
    let open = snapshot(history.directory.path());
    drop(history.journal);
    let files = snapshot(history.directory.path());
    assert_eq!(records_end(&files), records_end(&open) + 16, "the barrier");
    assert_eq!(files.len(), 2);
    for file in 0..2 {
        // Of the first segment all frames with the seal, of the second all but the barrier.
        let end = if file == 0 { *frame_ends(&files[0].1).last().unwrap() } else { records_end(&open) };
        for bit in 0..end * 8 {
            let mut flipped = files.clone();
            flipped[file].1[bit / 8] ^= 1 << (bit % 8);
            let result = replay(restore(&flipped).path(), SEGMENT_BYTES);
            let Err(error @ OpenError::Damaged { .. }) = &result else {
                panic!("bit {bit} of {}: {result:?}", files[file].0)
            };
            assert_helpful(error, &files[file].0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any prefix of the last segment, cut or zeroed behind, gives exactly the records whose frames are whole; or a clear
    /// error where that would not be a state the journal was in.
    #[test]
    fn any_prefix_gives_an_earlier_state(actions in actions(), cut in 0.0..1.0f64, zeroed: bool) {
        let history = perform(&actions);
        let mut files = snapshot(history.directory.path());
        let last = &mut files.last_mut().unwrap().1;
        let frames = frame_ends(last);
        // Recycled files have old frames behind the new ones: count those that belong to this segment.
        let tag = last[64 + 13..64 + 16].to_vec();
        let mut start = 64;
        let frames: Vec<usize> = frames.into_iter().take_while(|&end| {
            let own = last[start + 13..start + 16] == tag;
            start = end;
            own
        }).collect();
        // Only the interesting part: up to a little behind the last frame.
        let cut = ((frames.last().unwrap() + 20).min(last.len()) as f64 * cut) as usize;
        // Zeros over zeros take nothing away.
        let own = last[..*frames.last().unwrap()].iter();
        let kept = if zeroed { cut + own.skip(cut).take_while(|&&byte| byte == 0).count() } else { cut };
        let lost = frames.iter().filter(|&&end| end > kept).count();
        let is_checkpoint = last[12] == 3;
        let checkpoint_frames = match actions.last().unwrap() {
            Action::Checkpoint(_) => frames.len(),
            Action::Append(_) => {
                (0..frames.len()).take_while(|&index| {
                    let start = if index == 0 { 64 } else { frames[index - 1] };
                    matches!(last[start + 12], 2 | 3)
                }).count()
            }
        };
        if zeroed { last[cut..].fill(0) } else { last.truncate(cut) }
        let result = replay(restore(&files).path(), SEGMENT_BYTES);
        if cut < 64 || (is_checkpoint && frames.len() - lost < checkpoint_frames) {
            prop_assert!(matches!(result, Err(OpenError::Damaged { .. })), "{result:?}");
        } else {
            prop_assert_eq!(result.unwrap(), &history.expected[..history.expected.len() - lost]);
        }
    }

    /// Any flipped bit before the last write gives an error; within the last write, an error or a state without part of
    /// that write; never a wrong state.
    #[test]
    fn a_flipped_bit_never_gives_a_wrong_state(
        actions in actions(), file in any::<prop::sample::Index>(), bit in any::<prop::sample::Index>()
    ) {
        let history = perform(&actions);
        let (last_file, last_offset) = last_write(&history.disk.log());
        let mut files = snapshot(history.directory.path());
        let file = file.index(files.len());
        let name = files[file].0.clone();
        let own_end: usize = history.disk.log().iter().filter_map(|operation| match operation {
            Operation::Write { name: written, offset, bytes } if *written == name => Some(*offset as usize + bytes.len()),
            _ => None,
        }).max().unwrap_or(64);
        let bit = bit.index(own_end.max(64) * 8);
        files[file].1[bit / 8] ^= 1 << (bit % 8);
        let result = replay(restore(&files).path(), SEGMENT_BYTES);
        if name == last_file && (bit / 8) as u64 >= last_offset {
            if let Ok(replayed) = result {
                let certain = history.expected.len() - history.last_batch;
                prop_assert!(replayed.len() >= certain && is_prefix(&replayed, &history.expected));
                prop_assert!(history.last_batch > 0, "a checkpoint has no part");
            }
        } else {
            prop_assert!(result.is_err(), "bit {} of {}: {:?}", bit, name, result);
            prop_assert!(result.unwrap_err().to_string().contains(&name));
        }
    }

    /// Bytes that are not a journal at all never make it panic or invent records.
    #[test]
    fn garbage_is_refused(garbage in prop::collection::vec(any::<u8>(), 0..600)) {
        let files = [("segment-00000000000000000001".to_string(), garbage)];
        prop_assert!(replay(restore(&files).path(), SEGMENT_BYTES).is_err());
    }
}
