//! Shows that `--store disk` serves data several times larger than the memory it is given, and what that costs beside `--store memory`.
//!
//! One node of each is filled, read at random, killed with kill -9, started again, and every thousandth key is compared with what was acknowledged. The node on disk runs in a
//! memory cgroup if the system lets us make one (its limit counts cached pages of files, too); else its resident memory is only measured.
//!
//! `disk_demo [--megabytes 2048] [--limit 256] [--value 1000] [--seconds 20] [--store memory|disk|both] [--binary path]`

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use warlock_harness::report::{measured_binary, option, progress, quantile};
use warlock_harness::{Client, Cluster, Options, Reply, wait_for};

const CONNECTIONS: u64 = 8;
const PIPELINE: u64 = 32;

/// The n-th value: different for every key, and not to be compressed to nothing.
fn value(n: u64, bytes: usize) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// A limit on the memory of processes, counted by the kernel.
struct Cage {
    directory: PathBuf,
    peak: &'static str,
}

impl Cage {
    fn new(limit_bytes: u64) -> Option<Cage> {
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ];
        kinds.into_iter().find_map(|(root, limit, peak)| {
            let directory = PathBuf::from(root).join(format!("warlock-disk-demo-{}", std::process::id()));
            fs::create_dir(&directory).ok()?;
            let cage = Cage { directory, peak };
            fs::write(cage.directory.join(limit), limit_bytes.to_string()).ok()?;
            Some(cage)
        })
    }

    fn take_in(&self, pid: u32) {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string()).unwrap_or_else(|error| {
            panic!("the node cannot be put into {}: {error}", self.directory.display())
        });
    }

    fn peak_megabytes(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join(self.peak)).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0) >> 20
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// A line of /proc/PID/status, in MB.
fn status_megabytes(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("0");
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// CPU that a process used so far.
fn cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    // utime and stime are the 14th and 15th field, the 12th and 13th behind the name; in hundredths of a second.
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Runs `work(connection)` on all connections at once; how long it took.
fn on_all(address: &str, work: impl Fn(&mut Client, u64) + Send + Sync + 'static) -> Duration {
    let (start, work) = (Instant::now(), Arc::new(work));
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (work, address) = (work.clone(), address.to_string());
            thread::spawn(move || work(&mut Client::connect(&address), number))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap_or_else(|_| panic!("a client failed"));
    }
    start.elapsed()
}

fn pipeline(client: &mut Client, requests: &[Vec<Vec<u8>>]) -> Vec<Reply> {
    client.pipeline(requests).unwrap_or_else(|error| panic!("the node does not answer: {error}"))
}

fn fill(address: &str, keys: u64, bytes: usize) -> Duration {
    let done = Arc::new(AtomicU64::new(0));
    on_all(address, move |client, number| {
        let mine: Vec<u64> = (number..keys).step_by(CONNECTIONS as usize).collect();
        for part in mine.chunks(PIPELINE as usize) {
            let requests: Vec<_> =
                part.iter().map(|n| vec![b"SET".to_vec(), key(*n), value(*n, bytes)]).collect();
            let replies = pipeline(client, &requests);
            if let Some(wrong) = replies.iter().find(|reply| !reply.is_ok()) {
                panic!("a key was not written: {wrong}");
            }
            let count = done.fetch_add(part.len() as u64, Relaxed) + part.len() as u64;
            if number == 0 {
                progress("fill", count as usize, keys as usize, "");
            }
        }
    })
}

/// Reads random keys for a while: how many, and the latencies of the slowest connection's batches.
fn read(address: &str, keys: u64, bytes: usize, time: Duration) -> (u64, Vec<u32>) {
    let found = Arc::new((AtomicU64::new(0), std::sync::Mutex::new(Vec::new())));
    let mine = found.clone();
    on_all(address, move |client, number| {
        let (start, mut state, mut latencies) = (Instant::now(), number * 7_919 + 1, Vec::new());
        while start.elapsed() < time {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = (state >> 20) % keys;
            let asked = Instant::now();
            let reply = pipeline(client, &[vec![b"GET".to_vec(), key(n)]]).pop();
            latencies.push(asked.elapsed().as_micros() as u32);
            let is_right = matches!(&reply, Some(Reply::Bulk(found)) if found[..] == value(n, bytes));
            assert!(is_right, "key {n} is wrong: {:.100}", format!("{reply:?}"));
        }
        mine.0.fetch_add(latencies.len() as u64, Relaxed);
        mine.1.lock().unwrap_or_else(|_| panic!("a client failed")).append(&mut latencies);
    });
    let mut latencies = std::mem::take(&mut *found.1.lock().unwrap_or_else(|_| panic!("a client failed")));
    latencies.sort_unstable();
    (found.0.load(Relaxed), latencies)
}

