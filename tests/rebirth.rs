//! Backups, and clusters that begin anew from one or from the last node that is left.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Options, wait_for};
use std::path::Path;
use std::process::Command;

fn warlock(words: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_warlock")).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn token(client: &mut Client, key: &str) -> i64 {
    let reply = client.must(&["LOCK.ACQUIRE", key, "me", "60000"]);
    let found = reply.integer().or_else(|| reply.field("token")?.integer());
    found
        .or_else(|| reply.items().iter().find_map(harness::Reply::integer))
        .unwrap_or_else(|| panic!("{reply}"))
}

#[test]
fn a_backup_made_while_clients_write_is_restored_as_a_new_cluster() {
    let cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 3);
    let mut client = cluster.client(1);
    for n in 0..200 {
        assert!(client.must(&["SET", &format!("key{n}"), &format!("value{n}")]).is_ok());
    }
    let before = token(&mut client, "lock");
    let file = cluster.root().join("monday.warlock");
    // From a node that is not the one that took the writes: what was acknowledged anywhere is in it.
    let (is_ok, shown) = warlock(&["admin", "-n", &cluster.address(2), "backup", text(&file)]);
    assert!(is_ok && shown.contains("checked"), "{shown}");
    let (is_ok, shown) = warlock(&["admin", "-n", &cluster.address(2), "backup", text(&file)]);
    assert!(!is_ok && shown.contains("exists already"), "{shown}");
    assert!(client.must(&["SET", "late", "1"]).is_ok());

    let mut reborn = Cluster::unformed(Options::new(env!("CARGO_BIN_EXE_warlock"), 1));
    let (dir, bind) = (reborn.path(1), reborn.address(1));
    let restore = ["restore", text(&file), "--dir", text(&dir), "--bind", &bind, "--peer-bind"];
    let (is_ok, shown) = warlock(&[&restore[..], &[&reborn.peer_address(1)]].concat());
    assert!(is_ok && shown.contains("a new cluster of one"), "{shown}");
    let (is_ok, shown) = warlock(&[&restore[..], &[&reborn.peer_address(1)]].concat());
    assert!(!is_ok && shown.contains("not empty"), "{shown}");
    reborn.run(1);
    let mut client = reborn.client(1);
    for n in 0..200 {
        assert_eq!(client.must(&["GET", &format!("key{n}")]).to_string(), format!("value{n}"));
    }
    assert_eq!(client.must(&["GET", "late"]).to_string(), "(nil)");
    assert!(client.must(&["SET", "new", "1"]).is_ok());
    let after = token(&mut client, "another");
    assert!(after > before + 1_000_000, "tokens jump ahead: {before}, then {after}");
    // And again from its own journal.
    reborn.kill(1);
    reborn.run(1);
    assert_eq!(reborn.client(1).must(&["GET", "new"]).to_string(), "1");

    // A backup with a flipped bit is no backup.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = cluster.root().join("damaged.warlock");
    std::fs::write(&damaged, bytes).unwrap();
    let other = cluster.root().join("other");
    let (is_ok, shown) = warlock(&["restore", text(&damaged), "--dir", text(&other)]);
    assert!(!is_ok && !other.join("identity").exists(), "{shown}");
}

/// How far the directory of a stopped node is, as `warlock recover` says when it is only asked.
fn slots_of(directory: &Path) -> u64 {
    let (is_ok, shown) = warlock(&["recover", "--force-new-cluster", "--dir", text(directory)]);
    assert!(!is_ok && shown.contains("nothing was done") && shown.contains("LOST"), "{shown}");
    let (_, behind) = shown.split_once("holds everything up to slot ").unwrap_or_else(|| panic!("{shown}"));
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn the_last_node_begins_a_new_cluster_with_all_that_it_has() {
    let mut cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 3);
    let mut client = cluster.client(1);
    for n in 0..100 {
        assert!(client.must(&["SET", &format!("key{n}"), "value"]).is_ok());
    }
    for node in 1..=3 {
        cluster.kill(node);
    }
    // What was acknowledged is on a majority of the disks, not on each: the node that is furthest has it.
    let (_, last) =
        cluster.all().into_iter().map(|node| (slots_of(&cluster.path(node)), node)).max().unwrap();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != last).collect();
    let dir = cluster.path(last);
    let (is_ok, shown) = warlock(&["recover", "--force-new-cluster", "--yes", "--dir", text(&dir)]);
    assert!(is_ok && shown.contains("a new cluster of one"), "{shown}");
    cluster.run(last);
    let mut client = cluster.client(last);
    for n in 0..100 {
        assert_eq!(client.must(&["GET", &format!("key{n}")]).to_string(), "value", "key{n}");
    }
    assert!(client.must(&["SET", "new", "life"]).is_ok());
    // The old nodes are of another cluster now: they cannot disturb it, nor it them.
    for node in &others {
        cluster.run(*node);
    }
    wait_for("the old majority to have a master", || {
        others.iter().any(|node| cluster.is_master(*node)).then_some(())
    });
    assert_eq!(cluster.client(others[0]).must(&["GET", "new"]).to_string(), "(nil)");
    assert_eq!(client.must(&["GET", "new"]).to_string(), "life");
}
