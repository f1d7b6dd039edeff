//! The directory of a store: databases `rows-N`, and the file `current` with the name of the one that counts.
//!
//! Rows that take the place of all others are written as another database, and become current by the rename of one file. What is not current is nobody's: it is
//! removed when the store is opened.

use crate::store::StoreError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const PREFIX: &str = "rows-";

/// See the module's description.
#[derive(Clone)]
pub(super) struct Home {
    directory: PathBuf,
}

impl Home {
    pub(super) fn new(directory: &Path) -> Home {
        Home { directory: directory.to_path_buf() }
    }

    fn failed(&self, what: &str) -> impl FnOnce(io::Error) -> StoreError {
        let text = format!("cannot {what} in {}", self.directory.display());
        move |error| StoreError::new(format!("{text}: {error}"))
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The database that counts, if there is one.
    pub(super) fn current(&self) -> Result<Option<String>, StoreError> {
        match fs::read_to_string(self.directory.join("current")) {
            Ok(name) if number(name.trim()).is_some() => Ok(Some(name.trim().to_string())),
            Ok(_) => Err(StoreError::new(format!(
                "{} is damaged; remove this node from its cluster, empty its directory and add it again as a new member",
                self.directory.join("current").display()
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read 'current'")(error)),
        }
    }

    /// Refuses rows that are named but not there: the engine would make an empty database in their place.
    pub(super) fn must_have(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path_of(name);
        if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
            return Ok(());
        }
        Err(StoreError::new(format!(
            "{} is missing or empty, but {} names it; put it back, or remove this node from its cluster, empty its directory and add it again as a new \
             member",
            path.display(),
            self.directory.join("current").display()
        )))
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(self.failed("list the rows"))? {
            let name = entry.map_err(self.failed("list the rows"))?.file_name();
            names.extend(name.into_string().ok().filter(|name| number(name).is_some()));
        }
        Ok(names)
    }

    /// A name that was not used yet; makes the directory.
    pub(super) fn next_name(&self) -> Result<String, StoreError> {
        fs::create_dir_all(&self.directory).map_err(self.failed("make the directory"))?;
        let last = self.names()?.iter().filter_map(|name| number(name)).max().unwrap_or(0);
        Ok(format!("{PREFIX}{}", last + 1))
    }

    /// Makes a database the one that counts, durably.
    pub(super) fn set_current(&self, name: &str) -> Result<(), StoreError> {
        let write = || -> io::Result<()> {
            let unfinished = self.directory.join("current.tmp");
            let mut file = File::create(&unfinished)?;
            writeln!(file, "{name}")?;
            file.sync_all()?;
            // The database's own name must not be lost with the power while the file that names it stays.
            File::open(&self.directory)?.sync_all()?;
            fs::rename(&unfinished, self.directory.join("current"))?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(self.failed("write 'current'"))
    }

    /// Removes what does not count. Not while somebody may still read it.
    pub(super) fn remove_others(&self, keep: &str) -> Result<(), StoreError> {
        for name in self.names()?.into_iter().filter(|name| name != keep) {
            let path = self.path_of(&name);
            match fs::remove_dir_all(&path) {
                // Who had it last may be removing it just now.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.failed("remove old rows")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}
