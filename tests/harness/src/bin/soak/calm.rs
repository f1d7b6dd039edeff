//! A steady load and no faults: does anything grow, or get slower, that should not?
//!
//! The data is bounded and every node takes a snapshot each minute, so that memory, files and journal have no reason to grow. At the end the first quarter
//! of the run is compared with the last. Latency is only shown: it says more about the machine's other work than about the nodes.

use crate::mixed;
use crate::paced::Paced;
use crate::vitals::{self, Vitals};
use sim::rng::Rng;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use warlock_harness::report::{measured_binary, option, quantile};
use warlock_harness::{Cluster, Reply};

const MINUTE: Duration = Duration::from_secs(60);
/// Looks at the nodes in each minute.
const LOOKS: u32 = 12;
/// How much more memory a node may have in the last quarter than in the first.
const GROWTH_MAX: f64 = 0.10;

/// What one minute brought.
struct Minute {
    rate: f64,
    /// Sorted.
    latencies_us: Vec<u32>,
    nodes: Vec<Vitals>,
    elections: u32,
    /// Requests that were answered with an error.
    refused: u64,
}

/// What went wrong.
pub fn run(minutes: u64, seed: u64) -> Vec<String> {
    println!("SEED={seed}");
    let json: PathBuf = option("--json", PathBuf::new());
    let cluster = Cluster::start(measured_binary(), 3);
    let mut client = cluster.client(cluster.master());
    for requests in mixed::fill(&mut Rng::new(seed)) {
        let replies =
            client.pipeline(&requests).unwrap_or_else(|error| panic!("the master does not answer: {error}"));
        assert!(replies.iter().all(Reply::is_ok), "the first data was refused");
    }
    let load = Paced::start(&cluster.addresses(), option("--clients", 2), option("--rate", 2_000), seed);
    let mut ballot = vitals::ballot(&cluster);
    // Not counted: a node's memory takes its size.
    let _ = watch(&cluster, &load, &mut ballot);
    println!(
        "minute     rate  p50 ms  p99 ms  p99.9 ms    max ms  memory MB          files MB           segments  elections  refused"
    );
    let mut all: Vec<Minute> = Vec::new();
    while (all.len() as u64) < minutes && load.wrong().is_empty() {
        let minute = watch(&cluster, &load, &mut ballot);
        show(all.len() + 1, &minute);
        all.push(minute);
        if !json.as_os_str().is_empty() {
            std::fs::write(&json, to_json(&all))
                .unwrap_or_else(|error| panic!("cannot write {} (--json): {error}", json.display()));
        }
    }
    let refused = load.refused();
    let mut failures = load.finish();
    if refused > 0 {
        failures.push(format!("{refused} requests were answered with an error"));
    }
    cluster.wait_for_agreement();
    println!("all nodes agree; {} elections", all.iter().map(|minute| minute.elections).sum::<u32>());
    failures.extend(compare(&all));
    failures
}

/// One minute.
fn watch(cluster: &Cluster, load: &Paced, ballot: &mut Option<String>) -> Minute {
    let (start, refused) = (Instant::now(), load.refused());
    drop(load.take_latencies());
    let (mut elections, mut memory) = (0, vec![0; cluster.all().len()]);
    for look in 1..=LOOKS {
        std::thread::sleep((start + MINUTE * look / LOOKS).saturating_duration_since(Instant::now()));
        if let Some(now) = vitals::ballot(cluster) {
            elections += u32::from(ballot.as_ref() != Some(&now));
            *ballot = Some(now);
        }
        for (node, sum) in cluster.all().into_iter().zip(&mut memory) {
            *sum += vitals::resident_bytes(cluster, node).unwrap_or(0);
            // One after the other, as it happens when they do it by themselves.
            if look == u32::from(node) * 3 {
                cluster.client(node).must(&["WARLOCK", "SNAPSHOT"]);
            }
        }
    }
    let latencies_us = load.take_latencies();
    let rate = latencies_us.len() as f64 / start.elapsed().as_secs_f64();
    let nodes = cluster.all().into_iter().zip(memory).map(|(node, memory)| Vitals {
        memory_bytes: memory / u64::from(LOOKS),
        directory_bytes: vitals::directory_bytes(&cluster.path(node)),
        segments: vitals::segments(&cluster.path(node)),
    });
    Minute { rate, latencies_us, nodes: nodes.collect(), elections, refused: load.refused() - refused }
}

