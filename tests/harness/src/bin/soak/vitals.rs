//! How a node is, seen from outside: its memory, its files, and which ballot its master has.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use warlock_harness::Cluster;

/// How a node was in one minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vitals {
    /// Resident memory, the mean of the minute.
    pub memory_bytes: u64,
    /// What its data directory takes on the disk, at the end of the minute.
    pub directory_bytes: u64,
    /// Segments of its journal, at the end of the minute.
    pub segments: u64,
}

/// Resident memory of a node that runs.
pub fn resident_bytes(cluster: &Cluster, node: u16) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", cluster.pid(node)?)).ok()?;
    status.lines().find_map(|line| {
        let kilobytes = line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?;
        kilobytes.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    })
}

/// What the files of a directory take on the disk. Files that vanish meanwhile do not count.
pub fn directory_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// The segments of a node's journal.
pub fn segments(data: &Path) -> u64 {
    let entries = fs::read_dir(data.join("journal")).into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
    names.count() as u64
}

/// The ballot of the master, if there is one now.
pub fn ballot(cluster: &Cluster) -> Option<String> {
    cluster.all().into_iter().find_map(|node| {
        let info = cluster.client(node).ask(&["INFO", "warlock"]).ok()?;
        let text = info.text()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_string);
        field("warlock_role:").filter(|role| role == "master")?;
        field("warlock_ballot:")
    })
}
