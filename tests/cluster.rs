//! Real processes, real disks, real signals: what a cluster must survive.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::Signal;
use harness::counting::Counting;
use harness::{Client, Cluster, Reply, wait_for};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

#[test]
fn no_acknowledged_write_is_lost_or_done_twice_when_each_node_dies_in_turn() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let nodes: Vec<_> = cluster.all().into_iter().zip(cluster.addresses()).collect();
    let counters = Counting::start(&nodes, 1);
    let mut probe_count = 0;
    for node in 1..=3 {
        // Some progress between the blows, seen from another node.
        let mut witness = cluster.client(node % 3 + 1);
        for _ in 0..20 {
            assert!(witness.must(&["INCR", "probe"]).integer().is_some());
            probe_count += 1;
        }
        cluster.kill(node);
        // A request through a surviving node is held and answered, not failed, while a new master is found.
        assert!(witness.must(&["INCR", "probe"]).integer().is_some());
        probe_count += 1;
        cluster.run(node);
        counters.wait_for_answers(&cluster.all(), 5);
    }
    assert_eq!(cluster.client(1).must(&["GET", "probe"]), probe_count.to_string());
    counters.finish(&cluster.address(1)).unwrap();
}

#[test]
fn the_check_of_the_counters_notices_a_write_too_many_and_one_too_few() {
    let cluster = Cluster::start(WARLOCK, 1);
    for (command, complaint) in [("INCR", "done twice"), ("DECR", "lost")] {
        let counters = Counting::start(&[(1, cluster.address(1))], 1);
        counters.wait_for_answers(&[1], 5);
        let mut client = cluster.client(1);
        client.must(&[command, "counter:1:0"]);
        let checked = counters.finish(&cluster.address(1));
        assert!(checked.is_err_and(|wrong| wrong.contains(complaint)), "{command} went unnoticed");
        client.must(&["DEL", "counter:1:0"]);
    }
}

#[test]
fn everything_is_there_after_all_nodes_were_killed_at_once() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let mut client = cluster.client(1);
    for n in 0..200 {
        client.send(&["SET", &format!("key{n}"), &format!("value{n}")]).unwrap();
    }
    for _ in 0..200 {
        assert_eq!(client.receive().unwrap(), "+OK");
    }
    for node in 1..=3 {
        cluster.kill(node);
    }
    for node in 1..=3 {
        cluster.run(node);
    }
    cluster.wait_for_master();
    for node in 1..=3 {
        let mut client = cluster.client(node);
        for n in 0..200 {
            assert_eq!(client.must(&["GET", &format!("key{n}")]), format!("value{n}"));
        }
    }
}

#[test]
fn a_master_that_slept_past_its_lease_serves_no_stale_read() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let master = cluster.master();
    let other = master % 3 + 1;
    let (mut at_master, mut at_other) = (cluster.client(master), cluster.client(other));
    assert_eq!(at_master.must(&["SET", "k", "old"]), "+OK");
    cluster.stop(master);
    // Held until the lease has passed and another master is found.
    assert_eq!(at_other.must(&["SET", "k", "new"]), "+OK");
    at_master.send(&["GET", "k"]).unwrap();
    cluster.cont(master);
    assert_eq!(at_master.receive().unwrap(), "new");
}

#[test]
fn a_pipeline_sees_its_own_writes_on_every_node() {
    let cluster = Cluster::start(WARLOCK, 3);
    for node in 1..=3 {
        let mut client = cluster.client(node);
        for n in 0..50 {
            client.send(&["SET", "p", &n.to_string()]).unwrap();
            client.send(&["GET", "p"]).unwrap();
        }
        for n in 0..50 {
            assert_eq!(client.receive().unwrap(), "+OK");
            assert_eq!(client.receive().unwrap(), n.to_string());
        }
    }
}

#[test]
fn the_mastership_moves_on_request_and_when_the_master_is_told_to_stop() {
    // A lease that no busy machine lets run out: the mastership moves when it is asked for, and never by itself.
    let mut options = harness::Options::new(WARLOCK, 3);
    options.lease_ms = Some(10_000);
    options.flags = vec!["--request-timeout".into(), "60s".into()];
    let mut cluster = Cluster::with(options);
    let master = cluster.master();
    let heir = master % 3 + 1;
    let mut client = cluster.client(heir % 3 + 1);
    assert_eq!(client.must(&["SET", "a", "1"]), "+OK");
    // The heir has what there is, and the one that is asked knows who is to be asked.
    cluster.wait_for_agreement();
    let reply = client.must(&["WARLOCK", "TRANSFER-MASTER", &format!("n{heir}")]);
    assert!(reply.is_ok(), "to a node that is in step: {reply}");
    wait_for("the heir to be master", || cluster.is_master(heir).then_some(()));
    assert_eq!(client.must(&["INCR", "a"]), ":2");
    assert_eq!(client.must(&["WARLOCK", "SNAPSHOT"]), "+Background saving started");
    assert!(client.must(&["WARLOCK", "NONSENSE"]).is_error("ERR unknown"));
    cluster.signal(heir, Signal::TERM);
    assert_eq!(client.must(&["INCR", "a"]), ":3");
    let status = cluster.wait_for_exit(heir);
    assert!(status.success(), "a node that is told to stop exits with 0: {status}");
}

