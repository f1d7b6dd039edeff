//! Power failures: rebuilds from the recorded operations what a disk may hold after a crash at each of them.
//!
//! The model of the disk: a synced file holds what was written; of writes since, each sector holds what it held after any
//! number of them. A synced directory holds its entries; of changes since, any number of the first ones happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::support::*;

const SEGMENT_BYTES: u32 = 512;
/// Smaller than any real sector, so that writes tear within records.
const SECTOR_BYTES: usize = 16;

/// A small random source, so that a failure is a number.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// How much of what was not synced survives.
#[derive(Clone, Copy, Debug)]
enum Survival {
    /// The process died, the machine lives.
    Everything,
    /// The power failed before the device wrote anything.
    Nothing,
    Some(u64),
}

#[derive(Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

impl Inode {
    fn apply(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        if content.len() < offset + bytes.len() {
            content.resize(offset + bytes.len(), 0);
        }
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn after(&self, writes: usize) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (offset, bytes) in &self.pending[..writes] {
            Inode::apply(&mut content, *offset, bytes);
        }
        content
    }

    fn crash(&self, survival: Survival, random: &mut Random) -> Vec<u8> {
        match survival {
            Survival::Everything => self.after(self.pending.len()),
            Survival::Nothing => self.durable.clone(),
            Survival::Some(_) => {
                let versions: Vec<_> = (0..=self.pending.len()).map(|writes| self.after(writes)).collect();
                let mut content = versions.last().unwrap().clone();
                for start in (0..content.len()).step_by(SECTOR_BYTES) {
                    let end = (start + SECTOR_BYTES).min(content.len());
                    let mut version = versions[random.below(versions.len())].clone();
                    version.resize(content.len(), 0);
                    content[start..end].copy_from_slice(&version[start..end]);
                }
                content
            }
        }
    }
}

type Names = BTreeMap<String, usize>;

/// A directory as a disk with a volatile cache sees it.
#[derive(Clone, Default)]
struct Model {
    inodes: Vec<Inode>,
    /// What a running process sees.
    names: Names,
    /// The directory at the last sync, and after each change since.
    states: Vec<Names>,
}

impl Model {
    fn from_files(files: &[(String, Vec<u8>)]) -> Model {
        let mut model = Model::default();
        for (name, bytes) in files {
            model.names.insert(name.clone(), model.inodes.len());
            model.inodes.push(Inode { durable: bytes.clone(), pending: Vec::new() });
        }
        model.states.push(model.names.clone());
        model
    }

    fn inode(&mut self, name: &str) -> &mut Inode {
        &mut self.inodes[self.names[name]]
    }

    fn perform(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(name) => {
                self.names.insert(name.clone(), self.inodes.len());
                self.inodes.push(Inode::default());
                self.states.push(self.names.clone());
            }
            Operation::Allocate(name, length) => self.inode(name).durable.resize(*length as usize, 0),
            Operation::Write { name, offset, bytes } => {
                self.inode(name).pending.push((*offset as usize, bytes.clone()));
            }
            Operation::Sync(name) => {
                let inode = self.inode(name);
                inode.durable = inode.after(inode.pending.len());
                inode.pending.clear();
            }
            Operation::Rename(from, to) => {
                let inode = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), inode);
                self.states.push(self.names.clone());
            }
            Operation::Remove(name) => {
                self.names.remove(name).unwrap();
                self.states.push(self.names.clone());
            }
            Operation::SyncDirectory => self.states = vec![self.names.clone()],
        }
    }

    fn crash(&self, survival: Survival) -> Vec<(String, Vec<u8>)> {
        let mut random = Random(match survival {
            Survival::Some(seed) => seed | 1,
            _ => 1,
        });
        let names = match survival {
            Survival::Everything => &self.names,
            Survival::Nothing => &self.states[0],
            Survival::Some(_) => &self.states[random.below(self.states.len())],
        };
        names
            .iter()
            .map(|(name, &inode)| (name.clone(), self.inodes[inode].crash(survival, &mut random)))
            .collect()
    }
}

/// A step of the host: what must be there after it, and what may be there while it is under way.
struct Step {
    /// Length of the log when the host knew that the step was durable.
    known_at: usize,
    state: Vec<Vec<u8>>,
    /// Records that the step appends to the state before; `None` for a checkpoint, which replaces it.
    appended: Option<Vec<Vec<u8>>>,
}

