//! A recorded workload on every node while nodes are killed, stopped and told to go: one order must explain every answer.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, Recorded};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

/// Clients on every node; the seed is printed, and differs from run to run unless `SEED` is set.
fn record(cluster: &Cluster) -> Recorded {
    record_on(&cluster.addresses(), 0)
}

fn record_on(addresses: &[String], round: u16) -> Recorded {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("SEED={seed}");
    Recorded::start(addresses, 2, seed, &format!("r{round}:"))
}

#[test]
fn every_node_killed_in_turn() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let work = record(&cluster);
    for node in 1..=3 {
        work.wait_for_answers(300);
        cluster.kill(node);
        // From clients of the other two; those of the dead node cannot connect.
        work.wait_for_answers(300);
        cluster.run(node);
        cluster.wait_for_master();
    }
    work.wait_for_answers(300);
    work.finish(&cluster.address(1)).must_be_linearizable();
    cluster.wait_for_agreement();
}

#[test]
fn the_master_killed_again_and_again() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let work = record(&cluster);
    for _ in 0..3 {
        work.wait_for_answers(100);
        let master = cluster.master();
        cluster.kill(master);
        work.wait_for_answers(100);
        cluster.run(master);
    }
    work.wait_for_answers(100);
    work.finish(&cluster.address(2)).must_be_linearizable();
    cluster.wait_for_agreement();
}

#[test]
fn the_master_asleep_past_its_lease() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let work = record(&cluster);
    for _ in 0..2 {
        work.wait_for_answers(300);
        let master = cluster.master();
        // Asked before it sleeps and answered after it woke: this is where an old lease would give an old answer.
        cluster.stop(master);
        // Reads and writes need a master: so many answers mean that there is another, and that the sleeper's lease has passed.
        work.wait_for_answers(300);
        cluster.cont(master);
        work.wait_for_answers(300);
    }
    work.finish(&cluster.address(3)).must_be_linearizable();
    cluster.wait_for_agreement();
}

#[test]
fn all_nodes_killed_at_once() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let work = record(&cluster);
    for _ in 0..2 {
        work.wait_for_answers(300);
        for node in cluster.all() {
            cluster.kill(node);
        }
        for node in cluster.all() {
            cluster.run(node);
        }
        cluster.wait_for_master();
    }
    work.wait_for_answers(300);
    work.finish(&cluster.address(1)).must_be_linearizable();
    cluster.wait_for_agreement();
}

#[test]
fn a_master_that_is_told_to_go_costs_no_client_of_another_node_a_request() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    for _ in 0..2 {
        let master = cluster.master();
        let others: Vec<String> = cluster
            .all()
            .into_iter()
            .filter(|node| *node != master)
            .map(|node| cluster.address(node))
            .collect();
        let work = record_on(&others, master);
        work.wait_for_answers(200);
        let status = cluster.terminate(master);
        assert!(status.success(), "a node that is told to go exits with 0, not {status}");
        work.wait_for_answers(200);
        assert_eq!(work.failed(), 0, "requests failed while the master went");
        work.finish(&others[0]).must_be_linearizable();
        cluster.run(master);
        cluster.wait_for_master();
    }
}
