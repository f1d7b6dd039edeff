//! Names of snapshot files in a directory.

use super::error::SnapshotError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "snapshot-";
const SUFFIX: &str = ".rows";
const UNFINISHED_SUFFIX: &str = ".rows.tmp";

/// The file of a slot.
pub fn path_of(directory: &Path, slot: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{slot:020}{SUFFIX}"))
}

/// Where it is written before it is complete.
pub(super) fn unfinished_path_of(directory: &Path, slot: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{slot:020}{UNFINISHED_SUFFIX}"))
}

/// The slot in a file's name.
fn slot_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(suffix)?;
    if digits.len() == 20 { digits.parse().ok() } else { None }
}

fn entries(directory: &Path, suffix: &str) -> Result<Vec<(u64, PathBuf)>, SnapshotError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(SnapshotError::io("list", directory))? {
        let entry = entry.map_err(SnapshotError::io("list", directory))?;
        if let Some(slot) = entry.file_name().to_str().and_then(|name| slot_of(name, suffix)) {
            found.push((slot, entry.path()));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The finished snapshots of a directory with their slots, the newest first. If one is damaged, try the next.
pub fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>, SnapshotError> {
    entries(directory, SUFFIX)
}

/// Removes all but the `keep` newest snapshots, and what unfinished writers left. Not while one is being written.
pub fn remove_old(directory: &Path, keep: usize) -> Result<(), SnapshotError> {
    let old = list(directory)?.into_iter().skip(keep.max(1));
    for (_, path) in old.chain(entries(directory, UNFINISHED_SUFFIX)?) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SnapshotError::io("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}