/// A host that appends, several batches at a time, and makes checkpoints.
fn host(
    disk: &TestDisk,
    journal: &mut crate::journal::Journal,
    before: Vec<Vec<u8>>,
    random: &mut Random,
) -> Vec<Step> {
    let mut steps = vec![Step { known_at: disk.log_length(), state: before, appended: None }];
    for step in 1..30 {
        let mut state = steps.last().unwrap().state.clone();
        // Few lengths, so that remnants and old frames often lie where a new frame ends.
        let mut some_records = |first: usize| {
            let lengths: Vec<usize> = (0..1 + random.below(3)).map(|_| 14 + 16 * random.below(4)).collect();
            records(first, &lengths)
        };
        let appended = if step % 8 == 7 {
            // Sometimes larger than a segment.
            state = [some_records(step * 1000), records(step * 1000 + 500, &[110; 5][..step % 5])].concat();
            checkpoint(journal, &state).result.unwrap();
            None
        } else {
            let mut appended = Vec::new();
            let mut number = 0;
            for batch_index in 0..3 {
                let records = some_records(step * 1000 + batch_index * 100);
                number = journal.append(batch(&records)).unwrap();
                appended.extend(records);
            }
            wait_for(journal, number).result.unwrap();
            state.extend(appended.iter().cloned());
            Some(appended)
        };
        steps.push(Step { known_at: disk.log_length(), state, appended });
    }
    steps
}

/// Whether `found` is what a crash after `operations` may leave.
fn check(steps: &[Step], operations: usize, found: &[Vec<u8>], context: &str) {
    let known = steps.iter().rposition(|step| step.known_at <= operations).unwrap_or(0);
    let state = &steps[known].state;
    if found == state {
        return;
    }
    let next = steps.get(known + 1).unwrap_or_else(|| panic!("{context}: not the final state"));
    match &next.appended {
        None => assert_eq!(found, next.state, "{context}: neither before nor after the checkpoint"),
        Some(appended) => {
            assert!(
                found.len() > state.len() && found.len() <= state.len() + appended.len(),
                "{context}: length"
            );
            assert_eq!(found, &next.state[..found.len()], "{context}: not a prefix");
        }
    }
}

fn survivals(operations: usize, seeds: u64) -> Vec<Survival> {
    let seed =
        |index| Survival::Some((operations as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index << 20));
    [Survival::Everything, Survival::Nothing].into_iter().chain((0..seeds).map(seed)).collect()
}

#[test]
fn a_crash_at_any_operation_leaves_a_correct_state() {
    for (seed, is_direct) in [(42, false), (43, true)] {
        crash_at_each_operation(seed, is_direct);
    }
}

/// The disk is full at one operation after the other, for a few tries each; half of a write may get through before.
///
/// Every file operation that needs room is met: the records that wait are written in the end, in order, and a crash while they wait, or later,
/// leaves a correct state.
#[test]
fn a_disk_that_is_full_at_any_operation_delays_and_harms_nothing() {
    let whole = {
        let directory = temporary_directory();
        let disk = TestDisk::new();
        let (mut journal, _) = open_on(disk.clone(), options(directory.path(), SEGMENT_BYTES)).unwrap();
        host(&disk, &mut journal, Vec::new(), &mut Random(42));
        drop(journal);
        disk.log_length()
    };
    let met = Arc::new(AtomicUsize::new(0));
    for full_at in 0..whole {
        let directory = temporary_directory();
        let (mut operations, mut tries, counted) = (0, 0, Arc::clone(&met));
        let armed = Arc::new(AtomicBool::new(false));
        let is_armed = Arc::clone(&armed);
        let disk = TestDisk::with_fault(move |operation| {
            if !is_armed.load(Ordering::SeqCst) || !needs_room(operation) {
                return Fault::None;
            }
            operations += 1;
            if operations <= full_at || tries > full_at % 3 {
                return Fault::None;
            }
            tries += 1;
            counted.fetch_add(1, Ordering::SeqCst);
            match operation {
                // Not of a header: its file is given up, and another is tried.
                Operation::Write { bytes, .. } if tries == 1 && full_at % 2 == 0 => {
                    Fault::Short(bytes.len() / 2)
                }
                _ => Fault::Error(std::io::ErrorKind::StorageFull),
            }
        })
        .direct(full_at % 4 < 2);
        let (mut journal, _) = open_on(disk.clone(), options(directory.path(), SEGMENT_BYTES)).unwrap();
        armed.store(true, Ordering::SeqCst);
        let steps = host(&disk, &mut journal, Vec::new(), &mut Random(42));
        drop(journal);
        let context = format!("full at operation {full_at}");
        let expected = &steps.last().unwrap().state;
        assert_eq!(&replay(directory.path(), SEGMENT_BYTES).unwrap(), expected, "{context}");
        crash_somewhere(&disk.log(), &steps, full_at as u64, &context);
    }
    assert!(met.load(Ordering::SeqCst) > whole / 3, "the disk was full only {met:?} times");
}

