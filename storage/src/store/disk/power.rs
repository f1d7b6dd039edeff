//! Losses of power: of what was written behind the last sync, any pages may be lost and others not. The store must open at the synced boundary or a later one, with exactly the
//! rows of that boundary, and what comes from the node's journal behind it must lead to the state that a machine in memory has.

use super::mend::{journals, whole};
use super::{Attachment, DiskStore, Workshop};
use crate::machine::{Checksum, Machine, Stamp, encode_command};
use crate::store::{Store, StoreError};
use bytes::Bytes;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGE_BYTES: u64 = 4096;

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn workshop(directory: &Path) -> Workshop {
    Workshop::new(directory, 1 << 20, Arc::new(|| ()))
}

fn run<S: Store>(machine: &mut Machine<S>, commands: &[Bytes]) {
    let slot = machine.applied() + 1;
    for (index, command) in (0..).zip(commands) {
        machine.apply(&Stamp { slot, index, at_ms: 1_000 + slot }, command);
    }
    machine.finish_slot(slot).unwrap();
}

/// A store that was written to, as it lies on the disk, and what a machine in memory knows of it.
struct Written {
    directory: tempfile::TempDir,
    slots: Vec<Vec<Bytes>>,
    /// By slot.
    sums: Vec<Checksum>,
    /// The boundary that was synced.
    synced: u64,
    /// The journal that is written, where it was synced, and where it ends.
    journal: PathBuf,
    from: u64,
    to: u64,
}

impl Written {
    /// Every slot becomes a layer; the one of slot `synced` is synced and the others are not.
    fn new(slot_count: u64, synced: u64, value_bytes: u64, seed: u64) -> Written {
        let mut random = Random(seed);
        let mut command = |_| {
            let key = format!("key{}", random.below(16));
            if random.below(5) == 0 {
                return encode_command(0, &[b"DEL", key.as_bytes()]);
            }
            let value = vec![random.below(256) as u8; 1 + random.below(value_bytes) as usize];
            encode_command(0, &[b"SET", key.as_bytes(), &value])
        };
        let slots: Vec<Vec<Bytes>> = (0..slot_count).map(|_| (0..8).map(&mut command).collect()).collect();
        let directory = tempfile::tempdir().unwrap();
        let shop = workshop(directory.path());
        let nothing = std::iter::empty::<Result<_, StoreError>>();
        let first = Attachment { slot: 0, bytes: Bytes::new() };
        let store = shop.found(shop.prepare(nothing, Some(&first)).unwrap()).unwrap();
        let (mut disk, mut memory) = (Machine::open(store).unwrap(), Machine::default());
        let mut sums = vec![memory.checksum().unwrap()];
        let active = || journals(&directory.path().join("rows-1")).unwrap().pop().unwrap();
        let mut at_sync = (PathBuf::new(), 0);
        for (slot, commands) in (1..).zip(&slots) {
            run(&mut disk, commands);
            run(&mut memory, commands);
            sums.push(memory.checksum().unwrap());
            let attachment = Attachment { slot, bytes: Bytes::new() };
            disk.store_mut().seal(attachment, slot == synced).unwrap();
            if slot == synced {
                disk.store_mut().settle().unwrap();
                at_sync = (active(), whole(&active()).unwrap().end);
            }
        }
        disk.store_mut().settle().unwrap();
        drop(disk);
        let journal = active();
        // A new journal is made after the one before was synced, and nothing of the new one was.
        let from = if journal == at_sync.0 { at_sync.1 } else { 0 };
        let to = whole(&journal).unwrap().end;
        assert!(from < to, "nothing was written behind the sync");
        // Zeros behind the end stay, but not 64 MiB of them: they would be copied again and again.
        OpenOptions::new().write(true).open(&journal).unwrap().set_len(to + 3 * PAGE_BYTES).unwrap();
        Written { directory, slots, sums, synced, journal, from, to }
    }

