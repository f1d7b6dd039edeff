//! A disk that records, fails on demand and does not sync for real; and a host that knows what must come back.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use crate::journal::{Completion, Disk, Journal, OpenError, Options, SystemDisk};

pub(super) const ID: [u8; 16] = *b"0123456789abcdef";

/// A file operation as the disk saw it; names are file names within the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create(String),
    Allocate(String, u64),
    Write { name: String, offset: u64, bytes: Vec<u8> },
    Sync(String),
    Rename(String, String),
    Remove(String),
    SyncDirectory,
}

impl Operation {
    /// A write or sync of a segment, as opposed to a spare.
    pub(super) fn is_segment_sync(&self) -> bool {
        matches!(self, Operation::Sync(name) if name.starts_with("segment-"))
    }
}

/// What to do to an operation.
pub(super) enum Fault {
    None,
    Error(io::ErrorKind),
    /// Write at most so many bytes.
    Short(usize),
}

type FaultFunction = Box<dyn FnMut(&Operation) -> Fault + Send>;

/// Performs operations without syncing, one at a time, and remembers them.
pub(super) struct TestDisk {
    log: Mutex<Vec<Operation>>,
    fault: Mutex<FaultFunction>,
    /// Whether segments are written past the page cache: a write and a sync in one call.
    is_direct: bool,
}

/// Small, so that small segments have several.
const BLOCK_BYTES: usize = 64;

impl TestDisk {
    pub(super) fn new() -> Arc<TestDisk> {
        TestDisk::with_fault(|_| Fault::None)
    }

    pub(super) fn with_fault(fault: impl FnMut(&Operation) -> Fault + Send + 'static) -> Arc<TestDisk> {
        Arc::new(TestDisk { log: Mutex::default(), fault: Mutex::new(Box::new(fault)), is_direct: false })
    }

    /// The same disk, with writes past the page cache or without.
    pub(super) fn direct(self: Arc<TestDisk>, is_direct: bool) -> Arc<TestDisk> {
        let disk = Arc::into_inner(self).unwrap();
        Arc::new(TestDisk { is_direct, ..disk })
    }

    pub(super) fn log(&self) -> Vec<Operation> {
        self.log.lock().unwrap().clone()
    }

    pub(super) fn log_length(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// Runs `action` unless the fault says otherwise. The lock on the fault is held, so that the log has the true order.
    fn perform<T>(&self, operation: Operation, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut fault = self.fault.lock().unwrap();
        if let Fault::Error(kind) = fault(&operation) {
            return Err(kind.into());
        }
        let result = action()?;
        self.log.lock().unwrap().push(operation);
        Ok(result)
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_string()
}

impl Disk for TestDisk {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.perform(Operation::Create(name(path)), || SystemDisk.create(path))
    }
    fn allocate(&self, file: &File, path: &Path, length: u64) -> io::Result<()> {
        self.perform(Operation::Allocate(name(path), length), || SystemDisk.allocate(file, path, length))
    }
    fn write_at(&self, file: &File, path: &Path, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let operation = |bytes: &[u8]| Operation::Write { name: name(path), offset, bytes: bytes.to_vec() };
        let mut fault = self.fault.lock().unwrap();
        let length = match fault(&operation(bytes)) {
            Fault::None => bytes.len(),
            Fault::Short(length) => length.min(bytes.len()),
            Fault::Error(kind) => return Err(kind.into()),
        };
        let written = SystemDisk.write_at(file, path, &bytes[..length], offset)?;
        self.log.lock().unwrap().push(operation(&bytes[..written]));
        Ok(written)
    }
    fn sync(&self, _file: &File, path: &Path) -> io::Result<()> {
        self.perform(Operation::Sync(name(path)), || Ok(()))
    }
    fn open_direct(&self, path: &Path) -> Option<(File, usize)> {
        let file = File::options().write(true).open(path).unwrap();
        self.is_direct.then_some((file, BLOCK_BYTES))
    }
    fn write_durably(&self, file: &File, path: &Path, blocks: &[u8], offset: u64) -> io::Result<usize> {
        let at = blocks.as_ptr() as usize;
        assert!([at, blocks.len(), offset as usize].iter().all(|place| place.is_multiple_of(BLOCK_BYTES)));
        let written = self.write_at(file, path, blocks, offset)? / BLOCK_BYTES * BLOCK_BYTES;
        if written == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.sync(file, path)?;
        Ok(written)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.perform(Operation::Rename(name(from), name(to)), || SystemDisk.rename(from, to))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.perform(Operation::Remove(name(path)), || SystemDisk.remove(path))
    }
    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        self.perform(Operation::SyncDirectory, || Ok(()))
    }
}