fn needs_room(operation: &Operation) -> bool {
    !matches!(operation, Operation::Sync(_) | Operation::SyncDirectory | Operation::Remove(_))
}

/// A few crashes, the places drawn from the seed.
fn crash_somewhere(log: &[Operation], steps: &[Step], seed: u64, context: &str) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let crashes: std::collections::BTreeSet<usize> = (0..6).map(|_| 1 + random.below(log.len())).collect();
    let mut model = Model::from_files(&[]);
    for (done, operation) in (1..).zip(log) {
        model.perform(operation);
        if crashes.contains(&done) {
            let survival = survivals(done, 1)[random.below(3)];
            let context = format!("{context}: {done} of {} operations, {survival:?}", log.len());
            let copy = restore(&model.crash(survival));
            let (_, found) = open_on(TestDisk::new(), options(copy.path(), SEGMENT_BYTES))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            check(steps, done, &found, &context);
        }
    }
}

fn crash_at_each_operation(seed: u64, is_direct: bool) {
    let directory = temporary_directory();
    let disk = TestDisk::new().direct(is_direct);
    let (mut journal, _) = open_on(disk.clone(), options(directory.path(), SEGMENT_BYTES)).unwrap();
    let steps = host(&disk, &mut journal, Vec::new(), &mut Random(seed));
    drop(journal);
    let log = disk.log();
    let count = |matches: fn(&Operation) -> bool| log.iter().filter(|operation| matches(operation)).count();
    assert!(
        count(|operation| matches!(operation, Operation::Rename(from, _) if from.starts_with("segment-")))
            >= 3
    );

    let mut model = Model::from_files(&[]);
    for operations in 0..=log.len() {
        if operations > 0 {
            model.perform(&log[operations - 1]);
        }
        for (index, survival) in survivals(operations, 3).into_iter().enumerate() {
            let context = format!("seed {seed}: {operations} of {} operations, {survival:?}", log.len());
            let files = model.crash(survival);
            let copy = restore(&files);
            let second_disk = TestDisk::new().direct(is_direct);
            let (mut journal, found) = open_on(second_disk.clone(), options(copy.path(), SEGMENT_BYTES))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&steps, operations, &found, &context);
            // When only the process died, what it did not sync is still volatile.
            let only_the_process = matches!(survival, Survival::Everything);
            if only_the_process && operations % 3 == 0 {
                crash_again(model.clone(), &second_disk, &mut journal, found, (&steps, operations), &context);
            } else if (operations * 5 + index) % 131 == 0 {
                let model = Model::from_files(&files);
                crash_again(model, &second_disk, &mut journal, found, (&steps, operations), &context);
            }
        }
    }
}

/// The recovered journal is used, and the power fails a second time: during the recovery, or soon after.
fn crash_again(
    mut model: Model,
    disk: &TestDisk,
    journal: &mut crate::journal::Journal,
    recovered: Vec<Vec<u8>>,
    (first_steps, operations): (&[Step], usize),
    context: &str,
) {
    let opened_at = disk.log_length();
    let mut steps = vec![Step { known_at: opened_at, state: recovered, appended: None }];
    for length in [14, 30, 14] {
        let appended = records(900_000 + length, &[length]);
        append(journal, &appended).result.unwrap();
        let state = [steps.last().unwrap().state.clone(), appended.clone()].concat();
        steps.push(Step { known_at: disk.log_length(), state, appended: Some(appended) });
    }
    let log = disk.log();
    for (again, operation) in log.iter().enumerate() {
        model.perform(operation);
        // One of the three each time; the many first crashes make up for the others.
        for survival in
            survivals(operations * 1000 + again, 1).into_iter().skip((operations / 3 + again) % 3).take(1)
        {
            let context = format!("{context}, then {} of {}, {survival:?}", again + 1, log.len());
            let copy = restore(&model.crash(survival));
            let (_, found) = open_on(TestDisk::new(), options(copy.path(), SEGMENT_BYTES))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            if again + 1 < opened_at {
                // What the interrupted recovery replayed was promised to nobody; only the first life counts.
                check(first_steps, operations, &found, &context);
            } else {
                check(&steps, again + 1, &found, &context);
            }
        }
    }
}
