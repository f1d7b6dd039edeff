//! Measures what a snapshot costs writers: the latency of writes while every node writes a snapshot of many keys, beside the latency without.
//!
//! Rounds with and without alternate, so that both see the same machine. `snapshot_pause [--keys 1000000] [--rounds 3] [--clients 4] [--binary path]`

use std::time::{Duration, Instant};
use warlock_harness::counting::Counting;
use warlock_harness::report::{measured_binary, option, progress, quantile};
use warlock_harness::{Cluster, wait_for};

const PIPELINE: usize = 1_000;

fn main() {
    let (keys, rounds): (usize, usize) = (option("--keys", 1_000_000), option("--rounds", 3));
    let cluster = Cluster::start(measured_binary(), 3);
    fill(&cluster, keys);
    let nodes: Vec<(u16, String)> = cluster.all().into_iter().zip(cluster.addresses()).collect();
    let clients = Counting::start(&nodes, option("--clients", 4));
    clients.wait_for_answers(&cluster.all(), 100);
    let (mut with, mut without, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        let _ = clients.take_latencies();
        let length = snapshot_everywhere(&cluster);
        with.append(&mut clients.take_latencies());
        lengths.push(length);
        // As long again, without.
        std::thread::sleep(length.max(Duration::from_secs(2)));
        without.append(&mut clients.take_latencies());
        progress("snapshot", round, rounds, &format!("took {:.1} s", length.as_secs_f64()));
    }
    let longest = lengths.iter().max().copied().unwrap_or_default();
    println!(
        "{keys} keys, 3 nodes, {rounds} snapshots on all nodes at once, the longest {:.1} s",
        longest.as_secs_f64()
    );
    let quiet = show("without", without);
    let busy = show("with", with);
    println!("p99.9 with − without: {:.1} ms (goal: below 50 ms)", busy - quiet);
    match clients.finish(&cluster.address(1)) {
        Ok(total) => println!("{total} acknowledged writes: none lost, none done twice"),
        Err(wrong) => {
            println!("{wrong}");
            std::process::exit(1);
        }
    }
}

fn fill(cluster: &Cluster, keys: usize) {
    let mut client = cluster.client(cluster.master());
    for first in (0..keys).step_by(PIPELINE) {
        let requests: Vec<[String; 3]> = (first..keys.min(first + PIPELINE))
            .map(|n| ["SET".to_string(), format!("key:{n:09}"), format!("the value of key number {n:09}")])
            .collect();
        let replies =
            client.pipeline(&requests).unwrap_or_else(|error| panic!("the master does not answer: {error}"));
        assert!(replies.iter().all(warlock_harness::Reply::is_ok), "a key was not written");
        if first % (PIPELINE * 50) == 0 || first + PIPELINE >= keys {
            progress("fill    ", (first + PIPELINE).min(keys), keys, "");
        }
    }
}

/// Lets every node write a snapshot at once, and waits for all of them. How long it took.
fn snapshot_everywhere(cluster: &Cluster) -> Duration {
    let taken = |node: u16| cluster.log(node).matches("snapshot taken").count();
    let before: Vec<usize> = cluster.all().into_iter().map(taken).collect();
    let start = Instant::now();
    for node in cluster.all() {
        cluster.client(node).must(&["WARLOCK", "SNAPSHOT"]);
    }
    wait_for("a snapshot on every node", || {
        cluster.all().into_iter().zip(&before).all(|(node, before)| taken(node) > *before).then_some(())
    });
    start.elapsed()
}

/// Prints a line; the 99.9th percentile in milliseconds.
fn show(what: &str, mut latencies_us: Vec<u32>) -> f64 {
    latencies_us.sort_unstable();
    let ms = |share| f64::from(quantile(&latencies_us, share)) / 1e3;
    println!(
        "{what:>8}: p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, max {:.1} ms ({} writes)",
        ms(0.5),
        ms(0.99),
        ms(0.999),
        ms(1.0),
        latencies_us.len()
    );
    ms(0.999)
}
