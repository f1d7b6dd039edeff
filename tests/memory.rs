//! `--durability memory`: data that lives as long as a majority does, and nodes that come back as somebody else.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, Options, Reply, wait_for};
use std::time::{Duration, Instant};

fn in_memory(nodes: u16) -> Options {
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), nodes);
    options.flags = vec!["--durability".into(), "memory".into()];
    options.env = vec![("WARLOCK_CLUSTER_SECRET".into(), "correct horse battery".into())];
    options
}

fn voters(cluster: &Cluster, node: u16) -> Vec<String> {
    let reply = cluster.client(node).must(&["WARLOCK", "MEMBERS"]);
    let field = |row: &Reply, name: &str| row.field(name).and_then(Reply::text).unwrap();
    let valid = reply.items().iter().filter(|row| field(row, "condition") == "valid");
    valid.map(|row| field(row, "node")).collect()
}

#[test]
fn a_node_that_lost_its_memory_comes_back_by_itself_as_a_new_member() {
    let mut cluster = Cluster::unformed(in_memory(3));
    let seeds: Vec<String> = (1..=3).map(|node| cluster.peer_address(node)).collect();
    cluster.set_flags(&["--durability", "memory", "--join", &seeds.join(",")]);
    (1..=3).for_each(|node| cluster.run(node));
    for node in 1..=3 {
        cluster.client(node).must(&["PING"]);
    }
    assert_eq!(cluster.client(1).must(&["WARLOCK", "JOIN", &seeds[1], &seeds[2]]).to_string(), "+OK 3 nodes");
    cluster.wait_for_master();
    for n in 0..100 {
        assert!(cluster.client(1).must(&["SET", &format!("key{n}"), "value"]).is_ok());
    }
    // Each of them dies once, the master among them; each comes back empty and under another id.
    for (node, id) in [(3, "n4"), (1, "n5"), (2, "n6")] {
        let witness = node % 3 + 1;
        cluster.kill(node);
        assert!(cluster.client(witness).must(&["INCR", "deaths"]).integer().is_some());
        cluster.run(node);
        wait_for(&format!("node {node} to be {id} and to vote"), || {
            let voters = voters(&cluster, witness);
            (voters.len() == 3 && voters.iter().any(|voter| voter == id)).then_some(())
        });
    }
    assert_eq!(cluster.client(2).must(&["GET", "deaths"]).to_string(), "3");
    assert_eq!(cluster.client(3).must(&["GET", "key99"]).to_string(), "value");
    cluster.wait_for_agreement();
    for node in 1..=3 {
        assert!(!cluster.path(node).exists(), "nothing is written");
    }
}

#[test]
fn who_asked_a_master_that_died_does_not_wait_for_its_answer() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let mut cluster = Cluster::with(Options::new(env!("CARGO_BIN_EXE_warlock"), 3));
    let master = cluster.master();
    let other = master % 3 + 1;
    let mut client = cluster.client(other);
    wait_for("the other node to know the master", || {
        let status = client.must(&["WARLOCK", "STATUS"]);
        status.field("master").and_then(Reply::text).is_some_and(|name| !name.is_empty()).then_some(())
    });
    cluster.stop(master);
    let asked_at = Instant::now();
    let reply = client.ask(&["WARLOCK", "TRANSFER-MASTER"]).unwrap().to_string();
    assert!(asked_at.elapsed() < PATIENCE, "{reply} after {:?}", asked_at.elapsed());
    assert!(reply.contains("UNCERTAIN"), "{reply}");
    cluster.cont(master);
}

#[test]
fn a_cluster_of_one_in_memory_forgets_and_a_durable_directory_is_not_taken_for_one() {
    let mut cluster = Cluster::unformed(in_memory(1));
    cluster.run(1);
    assert!(cluster.client(1).must(&["SET", "a", "1"]).is_ok());
    cluster.kill(1);
    cluster.run(1);
    assert_eq!(cluster.client(1).must(&["GET", "a"]).to_string(), "(nil)");
    assert!(cluster.client(1).must(&["SET", "a", "2"]).is_ok());
    let saved = cluster.client(1).must(&["WARLOCK", "SNAPSHOT"]).to_string();
    assert!(saved.contains("in memory only"), "it does not pretend to write: {saved}");
    let durable = Cluster::form(Options::new(env!("CARGO_BIN_EXE_warlock"), 1));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_warlock"))
        .args(["server", "--durability", "memory", "--dir"])
        .arg(durable.path(1))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("durability"), "{message}");
}
