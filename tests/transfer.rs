//! Snapshots on their way to a member that misses too much of the log, with real processes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, Options, Reply, wait_for};
use std::time::{Duration, Instant};

const RATE: u64 = 256 << 10;
/// How long a silent sender is waited for when two thirds have come, and some to spare.
const PATIENCE: Duration = Duration::from_secs(6);
/// Digits of its number repeated so often.
const VALUE_BYTES: usize = 4_000;
const VALUES: usize = 300;

/// A counter of a node's metrics.
fn counter(cluster: &Cluster, node: u16, name: &str) -> u64 {
    wait_for(&format!("{name} of node {node}"), || {
        let (_, page) = cluster.http(node, "/metrics")?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse::<f64>().unwrap() as u64)
    })
}

/// Three members with some megabytes in snapshots only, and a fourth node that waits to be invited.
fn with_snapshots() -> Cluster {
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 4);
    options.flags =
        ["--wait-for-invitation", "--snapshot-rate", &RATE.to_string()].map(String::from).to_vec();
    options.env = vec![("WARLOCK_CLUSTER_SECRET".into(), "correct horse battery".into())];
    let mut cluster = Cluster::unformed(options);
    for node in 1..=4 {
        cluster.run(node);
        cluster.client(node).must(&["PING"]);
    }
    let (two, three) = (cluster.peer_address(2), cluster.peer_address(3));
    assert!(cluster.client(1).must(&["WARLOCK", "JOIN", &two, &three]).to_string().contains("OK"));
    cluster.wait_for_master();
    let mut client = cluster.client(1);
    for n in 0..VALUES {
        assert!(client.must(&["SET", &format!("key{n}"), &n.to_string().repeat(VALUE_BYTES)]).is_ok());
    }
    for node in 1..=3 {
        cluster.client(node).must(&["WARLOCK", "SNAPSHOT"]);
        wait_for(&format!("a snapshot of node {node}"), || {
            cluster.log(node).contains("snapshot taken").then_some(())
        });
    }
    // Their next life begins with the snapshot: they do not have the log below it.
    for node in 1..=3 {
        cluster.kill(node);
        cluster.run(node);
    }
    cluster.wait_for_master();
    cluster
}

/// The length of a node's only snapshot.
fn snapshot_bytes(cluster: &Cluster, node: u16) -> u64 {
    let files = std::fs::read_dir(cluster.path(node).join("snapshots")).unwrap();
    let mut sizes = files.map(|file| file.unwrap().metadata().unwrap().len());
    let size = sizes.next().unwrap();
    assert_eq!(sizes.next(), None, "node {node} has one snapshot");
    size
}

#[test]
fn a_snapshot_comes_from_a_member_at_the_rate_and_goes_on_where_it_was_when_that_restarts() {
    let mut cluster = with_snapshots();
    let (master, sent) = (cluster.master(), "warlock_snapshot_sent_bytes_total");
    let received = |cluster: &Cluster| counter(cluster, 4, "warlock_snapshot_received_bytes_total");
    let mut client = cluster.client(master);
    let before = Instant::now();
    assert_eq!(client.must(&["WARLOCK", "ADD", &cluster.peer_address(4)]).to_string(), "+OK n4");
    wait_for("two thirds of the snapshot", || (received(&cluster) > 2_000_000).then_some(()));
    let source = (1..=3).find(|node| counter(&cluster, *node, sent) > 0).expect("somebody sends");
    assert_ne!(source, master, "the master has enough to do");
    let (total, at_master) = (snapshot_bytes(&cluster, source), counter(&cluster, master, sent));
    let killed = Instant::now();
    cluster.kill(source);
    cluster.run(source);
    cluster.client(source).must(&["PING"]);
    let away = killed.elapsed();
    let kept = received(&cluster);
    assert!(kept < total, "it was too late");
    assert!(client.must(&["SET", "meanwhile", "1"]).is_ok());
    wait_for("the rest", || cluster.log(4).contains("snapshot installed").then_some(()));
    if away < PATIENCE {
        assert_eq!(received(&cluster), total, "nothing was sent twice");
        assert!(counter(&cluster, source, sent) >= total - kept, "its second life sent the rest");
        assert_eq!((at_master, counter(&cluster, master, sent)), (0, 0));
    } else {
        println!(
            "not judged: to start a node took {away:?} on this machine, and so long nobody waits for it"
        );
    }
    // A full bucket and the last piece are for nothing.
    let least = Duration::from_secs_f64((total as f64 - RATE as f64 / 5.0) / RATE as f64);
    assert!(before.elapsed() >= least, "{total} bytes took {:?}", before.elapsed());
    assert_eq!(cluster.client(4).must(&["DBSIZE"]), Reply::Integer(VALUES as i64 + 1));
    cluster.wait_for_agreement();
}
