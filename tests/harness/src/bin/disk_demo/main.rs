//! Shows that `--store disk` serves data several times larger than the memory it is given, and what that costs beside `--store memory`.
//!
//! One node of each is filled and read at random; then its keys are written once more, it is killed with kill -9 in the middle of that, and started again, and *every* key is
//! compared with what was acknowledged. The node on disk may not use more memory than the limit at any time; what counts as memory is in `memory`. Anything that is wrong ends the demo with
//! an error; else a table is printed.
//!
//! `disk_demo [--megabytes 2048] [--limit 256] [--value 1000] [--seconds 20] [--store memory|disk|both] [--binary path]`

mod load;
mod memory;

use load::Load;
use memory::{Cage, Seen, Watch, cpu};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warlock_harness::report::{measured_binary, option, quantile};
use warlock_harness::{Client, Cluster, Options, Reply, wait_for};

/// Second writes that are acknowledged before the node is killed: more than fits into what waits in memory for the engine.
const SECOND_WRITES: u64 = 50_000;

/// The lines of the table, and what each store has in them.
const LINES: [&str; 13] = [
    "SET, a second",
    "SET, CPU each",
    "GET, a second",
    "GET, CPU each",
    "GET, p50",
    "GET, p99",
    "GET, p99.9",
    "resident at most",
    "of it anonymous",
    "limit, with cached pages of files",
    "on the disk",
    "start after kill -9 to the first answer",
    "keys right afterwards",
];

/// What the files of a directory take on the disk, in bytes.
fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0, // removed meanwhile
        })
        .sum()
}

fn measure(store: &str) -> [String; LINES.len()] {
    let bytes: usize = option("--value", 1_000);
    let keys = (option("--megabytes", 2_048_u64) << 20) / bytes as u64;
    let time = Duration::from_secs(option("--seconds", 20));
    let is_limited = store == "disk";
    let limit: u64 = option("--limit", 256);
    let load = Load { keys, bytes };

    let mut options = Options::new(measured_binary(), 1);
    options.flags = ["--store", store, "--store-cache", "32mb"].map(String::from).to_vec();
    // Removed after the node is gone: until then it is in use.
    let cage = if is_limited { Cage::new(limit << 20) } else { None };
    let mut cluster = Cluster::with(options);
    let seen = Arc::new(Seen::default());
    let watch = |cluster: &Cluster| {
        let pid = cluster.pid(1).unwrap_or_else(|| panic!("the node does not run"));
        if let Some(cage) = &cage {
            cage.take_in(pid);
        }
        (pid, Watch::start(pid, is_limited.then_some(limit), seen.clone()))
    };
    let note = || {
        let seen = seen.clone();
        move || seen.note()
    };
    let address = cluster.address(1);
    let limit_text = match (&cage, is_limited) {
        (Some(_), _) => format!("{limit} MB (cgroup)"),
        (None, true) => format!("not counted; resident: {limit} MB"),
        (None, false) => "none".to_string(),
    };
    println!("--store {store}: {keys} keys with {bytes} bytes each, one node; limit: {limit_text}");
    let (pid, watching) = watch(&cluster);
    let per =
        |used: Duration, count: u64| format!("{:.0} us", used.as_secs_f64() * 1e6 / count.max(1) as f64);

    let before = cpu(pid);
    let took = load.fill(&address, note());
    let set = format!("{:.0}", keys as f64 / took.as_secs_f64());
    let set_cpu = per(cpu(pid) - before, keys);

    let before = cpu(pid);
    let latencies = load.read(&address, time, note());
    let count = latencies.len() as u64;
    let get = format!("{:.0}", count as f64 / time.as_secs_f64());
    let get_cpu = per(cpu(pid) - before, count);
    let latency = |share| format!("{:.2} ms", f64::from(quantile(&latencies, share)) / 1e3);

    let told = load.write_again(&address, SECOND_WRITES.min(keys / 4), || cluster.kill(1));
    drop(watching);
    let disk = format!("{:.1} GB", disk_bytes(&cluster.path(1)) as f64 / 1e9);
    let start = Instant::now();
    cluster.run(1);
    let (_, _watching) = watch(&cluster);
    wait_for("the node to answer again", || {
        let reply = Client::try_connect(&address).ok()?.ask(&["DBSIZE"]).ok()?;
        matches!(reply, Reply::Integer(_)).then_some(())
    });
    let up = format!("{:.1} s", start.elapsed().as_secs_f64());
    let acknowledged = load.check(&address, &told, note());
    let count = Client::connect(&address).must(&["DBSIZE"]).integer();
    assert_eq!(count, i64::try_from(keys).ok(), "there are keys that nobody wrote, or too few");
    assert!(!is_limited || seen.peak() <= limit, "{} MB were resident, {limit} are allowed", seen.peak());
    println!(
        "  killed after {acknowledged} second writes were acknowledged; all {keys} keys are right after the restart"
    );
    [
        set,
        set_cpu,
        get,
        get_cpu,
        latency(0.5),
        latency(0.99),
        latency(0.999),
        format!("{} MB", seen.peak()),
        format!("{} MB", seen.anonymous_peak()),
        limit_text,
        disk,
        up,
        format!("all {keys}"),
    ]
}

fn main() {
    let wanted: String = option("--store", "both".to_string());
    let stores: Vec<&str> =
        ["disk", "memory"].into_iter().filter(|store| wanted == *store || wanted == "both").collect();
    let columns: Vec<_> = stores.iter().map(|store| measure(store)).collect();
    let heads: String = stores.iter().map(|store| format!(" `--store {store}` |")).collect();
    println!("\n| |{heads}\n| --- |{}", " --- |".repeat(stores.len()));
    for (index, line) in LINES.iter().enumerate() {
        let cells: String = columns.iter().map(|column| format!(" {} |", column[index])).collect();
        println!("| {line} |{cells}");
    }
}
