//! A long run of mixed load on a cluster of three.
//!
//! Under random faults ([`faults`]): each minute prints speed, latency and memory; every minute's history must be linearizable, and at the end all nodes
//! must agree and no counter may have lost or repeated an increment. `soak [--minutes 10] [--seed n] [--binary path]`
//!
//! Without ([`calm`]): a steady rate, whatever the cluster does; each minute prints latency, memory and files, and memory must not grow.
//! `soak --no-faults [--minutes 10] [--rate 2000] [--clients 2] [--json file] [--seed n] [--binary path]`

mod calm;
mod faults;
mod mixed;
mod paced;
mod vitals;

use std::process::ExitCode;
use warlock_harness::report::option;

fn main() -> ExitCode {
    let (minutes, seed) = (option("--minutes", 10), option("--seed", u64::from(std::process::id())));
    let is_calm = std::env::args().any(|word| word == "--no-faults");
    let failures = if is_calm { calm::run(minutes, seed) } else { faults::run(minutes, seed) };
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
