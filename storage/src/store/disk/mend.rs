//! Cuts off what a loss of power left half of, before the engine opens its own journal.
//!
//! Between two syncs the engine hands its journal (`N.jnl`, the highest number is the one that is written) to the system, which may have written any pages of it, and not
//! others, when the power goes. The engine takes back a batch that is cut short at the end, but refuses to open when bytes inside of one are wrong. For us the two are the same: every batch is a
//! slot boundary, and the node's own journal goes on behind any boundary from the last synced one on. So the first batch that is not whole ends the journal here.
//!
//! A journal with a lower number was synced before the next one was made: what is wrong there was damaged later, and is refused. Whether what is left reaches
//! back far enough for the node's journal to go on is for the host to say.
//!
//! ```text
//! batch   1 · items⁴ · sequence number⁸ · item… · 3 · xxh3 of all items⁸ · "FJL" 3             (integers are little-endian)
//! item    2 · kind · compression (0) · keyspace⁸ · length of the key² · of the value⁴ · of the value as it is stored⁴ · key · value
//! ```
//! Behind the last batch there may be zeros: a journal is made 64 MiB long.

use crate::store::StoreError;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// The engine's format that is understood here; another one is left alone.
const VERSION: &[u8] = b"FJL\x03";
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const BUFFER_BYTES: usize = 1 << 18;

/// Looks through the journals of the database in `directory`, which nobody may have open. How many bytes behind the last whole batch were cut off, not counting zeros.
pub(super) fn mend(directory: &Path) -> Result<u64, StoreError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| StoreError::new(format!("cannot look through {path}: {error}"))
    };
    let version = directory.join("version");
    if !fs::read(&version).map_err(failed(&version))?.starts_with(VERSION) {
        return Ok(0); // the engine says what is wrong with it
    }
    let lock = directory.join("lock");
    let lock_file = File::open(&lock).map_err(failed(&lock))?;
    match lock_file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(0), // the engine says who has it
        Err(TryLockError::Error(error)) => return Err(failed(&lock)(error)),
    }
    let mut journals = journals(directory).map_err(failed(directory))?;
    let Some(active) = journals.pop() else { return Ok(0) };
    for path in journals {
        let found = whole(&path).map_err(failed(&path))?;
        if found.rest > 0 {
            return Err(StoreError::new(format!(
                "{} is damaged at byte {}, and it was synced: the disk is not sound; remove this node from its cluster, empty its directory and add it again as a new member",
                path.display(),
                found.end
            )));
        }
    }
    let found = whole(&active).map_err(failed(&active))?;
    if found.rest > 0 {
        let cut = || {
            let file = OpenOptions::new().write(true).open(&active)?;
            file.set_len(found.end)?;
            file.sync_all()
        };
        cut().map_err(failed(&active))?;
    }
    Ok(found.rest)
}

/// The journals, the oldest first.
pub(super) fn journals(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        found.extend(number.map(|number: u64| (number, path)));
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// How far a journal is whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    /// Where its last whole batch ends.
    pub(super) end: u64,
    /// How many bytes there are behind it, up to the last one that is not zero.
    pub(super) rest: u64,
}

pub(super) fn whole(path: &Path) -> io::Result<Whole> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut reader = Batches { left: length, from: BufReader::with_capacity(BUFFER_BYTES, file) };
    let mut end = 0;
    while reader.skip_batch()? {
        end = length - reader.left;
    }
    Ok(Whole { end, rest: last_byte(path, end)?.saturating_sub(end) })
}

/// Where the last byte that is not zero ends, from `begin` on; 0 if there is none.
fn last_byte(path: &Path, begin: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let (mut at, mut last) = (io::Seek::seek(&mut file, io::SeekFrom::Start(begin))?, 0);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(last);
        }
        if let Some(index) = buffer[..length].iter().rposition(|byte| *byte != 0) {
            last = at + index as u64 + 1;
        }
        at += length as u64;
    }
}

struct Batches {
    from: BufReader<File>,
    /// Bytes of the file that were not read yet.
    left: u64,
}

impl Batches {
    /// Goes behind the next batch. False: there is none that is whole.
    fn skip_batch(&mut self) -> io::Result<bool> {
        let Some([START, count @ .., _, _, _, _, _, _, _, _]) = self.take::<13>()? else { return Ok(false) };
        let mut sum = Xxh3::new();
        for _ in 0..u32::from_le_bytes(count) {
            if !self.skip_item(&mut sum)? {
                return Ok(false);
            }
        }
        let Some([END, rest @ ..]) = self.take::<13>()? else { return Ok(false) };
        Ok(rest.strip_prefix(&sum.digest().to_le_bytes()) == Some(VERSION))
    }

    fn skip_item(&mut self, sum: &mut Xxh3) -> io::Result<bool> {
        let Some(head) = self.take::<21>()? else { return Ok(false) };
        let [ITEM, _, 0, _, _, _, _, _, _, _, _, k0, k1, v0, v1, v2, v3, stored @ ..] = head else {
            return Ok(false);
        };
        let value = [v0, v1, v2, v3];
        let mut left = u64::from(u16::from_le_bytes([k0, k1])) + u64::from(u32::from_le_bytes(value));
        if value != stored || left > self.left {
            return Ok(false);
        }
        sum.update(&head);
        let mut buffer = [0; 1 << 14];
        while left > 0 {
            let part = &mut buffer[..left.min(1 << 14) as usize];
            self.from.read_exact(part)?;
            sum.update(part);
            left -= part.len() as u64;
            self.left -= part.len() as u64;
        }
        Ok(true)
    }

    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        if self.left < N as u64 {
            return Ok(None);
        }
        self.from.read_exact(&mut bytes)?;
        self.left -= N as u64;
        Ok(Some(bytes))
    }
}
