//! Searches small configurations exhaustively and prints how many states they have.
//!
//! `cargo run --release -p warlock-consensus --example model` searches all of them. `--only TEXT` takes those whose name contains the
//! text. With the feature `planted-bugs`, `--bug NAME` breaks a safety rule on purpose and fails unless the search notices; `--bug all`
//! tries every bug that a configuration covers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../tests/model/mod.rs"]
mod model;

use model::Model;
use model::search::Report;
use model::setups::{self, Setup};
use std::process::ExitCode;
use std::time::Instant;
use warlock_consensus::Config;
use warlock_consensus::planted::{Bug, COMPILED_IN};

/// No configuration may need more memory than this many states take.
const STATES_MAX: usize = 100_000_000;

fn main() -> ExitCode {
    let (mut only, mut bug) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only = arguments.next(),
            "--bug" => bug = arguments.next(),
            other => {
                eprintln!("unknown argument {other}; known: --only TEXT, --bug NAME");
                return ExitCode::from(2);
            }
        }
    }
    match bug {
        None => {
            let mut wanted = setups::all();
            wanted.retain(|setup| only.as_ref().is_none_or(|text| setup.name.contains(text.as_str())));
            search_all(wanted)
        }
        Some(_) if !COMPILED_IN => {
            eprintln!("planted bugs need --features planted-bugs");
            ExitCode::from(2)
        }
        Some(name) => {
            let mut covered = setups::covered();
            covered.retain(|(bug, _)| name == "all" || format!("{bug:?}") == name);
            if covered.is_empty() {
                eprintln!("no configuration covers a planted bug {name}");
                return ExitCode::from(2);
            }
            plant(covered)
        }
    }
}

fn search(setup: Setup, config: Config) -> Report {
    let start = Instant::now();
    let report = Model::new(setup, config).search(STATES_MAX, |states| {
        eprint!("\r  {} million states, {:.0} s ", states / 1_000_000, start.elapsed().as_secs_f64());
    });
    eprint!("\r");
    println!("{report:?}; {:.2} s", start.elapsed().as_secs_f64());
    report
}

fn tell(report: &Report) {
    if let Some((broken, trace)) = &report.violation {
        println!("  broken after {} steps: {broken}", trace.len());
        for line in trace {
            println!("    {line}");
        }
    }
}

fn search_all(setups: Vec<Setup>) -> ExitCode {
    let (mut states, mut failed) = (0, false);
    for setup in setups {
        let report = search(setup, Config::default());
        states += report.states;
        failed |= report.violation.is_some() || !report.complete;
        tell(&report);
    }
    println!("{states} states in all; {}", if failed { "BROKEN" } else { "every rule holds in all of them" });
    ExitCode::from(u8::from(failed))
}

fn plant(covered: Vec<(Bug, Setup)>) -> ExitCode {
    let (count, mut missed) = (covered.len(), Vec::new());
    for (bug, setup) in covered {
        println!("{bug:?}: {}", bug.describe());
        let report = search(setup, setups::with_bug(bug));
        tell(&report);
        if report.violation.is_none() {
            missed.push(bug);
        }
    }
    println!("{} of {count} planted bugs caught; missed: {missed:?}", count - missed.len());
    ExitCode::from(u8::from(!missed.is_empty()))
}
