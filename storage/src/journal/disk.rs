//! Every change that the journal makes to the disk goes through [`Disk`]: the seam for fault injection.
//!
//! [`SystemDisk`] is what a node uses. Tests wrap it to fail a sync, to fill the disk, to write short, or to record the
//! operations and rebuild what a power failure would have left.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// What every disk of today takes as a block; a device that wants more refuses the first write, and the file is written in the usual way.
const DIRECT_BLOCK_BYTES: usize = 4096;

/// The file operations that change something. The path of an open file is given for fault injection and messages only.
pub trait Disk: Send + Sync {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &Path) -> io::Result<File>;
    /// Reserves room for `length` bytes, so that a full disk shows here and not at a later write.
    fn allocate(&self, file: &File, path: &Path, length: u64) -> io::Result<()>;
    /// Writes some of the bytes at `offset` and says how many.
    fn write_at(&self, file: &File, path: &Path, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes the file's content durable (fdatasync).
    fn sync(&self, file: &File, path: &Path) -> io::Result<()>;
    /// Opens an existing file for [`Disk::write_durably`], with the size of its blocks. `None` where there is no such way: then the file is written and
    /// synced.
    fn open_direct(&self, path: &Path) -> Option<(File, usize)>;
    /// Writes some whole blocks, from memory and to an offset at a block's boundary, and says how many bytes; they are durable when it returns.
    fn write_durably(&self, file: &File, path: &Path, blocks: &[u8], offset: u64) -> io::Result<usize>;
    /// Renames a file within the directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    fn allocate(&self, file: &File, _path: &Path, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            // Some file systems cannot reserve. The zeros that follow then find out about the room.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, file: &File, _path: &Path, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn sync(&self, file: &File, _path: &Path) -> io::Result<()> {
        file.sync_data()
    }

    fn open_direct(&self, path: &Path) -> Option<(File, usize)> {
        let flags = (OFlags::DIRECT | OFlags::DSYNC).bits();
        let file = OpenOptions::new().write(true).custom_flags(flags.cast_signed()).open(path).ok()?;
        Some((file, DIRECT_BLOCK_BYTES))
    }

    fn write_durably(&self, file: &File, _path: &Path, blocks: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(blocks, offset)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}
