//! Files that are not what was written: the node says which file, where and what to do, and never starts from a wrong state.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, wait_for};
use std::fs;
use std::path::{Path, PathBuf};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const KEYS: usize = 300;

fn filled_cluster() -> Cluster {
    let cluster = Cluster::start(WARLOCK, 3);
    write(&cluster, "first");
    cluster
}

fn write(cluster: &Cluster, value: &str) {
    let requests: Vec<Vec<String>> =
        (0..KEYS).map(|n| vec!["SET".into(), format!("key{n}"), format!("{value} {n}")]).collect();
    for reply in cluster.client(cluster.running()[0]).pipeline(&requests).unwrap() {
        assert!(reply.is_ok(), "{reply}");
    }
}

fn must_hold(cluster: &Cluster, node: u16, value: &str) {
    let requests: Vec<Vec<String>> = (0..KEYS).map(|n| vec!["GET".into(), format!("key{n}")]).collect();
    for (n, reply) in cluster.client(node).pipeline(&requests).unwrap().into_iter().enumerate() {
        assert_eq!(reply, format!("{value} {n}"), "key{n} through node {node}");
    }
}

fn journal_bytes(cluster: &Cluster, node: u16) -> i64 {
    let status = cluster.client(node).must(&["WARLOCK", "STATUS"]);
    status.field("journal_bytes").unwrap().integer().unwrap()
}

/// Waits until a node's journal has as much as so many rounds of [`write`]; how much that is. A node may know and serve what its own disk does not have yet.
fn wait_for_journal(cluster: &Cluster, node: u16, rounds: usize) -> i64 {
    wait_for(&format!("{rounds} rounds of writes in the journal"), || {
        let bytes = journal_bytes(cluster, node);
        (bytes > (20 * KEYS * rounds) as i64).then_some(bytes)
    })
}

/// Files of a directory of a node, by name, the largest last.
fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(suffix))
        .collect();
    files.sort();
    files
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// The length without the zeros at the end: segments are written into space that was set aside.
fn used(path: &Path) -> usize {
    let bytes = fs::read(path).unwrap();
    bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

fn must_say(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "the message does not say '{part}':\n{message}");
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_flipped_bit_in_the_journal_stops_the_node_and_nothing_else() {
    let mut cluster = filled_cluster();
    // The damage must lie in front of later batches of this node: in the last one it would be a torn tail, which is cut.
    for _ in 0..3 {
        must_hold(&cluster, 2, "first");
        write(&cluster, "first");
    }
    wait_for_journal(&cluster, 2, 4);
    cluster.kill(2);
    let segment =
        files(&cluster.path(2).join("journal"), "").into_iter().max_by_key(|path| used(path)).unwrap();
    flip(&segment, used(&segment) / 4);
    let message = cluster.refusal(2);
    must_say(&message, &[name(&segment), "offset", "WARLOCK REMOVE"]);
    for node in [1, 3] {
        must_hold(&cluster, node, "first");
    }
}

#[test]
fn a_torn_tail_is_cut_and_the_rest_comes_from_the_others() {
    let mut cluster = filled_cluster();
    wait_for_journal(&cluster, 2, 1);
    cluster.kill(2);
    let segment =
        files(&cluster.path(2).join("journal"), "").into_iter().max_by_key(|path| used(path)).unwrap();
    // What a crash in the middle of a write leaves: some bytes of a record that nobody was told about.
    let bytes = fs::read(&segment).unwrap();
    let end = used(&segment);
    let mut torn = bytes.clone();
    let tail = bytes[end / 2..end / 2 + 40].to_vec();
    if torn.len() < end + 40 {
        torn.resize(end + 40, 0);
    }
    torn[end + 8..end + 40].copy_from_slice(&tail[..32]);
    fs::write(&segment, torn).unwrap();
    cluster.run(2);
    must_hold(&cluster, 2, "first");
    cluster.wait_for_agreement();
}

#[test]
fn a_damaged_snapshot_is_not_used() {
    let mut cluster = filled_cluster();
    must_hold(&cluster, 2, "first");
    let before = wait_for_journal(&cluster, 2, 1);
    assert!(cluster.client(2).must(&["WARLOCK", "SNAPSHOT"]).text().is_some());
    // Until the journal is cut back it can do without the snapshot.
    wait_for("the journal to be cut back behind the snapshot", || {
        (journal_bytes(&cluster, 2) < before / 2).then_some(())
    });
    let snapshot = files(&cluster.path(2).join("snapshots"), ".rows").pop().unwrap();
    write(&cluster, "second");
    cluster.terminate(2);
    flip(&snapshot, used(&snapshot) / 2);
    let message = cluster.refusal(2);
    must_say(&message, &[name(&snapshot), "offset", "new member"]);
    fs::remove_file(&snapshot).unwrap();
    must_say(&cluster.refusal(2), &["snapshot", "missing", "new member"]);
    for node in [1, 3] {
        must_hold(&cluster, node, "second");
    }
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let mut cluster = filled_cluster();
    cluster.kill(1);
    cluster.kill(2);
    let (mine, other) = (cluster.path(2).join("journal"), cluster.path(1).join("journal"));
    fs::rename(&mine, cluster.root().join("aside")).unwrap();
    fs::rename(&other, &mine).unwrap();
    must_say(&cluster.refusal(2), &["foreign journal", "offset", "its own data directory"]);
    fs::rename(&mine, &other).unwrap();
    must_say(&cluster.refusal(2), &["journal", "put it back"]);
    fs::rename(cluster.root().join("aside"), &mine).unwrap();
    let identity = cluster.path(2).join("identity");
    let text = fs::read_to_string(&identity).unwrap();
    fs::write(&identity, text.replace("cluster = ", "clutter = ")).unwrap();
    must_say(&cluster.refusal(2), &["identity", "damaged", "new member"]);
    fs::write(&identity, text).unwrap();
    cluster.run(1);
    cluster.run(2);
    must_hold(&cluster, 2, "first");
    cluster.wait_for_agreement();
}