/// Members tell how far they are with every heartbeat. With so long a lease there are hundreds of slots between two, at any speed of the machine.
#[test]
fn under_load_the_mastership_moves_at_once_and_no_request_fails() {
    let mut options = harness::Options::new(WARLOCK, 3);
    options.lease_ms = Some(10_000);
    options.flags = vec!["--request-timeout".into(), "60s".into()];
    let mut cluster = Cluster::with(options);
    let nodes: Vec<_> = cluster.all().into_iter().zip(cluster.addresses()).collect();
    let counters = Counting::start(&nodes, 1);
    for _ in 0..3 {
        let master = cluster.master();
        let heir = master % 3 + 1;
        counters.wait_for_answers(&cluster.all(), 300);
        let reply = cluster.client(master).must(&["WARLOCK", "TRANSFER-MASTER", &format!("n{heir}")]);
        assert!(reply.is_ok(), "to a node that keeps up: {reply}");
        wait_for("the heir to be master", || cluster.is_master(heir).then_some(()));
    }
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    counters.wait_for_answers(&others, 300);
    counters.listen();
    assert!(cluster.terminate(master).success());
    counters.wait_for_answers(&others, 20);
    let silence = counters.longest_silence(&others);
    assert!(
        silence < Duration::from_secs(4),
        "nobody waits for the lease of 10 s, but somebody waited {silence:?}"
    );
    assert_eq!(counters.failed(&others), 0);
    counters.finish(&cluster.address(others[0])).unwrap();
}

#[test]
fn large_values_pass_and_too_large_ones_are_refused_without_harm() {
    let mut options = harness::Options::new(WARLOCK, 3);
    // How fast an unoptimised build on a busy machine moves them is not the question.
    options.flags = vec!["--request-timeout".into(), "60s".into()];
    let cluster = Cluster::with(options);
    let large = "x".repeat(6 << 20);
    let mut client = cluster.client(1);
    for key in ["a", "b", "c", "d", "e", "f"] {
        client.send(&["SET", key, &large]).unwrap();
    }
    for _ in 0..6 {
        assert_eq!(client.receive().unwrap(), "+OK");
    }
    assert_eq!(cluster.client(2).must(&["STRLEN", "f"]), format!(":{}", large.len()));
    let mut rude = cluster.client(3);
    rude.raw().write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$900000000\r\n").unwrap();
    assert_eq!(rude.receive().unwrap(), "-ERR Protocol error: invalid bulk length");
    assert_eq!(cluster.client(3).must(&["GET", "none"]), "(nil)");
}

/// What a node says its master's ballot is, in INFO and in STATUS; nothing if it changed between the two.
fn ballot(cluster: &Cluster, node: u16) -> Option<String> {
    let info = cluster.client(node).must(&["INFO", "warlock"]).text()?;
    let line = info.lines().find_map(|line| line.strip_prefix("warlock_ballot:"))?;
    let status = cluster.client(node).must(&["WARLOCK", "STATUS"]);
    (status.field("ballot")?.text()? == line).then(|| line.to_string())
}

#[test]
fn every_node_shows_the_ballot_of_the_master_that_it_follows() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut client = cluster.client(1);
    for _ in 0..2 {
        // On a busy machine an election may come between any two looks.
        let master = wait_for("all nodes to show the ballot of the master", || {
            let master = cluster.master();
            let follows = |node| {
                ballot(&cluster, node)
                    .filter(|shown| shown.ends_with(&format!(".n{master}")) && !shown.starts_with('0'))
            };
            let shown: Vec<String> = cluster.all().into_iter().map(follows).collect::<Option<_>>()?;
            shown.iter().all(|ballot| *ballot == shown[0]).then_some(master)
        });
        wait_for("another master", || client.must(&["WARLOCK", "TRANSFER-MASTER"]).is_ok().then_some(()));
        wait_for("the new master", || (cluster.master() != master).then_some(()));
    }
}

