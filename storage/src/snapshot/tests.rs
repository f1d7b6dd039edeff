//! Snapshot files: written, read, damaged.

use super::*;
use crate::machine::tests::support::{Lab, rows};
use crate::machine::{Checksum, Machine};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

const ID: DirectoryId = *b"0123456789abcdef";

fn lab(keys: usize) -> Lab {
    let mut lab = Lab::new();
    for n in 0..keys {
        lab.run(&[b"SET", format!("key:{n}").as_bytes(), &vec![b'v'; n % 100], b"EX", b"100"]);
    }
    lab
}

fn write_lab(directory: &Path, lab: &Lab) -> Written {
    write(directory, ID, b"consensus", &lab.machine.snapshot()).unwrap()
}

fn install(path: &Path) -> Result<Machine, SnapshotError> {
    let mut machine = Machine::default();
    machine.install(SnapshotReader::open(path, ID)?)?;
    Ok(machine)
}

#[test]
fn what_was_written_is_read() {
    for keys in [0, 1, 5_000] {
        let directory = tempfile::tempdir().unwrap();
        let lab = lab(keys);
        let written = write_lab(directory.path(), &lab);
        assert_eq!(written.bytes, fs::metadata(&written.path).unwrap().len());
        assert_eq!(written.checksum, lab.machine.checksum().unwrap());
        let reader = SnapshotReader::open(&written.path, ID).unwrap();
        assert_eq!(reader.slot(), lab.machine.applied());
        assert_eq!(reader.attachment(), "consensus");
        assert_eq!(reader.directory_id(), ID);
        let machine = install(&written.path).unwrap();
        assert_eq!(rows(machine.store()), rows(lab.machine.store()));
        assert_eq!(machine.applied(), lab.machine.applied());
        assert_eq!(machine.view(0).meta(), lab.machine.view(0).meta());
    }
}

#[test]
fn a_row_larger_than_a_block_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut lab = lab(10);
    lab.run(&[b"SET", b"large", &vec![7; 300_000]]);
    let written = write_lab(directory.path(), &lab);
    assert_eq!(install(&written.path).unwrap().checksum().unwrap(), lab.machine.checksum().unwrap());
}

#[test]
fn the_machine_goes_on_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut lab = lab(2_000);
    let expected = lab.machine.checksum().unwrap();
    let snapshot = lab.machine.snapshot();
    let path = directory.path().to_path_buf();
    let writer = std::thread::spawn(move || write(&path, ID, b"", &snapshot).unwrap());
    for n in 0..2_000 {
        lab.run(&[b"SET", format!("key:{n}").as_bytes(), b"later"]);
    }
    let written = writer.join().unwrap();
    assert_eq!(written.checksum, expected);
    assert_eq!(install(&written.path).unwrap().checksum().unwrap(), expected);
}

#[test]
fn old_ones_are_removed_and_a_damaged_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut lab = lab(3);
    let mut written = Vec::new();
    for _ in 0..3 {
        lab.say("INCR n");
        written.push(write_lab(directory.path(), &lab));
    }
    fs::write(directory.path().join("snapshot-00000000000000000009.rows.tmp"), b"half").unwrap();
    fs::write(directory.path().join("other"), b"").unwrap();
    remove_old(directory.path(), 2).unwrap();
    let slots: Vec<u64> = list(directory.path()).unwrap().into_iter().map(|(slot, _)| slot).collect();
    assert_eq!(slots, [6, 5]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);

    let newest = &list(directory.path()).unwrap()[0].1;
    let mut bytes = fs::read(newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(newest, bytes).unwrap();
    let error = install(newest).err().unwrap();
    assert!(error.is_damage());
    let text = error.to_string();
    assert!(text.contains("snapshot-00000000000000000006.rows is damaged at offset"), "{text}");
    // The caller falls back to the next older one.
    let good = list(directory.path()).unwrap().into_iter().find_map(|(_, path)| install(&path).ok()).unwrap();
    assert_eq!(good.applied(), 5);
    assert_eq!(good.checksum().unwrap(), written[1].checksum);
}

#[test]
fn foreign_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let written = write_lab(directory.path(), &lab(3));
    let error = SnapshotReader::open(&written.path, [9; 16]).err().unwrap();
    assert!(error.to_string().contains("another data directory"), "{error}");
    assert!(SnapshotReader::open_any(&written.path).is_ok());
    let error = SnapshotReader::open(&directory.path().join("none"), ID).err().unwrap();
    assert!(error.to_string().starts_with("cannot open"), "{error}");
}

#[test]
fn a_bad_file_leaves_the_machine_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let written = write_lab(directory.path(), &lab(50));
    let mut bytes = fs::read(&written.path).unwrap();
    bytes.pop();
    fs::write(&written.path, bytes).unwrap();
    let mut other = lab(7);
    let before = other.machine.checksum().unwrap();
    assert!(other.machine.install(SnapshotReader::open(&written.path, ID).unwrap()).is_err());
    assert_eq!(other.machine.checksum().unwrap(), before);
    assert_eq!(other.say("GET key:3"), "\"vvv\"");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any flipped bit, lost end or added byte: an error, never other rows.
    #[test]
    fn damage_is_always_noticed(keys in 0..40_usize, at in any::<prop::sample::Index>(), bit in 0..8, how in 0..3) {
        let directory = tempfile::tempdir().unwrap();
        let written = write_lab(directory.path(), &lab(keys));
        let mut bytes = fs::read(&written.path).unwrap();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] ^= 1_u8 << bit,
            1 => bytes.truncate(at),
            _ => bytes.insert(at, 1_u8 << bit),
        }
        fs::write(&written.path, &bytes).unwrap();
        let error = install(&written.path).err();
        prop_assert!(error.as_ref().is_some_and(SnapshotError::is_damage), "{how} {at}: {error:?}");
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        fs::write(&path, bytes).unwrap();
        prop_assert!(install(&path).is_err());
    }
}

#[test]
fn an_empty_machine_has_an_empty_checksum() {
    assert_eq!(Machine::default().checksum().unwrap(), Checksum::default());
}