    /// The same directory again, with a journal that is hurt.
    fn hurt(&self, hurt: impl FnOnce(&fs::File)) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(self.directory.path(), copy.path());
        let journal = copy.path().join(self.journal.strip_prefix(self.directory.path()).unwrap());
        hurt(&OpenOptions::new().write(true).open(journal).unwrap());
        copy
    }

    /// The rows are those of a boundary, and with what comes behind it those of the end.
    fn check(&self, store: DiskStore, slot: u64) {
        let mut machine = Machine::open(store).unwrap();
        assert_eq!(machine.applied(), slot);
        assert_eq!(
            machine.checksum().unwrap(),
            self.sums[slot as usize],
            "the rows are not those of slot {slot}"
        );
        for (slot, commands) in (slot + 1..).zip(&self.slots[slot as usize..]) {
            run(&mut machine, commands);
            machine.store_mut().seal(Attachment { slot, bytes: Bytes::new() }, false).unwrap();
        }
        assert_eq!(machine.checksum().unwrap(), *self.sums.last().unwrap());
        machine.store_mut().settle().unwrap();
    }

    fn open(&self, directory: &Path) -> (DiskStore, u64) {
        let (store, found) = workshop(directory).open().unwrap().unwrap();
        (store, found.unwrap().slot)
    }

    /// Loses what was not synced in many ways, and opens.
    fn lose_power(&self, trials: u64, seed: u64) {
        let mut random = Random(seed);
        let mut reached = Vec::new();
        for trial in 1..=trials {
            let copy = self.hurt(|journal| self.lose(journal, trial, &mut random));
            let (store, slot) = self.open(copy.path());
            assert!(slot >= self.synced, "trial {trial}: opened at slot {slot}, synced at {}", self.synced);
            reached.push(slot);
            self.check(store, slot);
            if trial <= 8 {
                // What was cut is not there again, and what was written since is.
                let (store, slot) = self.open(copy.path());
                assert_eq!((store.cut_bytes(), slot), (0, self.slots.len() as u64));
                self.check(store, slot);
            }
        }
        reached.sort_unstable();
        reached.dedup();
        assert!(reached.len() > 1, "all trials lost the same: {reached:?}");
    }

    fn lose(&self, journal: &fs::File, trial: u64, random: &mut Random) {
        let pages: Vec<u64> = (self.from / PAGE_BYTES..=(self.to - 1) / PAGE_BYTES).collect();
        let lose_page = |page: u64, byte: u8| {
            let begin = (page * PAGE_BYTES).max(self.from);
            let end = ((page + 1) * PAGE_BYTES).min(self.to);
            journal.write_all_at(&vec![byte; (end - begin) as usize], begin).unwrap();
        };
        let mut one = || pages[random.below(pages.len() as u64) as usize];
        match trial % 4 {
            0 => lose_page(one(), 0),
            1 => lose_page(one(), 0x5a), // as it was before the file had it
            2 => journal.set_len(self.from + random.below(self.to - self.from + 1)).unwrap(),
            _ => {
                let lost_of_ten = 1 + random.below(9);
                pages.iter().filter(|_| random.below(10) < lost_of_ten).for_each(|page| lose_page(*page, 0));
            }
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn after_a_loss_of_power_the_store_opens_at_the_synced_boundary_or_later() {
    Written::new(60, 20, 5_000, 1).lose_power(48, 2);
}

#[test]
fn the_same_when_the_engine_has_sorted_files_and_more_than_one_journal() {
    let written = Written::new(150, 50, 200_000, 3);
    let all = journals(&written.directory.path().join("rows-1")).unwrap();
    assert!(
        all.len() > 1 || written.journal.file_name().unwrap() != "0.jnl",
        "one journal took all: {all:?}"
    );
    written.lose_power(3, 4);
}

#[test]
fn damage_before_the_synced_boundary_never_gives_wrong_rows() {
    let written = Written::new(30, 20, 5_000, 5);
    let mut random = Random(6);
    for _ in 0..20 {
        let at = random.below(written.from);
        let copy = written.hurt(|journal| journal.write_all_at(&[0xa5; 3], at).unwrap());
        // The host sees that its journal begins behind this boundary, and refuses.
        let (store, slot) = written.open(copy.path());
        assert!(slot < written.synced, "damage at byte {at} was not seen");
        assert!(store.cut_bytes() > 0);
        written.check(store, slot);
    }
}

#[test]
fn a_journal_that_was_synced_as_a_whole_is_not_cut_but_refused() {
    let written = Written::new(20, 10, 5_000, 7);
    for byte in [0, 0xa5] {
        let copy = written.hurt(|journal| journal.write_all_at(&[byte; 4096], written.to / 2).unwrap());
        let (rows, name) = (copy.path().join("rows-1"), written.journal.file_name().unwrap());
        fs::write(rows.join("1000.jnl"), b"").unwrap();
        let before = fs::read(rows.join(name)).unwrap();
        let error = workshop(copy.path()).open().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(name.to_str().unwrap()) && error.contains("the disk is not sound"), "{error}");
        assert!(fs::read(rows.join(name)).unwrap() == before, "what is refused is left as it is");
    }
}

#[test]
fn a_database_of_another_format_is_left_to_the_engine() {
    let written = Written::new(10, 5, 500, 8);
    let copy = written.hurt(|journal| journal.write_all_at(&[0xa5], written.from).unwrap());
    let journal = copy.path().join(written.journal.strip_prefix(written.directory.path()).unwrap());
    let length = fs::metadata(&journal).unwrap().len();
    fs::write(copy.path().join("rows-1/version"), b"FJL\x04").unwrap();
    assert!(workshop(copy.path()).open().is_err());
    assert_eq!(fs::metadata(&journal).unwrap().len(), length);
}
