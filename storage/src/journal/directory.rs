//! The journal's directory: paths, and file operations that either happen completely or name what failed.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::disk::Disk;
use super::error::Failure;
use super::format::FileName;

/// Zeros are written in pieces of this size, each synced, so that preparing a segment never leaves the device a long queue
/// in front of the next commit.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// What every part of the journal knows about where it lives.
#[derive(Clone)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) id: [u8; 16],
    pub(super) disk: Arc<dyn Disk>,
}

/// The files found in a directory, each list ascending.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) segments: Vec<u64>,
    pub(super) spares: Vec<u64>,
    pub(super) preparing: Vec<u64>,
}

impl Directory {
    pub(super) fn file(&self, name: FileName) -> PathBuf {
        self.path.join(name.to_string())
    }

    pub(super) fn list(&self) -> Result<Listing, Failure> {
        let mut listing = Listing::default();
        for entry in std::fs::read_dir(&self.path).map_err(Failure::of("list", &self.path))? {
            let entry = entry.map_err(Failure::of("list", &self.path))?;
            match entry.file_name().to_str().and_then(FileName::parse) {
                Some(FileName::Segment(number)) => listing.segments.push(number),
                Some(FileName::Spare(number)) => listing.spares.push(number),
                Some(FileName::Preparing(number)) => listing.preparing.push(number),
                None => {}
            }
        }
        listing.segments.sort_unstable();
        listing.spares.sort_unstable();
        listing.preparing.sort_unstable();
        Ok(listing)
    }

    pub(super) fn open(&self, path: &Path) -> Result<File, Failure> {
        OpenOptions::new().read(true).write(true).open(path).map_err(Failure::of("open", path))
    }

    /// Writes everything, in as many calls as the system needs.
    pub(super) fn write_all(
        &self,
        file: &File,
        path: &Path,
        mut bytes: &[u8],
        mut offset: u64,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.disk.write_at(file, path, bytes, offset) {
                Ok(0) => return Err(Failure::of("write", path)(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::of("write", path)(error)),
            }
        }
        Ok(())
    }

    /// Fills a range with zeros and makes it durable.
    pub(super) fn write_zeros(&self, file: &File, path: &Path, range: Range<u64>) -> Result<(), Failure> {
        let mut offset = range.start;
        while offset < range.end {
            let length = (range.end - offset).min(ZEROS.len() as u64);
            self.write_all(file, path, &ZEROS[..length as usize], offset)?;
            self.sync_file(file, path)?;
            offset += length;
        }
        Ok(())
    }

    pub(super) fn sync_file(&self, file: &File, path: &Path) -> Result<(), Failure> {
        self.disk.sync(file, path).map_err(Failure::of("sync", path))
    }

    pub(super) fn sync(&self) -> Result<(), Failure> {
        self.disk.sync_directory(&self.path).map_err(Failure::of("sync", &self.path))
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        self.disk.rename(from, to).map_err(Failure::of("rename", from))
    }

    pub(super) fn remove(&self, path: &Path) -> Result<(), Failure> {
        self.disk.remove(path).map_err(Failure::of("remove", path))
    }

    /// Makes a spare: a file of `length` bytes whose every block is allocated and written, so that no later write into it
    /// can find the disk full or has to change the file system's own records. `stop` gives up early.
    pub(super) fn prepare_spare(&self, number: u64, length: u32, stop: &AtomicBool) -> Result<(), Failure> {
        let path = self.file(FileName::Preparing(number));
        let prepared = self.fill_new(&path, u64::from(length), stop).and_then(|()| {
            self.rename(&path, &self.file(FileName::Spare(number)))?;
            self.sync()
        });
        if prepared.is_err() {
            // Give the room back at once; should that fail too, the next open removes the file.
            let _ = self.disk.remove(&path);
        }
        prepared
    }

    fn fill_new(&self, path: &Path, length: u64, stop: &AtomicBool) -> Result<(), Failure> {
        let file = self.disk.create(path).map_err(Failure::of("create", path))?;
        self.disk.allocate(&file, path, length).map_err(Failure::of("allocate", path))?;
        let mut offset = 0;
        while offset < length {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::of("finish", path)(io::ErrorKind::Interrupted.into()));
            }
            let end = (offset + ZEROS.len() as u64).min(length);
            self.write_zeros(&file, path, offset..end)?;
            offset = end;
        }
        Ok(())
    }
}

/// Whether a file has `length` bytes and blocks for all of them. A copy made with holes has not, and a write into a hole
/// can find the disk full.
pub(super) fn is_fully_allocated(metadata: &std::fs::Metadata, length: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.len() == u64::from(length) && metadata.blocks().saturating_mul(512) >= u64::from(length)
}
