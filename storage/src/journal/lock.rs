//! The exclusive lock on the journal's directory: two processes that write one journal destroy it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::error::{Failure, OpenError};
use super::format::LOCK_NAME;

/// Held as long as the value lives. The kernel releases it when the process dies; the file stays.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn acquire(directory: &Path) -> Result<DirectoryLock, OpenError> {
        let path = directory.join(LOCK_NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Failure::of("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The lock is what counts; an unreadable pid only makes the message poorer.
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(OpenError::Locked { file: path, pid });
            }
            Err(TryLockError::Error(source)) => return Err(Failure::of("lock", &path)(source).into()),
        }
        // A full disk must not stop a node from opening its journal only because its pid has no room.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(DirectoryLock { _file: file })
    }
}
