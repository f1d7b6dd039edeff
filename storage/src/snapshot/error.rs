//! What can be wrong with a snapshot file.

use crate::store::StoreError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a snapshot was not written or read.
#[derive(Debug)]
pub enum SnapshotError {
    /// The system refused something.
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are not what was written.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// A file of another data directory, or of a newer version.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is different.
        problem: String,
    },
    /// The store could not give or take the rows.
    Store(StoreError),
}

impl SnapshotError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
        move |source| SnapshotError::Io { action, path: path.to_path_buf(), source }
    }

    /// Whether an older snapshot may serve instead: this file is bad, the disk and the store are not.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, SnapshotError::Damaged { .. })
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}", path.display())
            }
            SnapshotError::Damaged { path, offset, problem } => write!(
                f,
                "snapshot {} is damaged at offset {offset}: {problem}; an older snapshot with its journal, or a copy from a \
                 healthy node, can take its place",
                path.display()
            ),
            SnapshotError::Foreign { path, problem } => {
                write!(
                    f,
                    "snapshot {} does not belong here: {problem}; check the data directory and the version",
                    path.display()
                )
            }
            SnapshotError::Store(error) => write!(f, "the store failed during a snapshot: {error}"),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::Io { source, .. } => Some(source),
            SnapshotError::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for SnapshotError {
    fn from(error: StoreError) -> SnapshotError {
        SnapshotError::Store(error)
    }
}