fn measure(store: &str) {
    let bytes: usize = option("--value", 1_000);
    let keys = (option("--megabytes", 2_048_u64) << 20) / bytes as u64;
    let time = Duration::from_secs(option("--seconds", 20));
    let limit: u64 = option("--limit", 256);
    let mut options = Options::new(measured_binary(), 1);
    options.flags = ["--store", store, "--store-cache", "32mb"].map(String::from).to_vec();
    let mut cluster = Cluster::with(options);
    let cage = if store == "disk" { Cage::new(limit << 20) } else { None };
    let pid = |cluster: &Cluster| {
        let pid = cluster.pid(1).unwrap_or_else(|| panic!("the node does not run"));
        if let Some(cage) = &cage {
            cage.take_in(pid);
        }
        pid
    };
    let address = cluster.address(1);
    let node = pid(&cluster);
    println!("--store {store}: {keys} keys with {bytes} bytes each, one node");
    match &cage {
        Some(_) => println!("  memory: at most {limit} MB, cached pages included (cgroup)"),
        None => println!("  memory: not limited"),
    }
    let before = cpu(node);
    let took = fill(&address, keys, bytes);
    let used = cpu(node) - before;
    let per = |used: Duration, count: u64| used.as_secs_f64() * 1e6 / count.max(1) as f64;
    println!(
        "  SET: {:.0}/s, {:.1} us of CPU each; resident {} MB now, {} MB at most",
        keys as f64 / took.as_secs_f64(),
        per(used, keys),
        status_megabytes(node, "VmRSS"),
        status_megabytes(node, "VmHWM")
    );
    let before = cpu(node);
    let (count, latencies) = read(&address, keys, bytes, time);
    println!(
        "  GET: {:.0}/s, {:.1} us of CPU each; p50 {} us, p99 {} us, p99.9 {} us; resident {} MB now, {} MB at most",
        count as f64 / time.as_secs_f64(),
        per(cpu(node) - before, count),
        quantile(&latencies, 0.5),
        quantile(&latencies, 0.99),
        quantile(&latencies, 0.999),
        status_megabytes(node, "VmRSS"),
        status_megabytes(node, "VmHWM")
    );
    cluster.kill(1);
    let start = Instant::now();
    cluster.run(1);
    let node = pid(&cluster);
    wait_for("the node to answer again", || {
        let reply = Client::try_connect(&address).ok()?.ask(&[b"GET".to_vec(), key(0)]).ok()?;
        matches!(reply, Reply::Bulk(_)).then_some(())
    });
    let up = start.elapsed();
    let mut client = Client::connect(&address);
    let sample: Vec<u64> = (0..keys).step_by(1_000).chain([keys - 1]).collect();
    for part in sample.chunks(PIPELINE as usize) {
        let requests: Vec<_> = part.iter().map(|n| vec![b"GET".to_vec(), key(*n)]).collect();
        for (n, reply) in part.iter().zip(pipeline(&mut client, &requests)) {
            let is_right = matches!(&reply, Reply::Bulk(found) if found[..] == value(*n, bytes));
            assert!(is_right, "key {n} is not what was acknowledged before kill -9");
        }
    }
    let count = client.must(&["DBSIZE"]).integer();
    assert_eq!(count, i64::try_from(keys).ok(), "keys were lost");
    println!(
        "  kill -9, start: answers after {:.1} s; {} sampled keys right, all {keys} counted; resident {} MB at most{}",
        up.as_secs_f64(),
        sample.len(),
        status_megabytes(node, "VmHWM"),
        cage.as_ref()
            .map_or(String::new(), |cage| format!("; the cgroup's peak {} MB", cage.peak_megabytes()))
    );
    cluster.kill(1);
}

fn main() {
    let store: String = option("--store", "both".to_string());
    for kind in ["disk", "memory"] {
        if store == kind || store == "both" {
            measure(kind);
        }
    }
}