fn show(number: usize, minute: &Minute) {
    let ms = |share| f64::from(quantile(&minute.latencies_us, share)) / 1e3;
    let each =
        |value: &dyn Fn(&Vitals) -> String| minute.nodes.iter().map(value).collect::<Vec<_>>().join(" ");
    println!(
        "{number:>6}  {:>7.0}  {:>6.2}  {:>6.2}  {:>8.2}  {:>8.1}  {:<17}  {:<17}  {:<8}  {:>9}  {:>7}",
        minute.rate,
        ms(0.5),
        ms(0.99),
        ms(0.999),
        ms(1.0),
        each(&|node| format!("{:.1}", megabytes(node.memory_bytes))),
        each(&|node| format!("{:.0}", megabytes(node.directory_bytes))),
        each(&|node| node.segments.to_string()),
        minute.elections,
        minute.refused
    );
}

/// Prints the first and the last quarter side by side; what is wrong with them.
fn compare(all: &[Minute]) -> Vec<String> {
    let quarter = (all.len() / 4).max(1).min(all.len());
    let (first, last) = (&all[..quarter], &all[all.len() - quarter..]);
    for (name, minutes) in [("first", first), ("last", last)] {
        let mut latencies: Vec<u32> =
            minutes.iter().flat_map(|minute| &minute.latencies_us).copied().collect();
        latencies.sort_unstable();
        let ms = |share| f64::from(quantile(&latencies, share)) / 1e3;
        println!(
            "{name} quarter ({quarter} min): p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.1} ms",
            ms(0.5),
            ms(0.99),
            ms(0.999),
            ms(1.0)
        );
    }
    let nodes = first.first().map_or(0, |minute| minute.nodes.len());
    let grown = (0..nodes).filter_map(|node| {
        let (before, after) = (mean_memory(first, node), mean_memory(last, node));
        let growth = after / before.max(1.0) - 1.0;
        println!("node {}: {:.1} MB, then {:.1} MB ({:+.1} %)", node + 1, before, after, growth * 100.0);
        (growth > GROWTH_MAX).then(|| {
            format!(
                "the memory of node {} grew by {:.1} % (at most {:.0} %)",
                node + 1,
                growth * 100.0,
                GROWTH_MAX * 100.0
            )
        })
    });
    grown.collect()
}

/// In megabytes.
fn mean_memory(minutes: &[Minute], node: usize) -> f64 {
    let sum: u64 =
        minutes.iter().filter_map(|minute| minute.nodes.get(node)).map(|node| node.memory_bytes).sum();
    megabytes(sum) / minutes.len().max(1) as f64
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// `[{"minute": 1, …}, …]`, written anew each minute, so that a run that is cut short has its numbers.
fn to_json(all: &[Minute]) -> String {
    let mut text = String::from("[");
    for (index, minute) in all.iter().enumerate() {
        let us = |share| quantile(&minute.latencies_us, share);
        let each = |value: fn(&Vitals) -> u64| {
            minute.nodes.iter().map(|node| value(node).to_string()).collect::<Vec<_>>().join(", ")
        };
        let _ = write!(
            text,
            "{}\n  {{\"minute\": {}, \"rate\": {:.1}, \"p50_us\": {}, \"p99_us\": {}, \"p999_us\": {}, \"max_us\": {}, \"memory_bytes\": [{}], \
             \"directory_bytes\": [{}], \"segments\": [{}], \"elections\": {}, \"refused\": {}}}",
            if index == 0 { "" } else { "," },
            index + 1,
            minute.rate,
            us(0.5),
            us(0.99),
            us(0.999),
            us(1.0),
            each(|node| node.memory_bytes),
            each(|node| node.directory_bytes),
            each(|node| node.segments),
            minute.elections,
            minute.refused
        );
    }
    text + "\n]\n"
}