#[test]
fn a_transaction_sees_changes_on_other_nodes_and_through_a_fail_over() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let master = cluster.master();
    let (here, there) = (master % 3 + 1, (master + 1) % 3 + 1);
    let (mut one, mut other) = (cluster.client(here), cluster.client(there));
    let exec = |client: &mut Client, value: &str| {
        assert_eq!(client.must(&["MULTI"]), "+OK");
        assert_eq!(client.must(&["SET", "owner", value]), "+QUEUED");
        client.must(&["EXEC"])
    };
    assert_eq!(one.must(&["WATCH", "owner"]), "+OK");
    assert_eq!(other.must(&["SET", "owner", "other"]), "+OK");
    assert_eq!(exec(&mut one, "one"), Reply::Nil, "another node changed the key");
    // Watched before the fail-over, changed after it.
    assert_eq!(one.must(&["WATCH", "owner"]), "+OK");
    cluster.kill(master);
    assert_eq!(other.must(&["SET", "owner", "other"]), "+OK");
    assert_eq!(exec(&mut one, "one"), Reply::Nil, "the same value counts, too");
    // Watched before another one, and not changed.
    cluster.run(master);
    cluster.wait_for_master();
    let master = cluster.master();
    let mut here = cluster.client(master % 3 + 1);
    assert_eq!(here.must(&["WATCH", "owner"]), "+OK");
    cluster.kill(master);
    assert_eq!(exec(&mut here, "here").items().len(), 1);
    assert_eq!(here.must(&["GET", "owner"]).text().as_deref(), Some("here"));
}

#[test]
fn a_readonly_client_reads_on_without_a_master_until_the_state_is_too_old() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let survivor = cluster.master() % 3 + 1;
    let mut client = cluster.client(survivor);
    assert_eq!(client.must(&["SET", "a", "1"]), "+OK");
    assert_eq!(client.must(&["READONLY"]), "+OK");
    assert_eq!(wait_for("a master to vouch for the state", || client.must(&["GET", "a"]).text()), "1");
    for node in cluster.all().into_iter().filter(|node| *node != survivor) {
        cluster.kill(node);
    }
    wait_for("the state to be too old", || {
        let reply = client.must(&["GET", "a"]);
        assert!(reply.text().as_deref() == Some("1") || reply.is_error("STALE "), "{reply:?}");
        reply.is_error("STALE ").then_some(())
    });
}

#[test]
fn keys_expire_on_an_idle_cluster() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut client = cluster.client(1);
    assert_eq!(client.must(&["SET", "short", "life", "PX", "100"]), "+OK");
    wait_for("the key to expire", || (client.must(&["GET", "short"]) == Reply::Nil).then_some(()));
}

#[test]
fn a_directory_that_is_no_node_or_is_in_use_is_refused_with_the_way_out() {
    let run = |path: &Path| {
        let output = Command::new(WARLOCK).arg("server").arg("--dir").arg(path).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("something"), "else").unwrap();
    assert!(run(directory.path()).contains("holds no node"));
    let empty = tempfile::tempdir().unwrap();
    assert!(run(empty.path()).contains("holds no node"), "an empty directory is no reason to begin anew");
    let cluster = Cluster::start(WARLOCK, 1);
    let message = run(&cluster.path(1));
    assert!(message.contains("lock"), "{message}");
    let mut cluster = cluster;
    cluster.kill(1);
    std::fs::remove_dir_all(cluster.path(1).join("journal")).unwrap();
    let message = run(&cluster.path(1));
    assert!(message.contains("journal"), "{message}");
}

/// Whether the kernel would hand a SIGTERM to a handler of the process.
fn handles_sigterm(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & (1 << (Signal::TERM.as_raw() - 1)) != 0
}

#[test]
fn a_node_that_is_told_to_go_while_it_starts_ends_with_0() {
    let mut was_seen = false;
    // A busy machine may let the node start before we look: then once more.
    for _ in 0..10 {
        let mut cluster = Cluster::unformed(harness::Options::new(WARLOCK, 1));
        cluster.run(1);
        let pid = cluster.pid(1).unwrap();
        wait_for("a handler of SIGTERM", || handles_sigterm(pid).then_some(()));
        was_seen = !cluster.log(1).contains("node started");
        let status = cluster.terminate(1);
        assert!(status.success(), "told to go in its first moments, it ended with {status}");
        if was_seen {
            break;
        }
    }
    assert!(was_seen, "SIGTERM is handled only when the node runs already");
}
