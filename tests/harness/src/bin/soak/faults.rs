//! Random kills, stops, hand-overs and snapshots under a load that never pauses.

use crate::vitals;
use sim::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use warlock_harness::counting::Counting;
use warlock_harness::report::{measured_binary, quantile};
use warlock_harness::{Client, Cluster, Recorded};

const MINUTE: Duration = Duration::from_secs(60);
/// Kinds of data beside the counters and the recorded registers: some grow and shrink, some expire.
const MIXED_KEYS: u64 = 200;

/// What went wrong.
pub fn run(minutes: u64, seed: u64) -> Vec<String> {
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::start(measured_binary(), 3);
    let nodes: Vec<(u16, String)> = cluster.all().into_iter().zip(cluster.addresses()).collect();
    let counters = Counting::start(&nodes, 2);
    let stop = Arc::new(AtomicBool::new(false));
    let mixers: Vec<_> = nodes
        .iter()
        .map(|(node, address)| {
            let (address, stop, seed) = (address.clone(), stop.clone(), seed + u64::from(*node));
            std::thread::spawn(move || mix(&address, seed, &stop))
        })
        .collect();
    let mut failures = Vec::new();
    println!("minute  writes/s    p50    p99  p99.9    silence  memory of the nodes  history  faults");
    for minute in 1..=minutes {
        counters.listen();
        let (start, before) = (Instant::now(), counters.acknowledged());
        let work =
            Recorded::start(&cluster.addresses(), 1, seed.wrapping_add(minute), &format!("soak{minute}:"));
        let mut faults = Vec::new();
        while start.elapsed() < MINUTE {
            std::thread::sleep(Duration::from_millis(rng.between(2_000, 8_000)));
            faults.push(hurt(&mut cluster, &mut rng));
        }
        let history = match work.finish(&cluster.address(cluster.master())).check() {
            Ok((answered, unknown)) => format!("ok ({answered}+{unknown}?)"),
            Err(broken) => {
                failures.push(format!("minute {minute}: not linearizable: {broken}"));
                "BROKEN".to_string()
            }
        };
        let mut latencies = counters.take_latencies();
        latencies.sort_unstable();
        let ms = |share| format!("{:.1}", f64::from(quantile(&latencies, share)) / 1e3);
        let speed = (counters.acknowledged() - before) as f64 / start.elapsed().as_secs_f64();
        let memory = cluster.all().into_iter().map(|node| {
            let bytes = vitals::resident_bytes(&cluster, node);
            bytes.map_or_else(|| "-".to_string(), |bytes| format!("{} MB", bytes >> 20))
        });
        let memory: Vec<String> = memory.collect();
        println!(
            "{minute:>6}  {speed:>8.0}  {:>5}  {:>5}  {:>5}  {:>6} ms  {:<19}  {history}  {}",
            ms(0.5),
            ms(0.99),
            ms(0.999),
            counters.longest_silence(&cluster.all()).as_millis(),
            memory.join(" "),
            faults.join(" ")
        );
        if !failures.is_empty() {
            break;
        }
    }
    stop.store(true, Relaxed);
    for mixer in mixers {
        match mixer.join() {
            Ok(None) => {}
            Ok(Some(wrong)) => failures.push(wrong),
            Err(_) => failures.push("a client of the mixed load panicked".into()),
        }
    }
    match counters.finish(&cluster.address(1)) {
        Ok(total) => println!("{total} acknowledged increments: none lost, none done twice"),
        Err(wrong) => failures.push(wrong),
    }
    cluster.wait_for_agreement();
    println!("all nodes agree");
    failures
}

/// One random fault, and its end.
fn hurt(cluster: &mut Cluster, rng: &mut Rng) -> String {
    let node = u16::try_from(rng.between(1, 3)).unwrap_or(1);
    match rng.between(0, 5) {
        0 | 1 => {
            cluster.kill(node);
            std::thread::sleep(Duration::from_millis(rng.skewed(0, 3_000)));
            cluster.run(node);
            format!("kill{node}")
        }
        2 => {
            cluster.stop(node);
            std::thread::sleep(Duration::from_millis(rng.between(100, 4_000)));
            cluster.cont(node);
            format!("stop{node}")
        }
        3 => {
            cluster.client(node).must(&["PING"]); // a node that is not up yet has nothing to hand over
            let status = cluster.terminate(node);
            assert!(status.success(), "node {node} was told to go and ended with {status}");
            cluster.run(node);
            format!("term{node}")
        }
        4 => {
            let _ = cluster.client(node).must(&["WARLOCK", "TRANSFER-MASTER"]);
            "transfer".into()
        }
        _ => {
            let _ = cluster.client(node).must(&["WARLOCK", "SNAPSHOT"]);
            format!("snapshot{node}")
        }
    }
}

/// Writes and reads many kinds of data. The first answer that makes no sense.
fn mix(address: &str, seed: u64, stop: &AtomicBool) -> Option<String> {
    let mut rng = Rng::new(seed);
    let mut connection: Option<Client> = None;
    while !stop.load(Relaxed) {
        let Some(client) = connection.as_mut() else {
            connection = Client::try_connect(address).ok();
            if connection.is_none() {
                std::thread::sleep(Duration::from_millis(20)); // the node is down
            }
            continue;
        };
        let (n, value) =
            (rng.between(1, MIXED_KEYS), "x".repeat(usize::try_from(rng.skewed(1, 2_000)).unwrap_or(1)));
        let (text, list, hash) = (format!("text{n}"), format!("list{n}"), format!("hash{n}"));
        let field = rng.between(1, 50).to_string();
        let request: Vec<&str> = match rng.between(0, 7) {
            0 => vec!["SET", &text, &value, "PX", "5000"],
            1 => vec!["GET", &text],
            2 => vec!["RPUSH", &list, &value],
            3 => vec!["LPOP", &list, "3"],
            4 => vec!["HSET", &hash, &field, &value],
            5 => vec!["HGETALL", &hash],
            6 => vec!["DEL", &hash],
            _ => vec!["LLEN", &list],
        };
        match client.ask(&request) {
            Ok(reply) if reply.is_error("ERR") || reply.is_error("WRONGTYPE") => {
                return Some(format!("{} was answered with {reply}", request[0]));
            }
            Ok(_) => {}
            Err(_) => connection = None,
        }
    }
    None
}
