//! `--store disk` with real processes: kill -9, copies to new members, changes of the store, backups.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::counting::Counting;
use harness::{Client, Cluster, Options, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const SECRET: &str = "correct horse battery";
const DISK: [&str; 4] = ["--store", "disk", "--store-cache", "4mb"];

fn on_disk(nodes: u16) -> Options {
    let mut options = Options::new(WARLOCK, nodes);
    options.flags = DISK.map(String::from).to_vec();
    options
}

fn warlock(words: &[&str]) -> (bool, String) {
    let output = Command::new(WARLOCK).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A value that belongs to a key and a round, of some KB.
fn value(round: u32, n: u32) -> String {
    format!("{round}.{n}.").repeat(600)
}

/// Writes keys, each acknowledged.
fn write(client: &mut Client, round: u32, keys: std::ops::Range<u32>) {
    let requests: Vec<[String; 3]> =
        keys.map(|n| ["SET".into(), format!("key{n}"), value(round, n)]).collect();
    for part in requests.chunks(100) {
        assert!(client.pipeline(part).unwrap().iter().all(harness::Reply::is_ok));
    }
}

fn check(client: &mut Client, round: u32, keys: std::ops::Range<u32>) {
    let names: Vec<u32> = keys.collect();
    for part in names.chunks(100) {
        let requests: Vec<[String; 2]> = part.iter().map(|n| ["GET".into(), format!("key{n}")]).collect();
        for (n, reply) in part.iter().zip(client.pipeline(&requests).unwrap()) {
            assert!(
                reply.text() == Some(value(round, *n)),
                "key{n} is not what was acknowledged: {:.60}",
                reply.to_string()
            );
        }
    }
}

/// The boundary at which a node's rows stood when it was last started.
fn opened_at(cluster: &Cluster, node: u16) -> u64 {
    let log = cluster.log(node);
    let line = log.lines().rev().find(|line| line.contains("the rows on disk are opened")).unwrap();
    line.rsplit("slot=").next().unwrap().trim().parse().unwrap()
}

#[test]
fn no_acknowledged_write_is_lost_when_all_nodes_are_killed_at_once_or_one_alone() {
    let mut cluster = Cluster::with(on_disk(3));
    let nodes: Vec<_> = cluster.all().into_iter().zip(cluster.addresses()).collect();
    let counters = Counting::start(&nodes, 1);
    // More than a layer, so that some rows are with the engine, some on their way and some in the journal only.
    write(&mut cluster.client(1), 1, 0..3_000);
    for node in 1..=3 {
        cluster.kill(node);
    }
    (1..=3).for_each(|node| cluster.run(node));
    cluster.wait_for_master();
    for node in 1..=3 {
        check(&mut cluster.client(node), 1, 0..3_000);
    }
    assert!((1..=3).any(|node| opened_at(&cluster, node) > 0), "no boundary ever reached an engine");
    // One alone, while the others go on.
    for node in 1..=3 {
        let witness = node % 3 + 1;
        write(&mut cluster.client(witness), 1 + u32::from(node), 0..500);
        cluster.kill(node);
        write(&mut cluster.client(witness), 1 + u32::from(node), 500..1_000);
        cluster.run(node);
        check(&mut cluster.client(node), 1 + u32::from(node), 0..1_000);
        counters.wait_for_answers(&cluster.all(), 5);
    }
    cluster.wait_for_agreement();
    counters.finish(&cluster.address(1)).unwrap();
}

/// Writes keys of 4 KB, in order, until they end or the node does not answer: how many were acknowledged. A word comes after each batch.
fn write_until_gone(
    address: String,
    round: u32,
    keys: std::ops::Range<u32>,
) -> (JoinHandle<u32>, Receiver<()>) {
    let (batch_done, progress) = channel();
    let writer = spawn(move || {
        let (mut client, mut acknowledged) = (Client::connect(&address), 0);
        for first in keys.clone().step_by(20) {
            let requests: Vec<[String; 3]> = (first..keys.end.min(first + 20))
                .map(|n| ["SET".into(), format!("key{n}"), value(round, n)])
                .collect();
            let Ok(replies) = client.pipeline(&requests) else { break };
            let done = replies.iter().take_while(|reply| reply.is_ok()).count();
            acknowledged += u32::try_from(done).unwrap();
            let _ = batch_done.send(());
            // When the others are gone already, it hears that nobody knows: from here on nothing was promised.
            if done < replies.len() {
                break;
            }
        }
        acknowledged
    });
    (writer, progress)
}

#[test]
fn all_nodes_killed_in_the_middle_of_large_writes_have_every_acknowledged_one() {
    const EACH: u32 = 100_000;
    let mut cluster = Cluster::with(on_disk(3));
    for round in 1..=3 {
        let writers: Vec<_> = (1..=3_u16)
            .map(|node| {
                let first = u32::from(node) * EACH;
                write_until_gone(cluster.address(node), round, first..first + EACH)
            })
            .collect();
        // Some layers of 4 MB, and each round ends at another place of one.
        for (_, progress) in &writers {
            for batch in 0..60 + 13 * round {
                let patience = Duration::from_secs(120);
                progress.recv_timeout(patience).unwrap_or_else(|_| panic!("waited for batch {batch}"));
            }
        }
        for node in [3, 1, 2] {
            cluster.kill(node);
        }
        let acknowledged: Vec<u32> = writers.into_iter().map(|(writer, _)| writer.join().unwrap()).collect();
        assert!(acknowledged.iter().all(|count| *count < EACH), "a writer was done before the kill");
        (1..=3).for_each(|node| cluster.run(node));
        cluster.wait_for_master();
        for node in 1..=3_u32 {
            for (first, count) in (1..).map(|writer| writer * EACH).zip(&acknowledged) {
                check(&mut cluster.client(node as u16), round, first..first + count);
            }
        }
        assert!((1..=3).all(|node| opened_at(&cluster, node) > 0), "no boundary ever reached an engine");
    }
    cluster.wait_for_agreement();
}

/// The longest time that a node took to answer PING until the writer was done.
fn longest_silence(cluster: &Cluster, node: u16, writer: JoinHandle<u32>) -> (Duration, u32) {
    let (mut client, mut longest) = (cluster.client(node), Duration::ZERO);
    while !writer.is_finished() {
        let asked = Instant::now();
        client.must(&["PING"]);
        longest = longest.max(asked.elapsed());
    }
    (longest, writer.join().unwrap())
}

#[test]
fn a_disk_that_is_slower_than_the_writes_delays_them_and_costs_no_master_its_lease() {
    /// What a layer of 4 MB takes: three leases.
    const SLOW: &str = "3000";
    let mut options = on_disk(3);
    options.env = vec![("WARLOCK_TEST_FAULTS".into(), "1".into())];
    let cluster = Cluster::with(options);
    let master = cluster.master();
    let ballot = || cluster.client(master).must(&["WARLOCK", "STATUS"]).field("ballot").unwrap().to_string();
    let before = ballot();
    let held = |node| cluster.log(node).contains("slower than they are written");
    // More than the layers that may wait, through another node.
    let other = master % 3 + 1;
    cluster.client(master).must(&["WARLOCK", "DEBUG", "ENGINE", SLOW]);
    let (writer, _progress) = write_until_gone(cluster.address(other), 1, 0..8_000);
    let (longest, acknowledged) = longest_silence(&cluster, master, writer);
    assert!(held(master), "the disk was not slow enough");
    assert_eq!(acknowledged, 8_000);
    assert!(longest < Duration::from_millis(1_500), "the master was silent for {longest:?}");
    assert_eq!(ballot(), before, "the master was replaced");
    cluster.client(master).must(&["WARLOCK", "DEBUG", "ENGINE", "0"]);
    // A follower holds up nobody: it falls behind, holds what it may, loses the rest, and catches up.
    cluster.client(other).must(&["WARLOCK", "DEBUG", "ENGINE", SLOW]);
    let (writer, _progress) = write_until_gone(cluster.address(master), 2, 0..14_000);
    let (longest, acknowledged) = longest_silence(&cluster, other, writer);
    assert!(held(other), "the disk was not slow enough");
    assert_eq!(acknowledged, 14_000);
    assert!(longest < Duration::from_millis(1_500), "the follower was silent for {longest:?}");
    cluster.client(other).must(&["WARLOCK", "DEBUG", "ENGINE", "0"]);
    cluster.wait_for_agreement();
    check(&mut cluster.client(other), 2, 0..14_000);
    assert_eq!(ballot(), before, "the master was replaced");
}

#[test]
fn who_asks_again_and_again_for_snapshots_holds_up_no_writes() {
    let mut options = on_disk(1);
    options.env = vec![("WARLOCK_TEST_FAULTS".into(), "1".into())];
    let cluster = Cluster::with(options);
    let mut client = cluster.client(1);
    // All of them one after the other would take longer than a request may.
    client.must(&["WARLOCK", "DEBUG", "ENGINE", "200"]);
    assert!(client.pipeline(&[["BGSAVE"]; 100]).unwrap().iter().all(|reply| reply.error().is_none()));
    for n in 0..10 {
        client.must(&["SET", "key", &n.to_string()]);
    }
    assert!(!cluster.log(1).contains("slower than they are written"), "rows were held for empty layers");
}

/// The engine's journal of a node, what is in it, and how much of that was written.
fn engine_journal(cluster: &Cluster, node: u16) -> Option<(PathBuf, Vec<u8>, usize)> {
    let rows = cluster.path(node).join("store").join("rows-1");
    let journals = std::fs::read_dir(&rows).unwrap().map(|entry| entry.unwrap().path());
    let journal = journals.filter(|path| path.extension().is_some_and(|end| end == "jnl")).max().unwrap();
    let bytes = std::fs::read(&journal).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0)?;
    Some((journal, bytes, written))
}

/// Overwrites a page of that journal while the node does not run, as a loss of power or a bad disk does: `part` tells which.
fn damage(cluster: &Cluster, node: u16, part: f64, byte: u8) {
    let (journal, mut bytes, written) = engine_journal(cluster, node).unwrap();
    let page = (written as f64 * part) as usize / 4096;
    bytes[page * 4096..(page + 1) * 4096].fill(byte);
    std::fs::write(&journal, bytes).unwrap();
}

#[test]
fn a_loss_of_power_costs_nothing_and_a_damaged_disk_is_told() {
    let mut cluster = Cluster::with(on_disk(1));
    // More than a layer, so that the engine gets rows; and less than what makes them durable, because that is what a loss of power leaves alone.
    write(&mut cluster.client(1), 1, 0..1_200);
    for (round, part, byte) in [(2, 0.5, 0), (3, 0.9, 0x5a), (4, 0.01, 0)] {
        write(&mut cluster.client(1), round, 0..200);
        wait_for("the engine to have a layer", || {
            engine_journal(&cluster, 1).filter(|(_, _, written)| *written > 1_000_000)
        });
        cluster.kill(1);
        damage(&cluster, 1, part, byte);
        cluster.run(1);
        cluster.wait_for_master();
        check(&mut cluster.client(1), round, 0..200);
        check(&mut cluster.client(1), 1, 200..1_200);
        assert!(cluster.log(1).contains("written only in part"));
    }
    // What was durable, so that the journal has forgotten it, cannot be cut off.
    let status = |cluster: &Cluster| cluster.client(1).must(&["WARLOCK", "STATUS"]);
    cluster.client(1).must(&["WARLOCK", "SNAPSHOT"]);
    wait_for("the journal to forget", || {
        let bytes = status(&cluster).field("journal_bytes").and_then(harness::Reply::integer)?;
        (bytes < 500_000).then_some(())
    });
    cluster.kill(1);
    damage(&cluster, 1, 0.5, 0);
    let refusal = cluster.refusal(1);
    assert!(
        refusal.contains("the rows on disk stand at slot") && refusal.contains("add it again"),
        "{refusal}"
    );
}

#[test]
fn the_journal_forgets_what_is_durable_in_the_store_and_a_new_member_gets_a_copy_of_the_rows() {
    let mut options = on_disk(5);
    options.flags.push("--wait-for-invitation".into());
    options.env = vec![("WARLOCK_CLUSTER_SECRET".into(), SECRET.into())];
    let mut cluster = Cluster::unformed(options);
    (1..=3).for_each(|node| cluster.run(node));
    for node in 1..=3 {
        cluster.client(node).must(&["PING"]);
    }
    let (two, three) = (cluster.peer_address(2), cluster.peer_address(3));
    assert!(cluster.client(1).must(&["WARLOCK", "JOIN", &two, &three]).to_string().contains("OK"));
    cluster.wait_for_master();
    let mut client = cluster.client(1);
    write(&mut client, 1, 0..1_000);
    for n in 0..300 {
        assert_eq!(client.must(&["INCR", "count"]).integer(), Some(n + 1));
    }
    client.must(&["SET", "short", "lived", "PX", "100"]);
    client.must(&["HSET", "hash", "a", "1", "b", "2"]);
    client.must(&["RPUSH", "list", "x", "y"]);
    let journal = |node: u16| {
        let status = cluster.client(node).must(&["WARLOCK", "STATUS"]);
        status.field("journal_bytes").and_then(harness::Reply::integer).unwrap()
    };
    assert!(journal(1) > 2_000_000);
    for node in 1..=3 {
        cluster.client(node).must(&["WARLOCK", "SNAPSHOT"]);
        wait_for(&format!("the journal of node {node} to forget"), || {
            (journal(node) < 500_000).then_some(())
        });
    }
    // One keeps its rows on disk, one in memory: both get everything, and all agree.
    cluster.run(4);
    cluster.set_flags(&["--wait-for-invitation"]);
    cluster.run(5);
    for node in 4..=5 {
        cluster.client(node).must(&["PING"]);
        let added = client.must(&["WARLOCK", "ADD", &cluster.peer_address(node)]).to_string();
        assert_eq!(added, format!("+OK n{node}"));
        wait_for(&format!("node {node} to have the rows"), || {
            let reply = cluster.client(node).ask(&["GET", "key0"]).ok()?;
            (reply.text() == Some(value(1, 0))).then_some(())
        });
        check(&mut cluster.client(node), 1, 0..1_000);
        assert_eq!(cluster.client(node).must(&["LRANGE", "list", "0", "-1"]).items().len(), 2);
        assert!(cluster.log(node).contains("snapshot installed"), "node {node} got the log instead");
    }
    cluster.wait_for_agreement();
    // And the copy is what it starts from.
    cluster.set_flags(&DISK);
    cluster.kill(4);
    write(&mut client, 2, 0..100);
    cluster.run(4);
    check(&mut cluster.client(4), 2, 0..100);
    check(&mut cluster.client(4), 1, 100..1_000);
    assert!(opened_at(&cluster, 4) > 0);
    cluster.wait_for_agreement();
}

#[test]
fn rows_move_from_memory_to_disk_and_not_back_by_accident() {
    let mut cluster = Cluster::start(WARLOCK, 1);
    write(&mut cluster.client(1), 1, 0..300);
    cluster.client(1).must(&["WARLOCK", "SNAPSHOT"]);
    wait_for("a snapshot", || cluster.log(1).contains("snapshot taken").then_some(()));
    write(&mut cluster.client(1), 2, 200..400);
    cluster.kill(1);
    cluster.set_flags(&DISK);
    cluster.run(1);
    check(&mut cluster.client(1), 1, 0..200);
    check(&mut cluster.client(1), 2, 200..400);
    assert!(cluster.log(1).contains("the store is filled from a snapshot"));
    cluster.kill(1);
    cluster.set_flags(&[]);
    let said = cluster.refusal(1);
    assert!(said.contains("--store disk") && said.contains("backup"), "{said}");
    cluster.set_flags(&["--store", "disk", "--durability", "memory"]);
    let said = cluster.refusal(1);
    assert!(said.contains("durability is memory"), "{said}");
    cluster.set_flags(&DISK);
    cluster.run(1);
    check(&mut cluster.client(1), 2, 200..400);
}

#[test]
fn backups_and_recovery_work_from_rows_on_disk() {
    let cluster = Cluster::with(on_disk(1));
    write(&mut cluster.client(1), 1, 0..2_000);
    cluster.client(1).must(&["WARLOCK", "SNAPSHOT"]);
    write(&mut cluster.client(1), 2, 1_500..2_500);
    let file = cluster.root().join("monday.warlock");
    let (is_ok, shown) = warlock(&["admin", "-n", &cluster.address(1), "backup", text(&file)]);
    assert!(is_ok && shown.contains("checked"), "{shown}");
    let mut reborn = Cluster::unformed(on_disk(1));
    let (dir, bind, peer) = (reborn.path(1), reborn.address(1), reborn.peer_address(1));
    let restore = ["restore", text(&file), "--dir", text(&dir), "--bind", &bind, "--peer-bind", &peer];
    let (is_ok, shown) = warlock(&restore);
    assert!(is_ok && shown.contains("a new cluster of one"), "{shown}");
    reborn.run(1);
    check(&mut reborn.client(1), 1, 0..1_500);
    check(&mut reborn.client(1), 2, 1_500..2_500);
    reborn.kill(1);
    // What is in the engine and what is in the journal only.
    let dir = reborn.path(1);
    let (is_ok, shown) = warlock(&["recover", "--force-new-cluster", "--yes", "--dir", text(&dir)]);
    assert!(is_ok && shown.contains("a new cluster of one"), "{shown}");
    reborn.run(1);
    check(&mut reborn.client(1), 1, 0..1_500);
    check(&mut reborn.client(1), 2, 1_500..2_500);
    assert_eq!(reborn.client(1).must(&["DBSIZE"]).integer(), Some(2_500));
}

#[test]
fn without_room_nothing_is_copied_and_it_goes_on_when_there_is_some() {
    const NO_ROOM: [&str; 2] = ["--disk-reserve", "1000000gb"];
    const PLENTY: [&str; 2] = ["--disk-reserve", "0"];
    let mut options = on_disk(2);
    options.env = vec![("WARLOCK_CLUSTER_SECRET".into(), SECRET.into())];
    let mut cluster = Cluster::unformed(options);
    cluster.run(1);
    write(&mut cluster.client(1), 1, 0..300);
    cluster.client(1).must(&["WARLOCK", "SNAPSHOT"]);
    wait_for("the rows to be durable", || {
        let status = cluster.client(1).must(&["WARLOCK", "STATUS"]);
        (status.field("journal_bytes")?.integer()? < 500_000).then_some(())
    });
    // A backup.
    cluster.kill(1);
    cluster.set_flags(&[&DISK[..], &NO_ROOM].concat());
    cluster.run(1);
    let refused = cluster.client(1).ask(&["WARLOCK", "BACKUP"]).unwrap().to_string();
    assert!(refused.contains("nothing was done: no room on the disk"), "{refused}");
    // A copy that this node writes for another.
    let flags = [&DISK[..], &PLENTY, &["--wait-for-invitation"]].concat();
    cluster.set_flags(&flags);
    cluster.run(2);
    cluster.client(2).must(&["PING"]);
    let (mut client, two) = (cluster.client(1), cluster.peer_address(2));
    let added = std::thread::spawn(move || client.ask(&["WARLOCK", "ADD", &two]));
    let says = |node: u16, what: &str| {
        wait_for(&format!("node {node} to say: {what}"), || cluster.log(node).contains(what).then_some(()));
    };
    says(1, "a snapshot could not be written");
    assert!(!cluster.log(1).contains("snapshot taken"));
    // A copy that it could write, and the other has no room for.
    cluster.kill(2);
    cluster.set_flags(&[&DISK[..], &NO_ROOM, &["--wait-for-invitation"]].concat());
    cluster.run(2);
    cluster.kill(1);
    cluster.set_flags(&[&DISK[..], &PLENTY].concat());
    cluster.run(1);
    let _ = added.join().unwrap();
    let says = |node: u16, what: &str| {
        wait_for(&format!("node {node} to say: {what}"), || cluster.log(node).contains(what).then_some(()));
    };
    says(2, "a copy of the rows must wait");
    assert!(!cluster.log(2).contains("a snapshot was fetched"));
    cluster.kill(2);
    cluster.set_flags(&flags);
    cluster.run(2);
    wait_for("node 2 to have the rows", || {
        let reply = cluster.client(2).ask(&["GET", "key0"]).ok()?;
        (reply.text() == Some(value(1, 0))).then_some(())
    });
    check(&mut cluster.client(2), 1, 0..300);
    assert!(cluster.client(1).must(&["WARLOCK", "BACKUP"]).error().is_none());
}
