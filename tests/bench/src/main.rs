//! `warlock-bench-peers`: how fast Warlock is, beside Redis, etcd and ZooKeeper, in one run on one machine.
//!
//! Parts: `wire` the protocols · `load` the one client · `systems` the servers · `processes` what they use · `floor` the machine's limits ·
//! `compare` the interleaved rounds · `growth` Warlock alone while one thing grows · `overload` far too much of it · `goals` the numbers to reach · `report` tables. What one machine says is compared with nothing that another said.

mod compare;
mod floor;
mod goals;
mod growth;
mod load;
mod overload;
mod processes;
mod progress;
mod report;
mod systems;
mod wire;

use clap::{Parser, Subcommand};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use systems::Which;

/// How fast Warlock is, beside Redis, etcd and ZooKeeper, in one run on one machine.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    /// The warlock binary to measure.
    #[arg(long, default_value = "target/release/warlock", global = true)]
    binary: PathBuf,
    /// Where fresh data directories are made; must be on the disk that is to be measured.
    #[arg(long, default_value = "target", global = true)]
    dir: PathBuf,
    /// Also write everything to this file as JSON.
    #[arg(long, global = true)]
    json: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every system, every workload, in interleaved rounds.
    Compare {
        /// Only what the goals speak about, in under three minutes.
        #[arg(long)]
        quick: bool,
        /// How often each is measured [default: 5, with --quick 3].
        #[arg(long)]
        rounds: Option<usize>,
        /// How long each time, in milliseconds [default: 1000, with --quick 700].
        #[arg(long)]
        window_ms: Option<u64>,
        /// Only these systems, separated by commas: warlock, redis-memory, redis-always, etcd, zookeeper.
        #[arg(long, value_delimiter = ',')]
        systems: Vec<String>,
        /// Only these cells, separated by commas: "set 50x1,get 50x16".
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Warlock alone, while one thing grows: nodes, connections, values, keys, reads.
    Growth {
        /// Without ten million keys.
        #[arg(long)]
        quick: bool,
        /// How often each point is measured.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// How long each time, in milliseconds.
        #[arg(long, default_value_t = 1_000)]
        window_ms: u64,
        /// Only these sections, separated by commas.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Warlock alone, under far more load than it can take: no election, no lost answer, and afterwards all is well.
    Overload {
        /// How many connections.
        #[arg(long, default_value_t = 4_096)]
        connections: usize,
        /// How many requests each sends at once.
        #[arg(long, default_value_t = 64)]
        pipeline: usize,
        /// For how long.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nbench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    // A signal ends the run between two reads of the client; what was started is stopped on the way out.
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, signalled.clone())?;
        signal_hook::flag::register(signal, signalled.clone())?;
    }
    let stopped = || signalled.load(Ordering::Relaxed);
    std::fs::create_dir_all(&arguments.dir)?;
    let directory =
        tempfile::Builder::new().prefix("bench-").tempdir_in(std::path::absolute(&arguments.dir)?)?;
    let binary = std::path::absolute(&arguments.binary)?;
    match arguments.command {
        Command::Compare { quick, rounds, window_ms, systems, only } => {
            let systems = choose(&systems)?;
            let cells = compare::cells(quick, &only)?;
            let effort = compare::Effort {
                rounds: rounds.unwrap_or(if quick { 3 } else { 5 }),
                window: Duration::from_millis(window_ms.unwrap_or(if quick { 700 } else { 1_000 })),
            };
            let results = compare::run(directory.path(), &binary, (&systems, &cells), effort, &stopped)?;
            let goals = goals::judge(&results);
            print!("{}", report::text(&results, &goals));
            #[derive(Serialize)]
            struct Whole<'a> {
                results: &'a compare::Results,
                goals: &'a [goals::Verdict],
            }
            write_json(arguments.json.as_deref(), &Whole { results: &results, goals: &goals })?;
        }
        Command::Growth { quick, rounds, window_ms, only } => {
            allow_many_connections();
            let effort = growth::Effort { is_quick: quick, rounds, window: Duration::from_millis(window_ms) };
            let points = growth::run(directory.path(), &binary, &only, effort, &stopped)?;
            print!("{}", growth::text(&points));
            write_json(arguments.json.as_deref(), &points)?;
        }
        Command::Overload { connections, pipeline, seconds } => {
            allow_many_connections();
            let crowd = overload::Crowd { connections, pipeline, window: Duration::from_secs(seconds) };
            let phases = overload::run(directory.path(), &binary, crowd, &stopped)?;
            print!("{}", overload::text(crowd, &phases));
            write_json(arguments.json.as_deref(), &phases)?;
        }
    }
    Ok(())
}

/// Thousands of connections need as many file descriptors, here and in the servers, which inherit the limit.
fn allow_many_connections() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
}

/// The systems by name; all of them if none is named. One that cannot be had is left out, aloud.
fn choose(names: &[String]) -> Result<Vec<Which>, String> {
    if let Some(unknown) = names.iter().find(|name| Which::ALL.iter().all(|which| which.name() != *name)) {
        let known = Which::ALL.map(Which::name).join(", ");
        return Err(format!("there is no system {unknown}; there are {known}"));
    }
    let is_wanted = |which: &Which| names.is_empty() || names.iter().any(|name| name == which.name());
    let is_there = |which: &Which| match which.ensure() {
        Ok(()) => true,
        Err(missing) => {
            eprintln!("left out: {missing}");
            false
        }
    };
    Ok(Which::ALL.into_iter().filter(is_wanted).filter(is_there).collect())
}

fn write_json(path: Option<&Path>, value: &impl Serialize) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = path {
        std::fs::write(path, serde_json::to_string_pretty(value)? + "\n")?;
        eprintln!("written: {}", path.display());
    }
    Ok(())
}
