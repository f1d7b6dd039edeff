//! Client libraries of other languages, installed when they are needed first.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `tests/clients` is: scripts for the libraries, and how they are installed.
#[must_use]
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients")
}

/// Where the libraries of a kind (`python`, `node`) are, below `target` (a test's `CARGO_TARGET_TMPDIR`). Nothing, and a line that says so, if they
/// cannot be installed: without a network a test can only skip them.
#[must_use]
pub fn set_up(kind: &str, target: &str) -> Option<PathBuf> {
    let directory = Path::new(target).join("clients").join(kind);
    let output = Command::new(scripts().join("setup"))
        .arg(kind)
        .arg(&directory)
        .output()
        .expect("the script can be run");
    if output.status.success() {
        return Some(directory);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    println!("SKIPPED: the {kind} libraries cannot be installed: {why}");
    None
}
