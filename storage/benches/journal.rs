//! The journal on a real disk: `cargo bench -p warlock-storage --bench journal`.
//!
//! What a sync costs is the disk's affair; the point is what the journal adds to it, and how many batches share one. The directory lies in the
//! build's target directory, because a temporary one may be in memory.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use std::os::unix::fs::FileExt;
use warlock_storage::journal::{Journal, Options};

fn main() {
    divan::main();
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn journal(directory: &tempfile::TempDir) -> Journal {
    let mut options = Options::new(directory.path().join("journal"), [7; 16]);
    options.create = true;
    Journal::open(options, |_| Ok(()), || {}).unwrap()
}

/// The limit: one write in place and one sync, without a journal.
#[divan::bench(args = [100, 4_096, 65_536], sample_count = 200, sample_size = 1)]
fn bare_sync(bencher: Bencher<'_, '_>, bytes: usize) {
    let directory = directory();
    let file = std::fs::File::create(directory.path().join("bare")).unwrap();
    file.write_all_at(&vec![0; 32 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let record = vec![7; bytes];
    let mut offset = 0;
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        file.write_all_at(&record, offset).unwrap();
        file.sync_data().unwrap();
        offset = (offset + bytes as u64) % (31 << 20);
    });
}

/// One batch of one record, waited for: what a lonely client sees.
#[divan::bench(args = [100, 4_096, 65_536], sample_count = 200, sample_size = 1)]
fn append_and_wait(bencher: Bencher<'_, '_>, bytes: usize) {
    let directory = directory();
    let mut journal = journal(&directory);
    let record = Bytes::from(vec![7; bytes]);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        let number = journal.append(vec![record.clone()]).unwrap();
        while journal.wait().through < number {}
    });
}

/// Many batches under way at once: they share writes and syncs.
#[divan::bench(args = [8, 64, 512], sample_count = 50, sample_size = 1)]
fn append_many(bencher: Bencher<'_, '_>, batches: usize) {
    let directory = directory();
    let mut journal = journal(&directory);
    let record = Bytes::from(vec![7; 100]);
    bencher.counter(ItemsCount::new(batches)).bench_local(|| {
        let mut number = 0;
        for _ in 0..batches {
            number = journal.append(vec![record.clone()]).unwrap();
        }
        while journal.wait().through < number {}
    });
}

/// A start: 100,000 records are read back and checked.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn replay(bencher: Bencher<'_, '_>) {
    const RECORDS: usize = 100_000;
    let directory = directory();
    {
        let mut journal = journal(&directory);
        let records = vec![Bytes::from(vec![7; 100]); 1_000];
        for _ in 0..RECORDS / records.len() {
            let number = journal.append(records.clone()).unwrap();
            while journal.wait().through < number {}
        }
    }
    bencher.counter(ItemsCount::new(RECORDS)).bench_local(|| {
        let mut records = 0;
        let options = Options::new(directory.path().join("journal"), [7; 16]);
        let count = |_: &[u8]| {
            records += 1;
            Ok(())
        };
        drop(Journal::open(options, count, || {}).unwrap());
        assert_eq!(records, RECORDS);
    });
}