/// Small segments, no barrier by time: what is on the disk depends on the calls only.
pub(super) fn options(directory: &Path, segment_bytes: u32) -> Options {
    let mut options = Options::new(directory, ID);
    options.create = true;
    options.segment_bytes = segment_bytes;
    options.barrier_after = None;
    options.try_again_after = Duration::from_millis(1);
    options
}

/// Opens and returns what was replayed.
pub(super) fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<(Journal, Vec<Vec<u8>>), OpenError> {
    let mut records = Vec::new();
    let journal = Journal::open_on(
        disk,
        options,
        |record| {
            records.push(record.to_vec());
            Ok(())
        },
        || {},
    )?;
    Ok((journal, records))
}

/// Opens on a disk without faults; the journal must exist.
pub(super) fn replay(directory: &Path, segment_bytes: u32) -> Result<Vec<Vec<u8>>, OpenError> {
    let mut options = options(directory, segment_bytes);
    options.create = false;
    open_on(TestDisk::new(), options).map(|(_, records)| records)
}

pub(super) fn batch(records: &[Vec<u8>]) -> Vec<Bytes> {
    records.iter().cloned().map(Bytes::from).collect()
}

/// Waits until request `number` is answered; returns the completion that covers it.
pub(super) fn wait_for(journal: &mut Journal, number: u64) -> Completion {
    loop {
        let completion = journal.wait();
        if completion.through >= number {
            return completion;
        }
        completion.result.unwrap();
    }
}

pub(super) fn append(journal: &mut Journal, records: &[Vec<u8>]) -> Completion {
    let number = journal.append(batch(records)).unwrap();
    wait_for(journal, number)
}

pub(super) fn checkpoint(journal: &mut Journal, records: &[Vec<u8>]) -> Completion {
    let number = journal.checkpoint(batch(records)).unwrap();
    wait_for(journal, number)
}

/// Records `first..` of the given lengths; content differs from record to record and tells its number.
pub(super) fn records(first: usize, lengths: &[usize]) -> Vec<Vec<u8>> {
    let record = |(index, &length): (usize, &usize)| {
        let number = first + index;
        (0..length).map(|at| (number * 31 + at * 7 + number / 256) as u8).collect()
    };
    lengths.iter().enumerate().map(record).collect()
}

/// The segment files of a directory, ascending.
pub(super) fn segments(directory: &Path) -> Vec<PathBuf> {
    files(directory, "segment-")
}

/// The files whose name begins so, ascending.
pub(super) fn files(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| name(path).starts_with(prefix)).collect();
    files.sort();
    files
}

/// The segment files and their content, as they are now.
pub(super) fn snapshot(directory: &Path) -> Vec<(String, Vec<u8>)> {
    segments(directory).iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect()
}

/// A temporary directory, in memory where there is such a place: the test disk does not sync, but other users of a busy
/// disk would still make thousands of small files slow.
pub(super) fn temporary_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A new directory with these files.
pub(super) fn restore(files: &[(String, Vec<u8>)]) -> tempfile::TempDir {
    let directory = temporary_directory();
    for (name, bytes) in files {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

/// Ends of the frames in an intact segment, found by their lengths alone.
pub(super) fn frame_ends(segment: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut offset = 64;
    while offset + 16 <= segment.len() && segment[offset + 12] != 0 {
        let length = u32::from_le_bytes(segment[offset..offset + 4].try_into().unwrap());
        offset += 16 + length as usize;
        ends.push(offset);
    }
    ends
}
