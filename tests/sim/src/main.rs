//! The simulator's command line: run many seeds, or one again.

use consensus::planted::{Bug, COMPILED_IN};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use storage::planted::Bug as LockBug;
use warlock_sim::run::{Plan, Report, first_catch, install_panic_hook, run_plan};
use warlock_sim::stats::Stats;
use warlock_sim::trace::Tail;

const USAGE: &str = "usage: warlock-sim [--seeds N] [--start S] [--threads T] [--seed X [--trace]]
                   [--locks] [--bug NAME] [--list-bugs] [--long COMMANDS]

  --seeds N      run N seeds (1000)
  --start S      from this one on (0)
  --threads T    on so many threads (all processors)
  --seed X       run this seed alone, and print its last events when it fails
  --trace        with --seed: print every event
  --keep-going   do not stop at the first failing seed; list them all
  --locks        clients take locks of the machine that ships instead of writing registers
  --bug NAME     plant this bug (needs a build with the feature planted-bugs)
  --list-bugs    print the names of the bugs
  --all-bugs     plant each bug in turn, and say how many seeds (of 2000) it takes to notice it
  --long N       drive three nodes through N commands and watch that their memory stays flat";

/// Events that are printed when a seed fails.
const TAIL: usize = 60;

struct Options {
    seeds: u64,
    start: u64,
    threads: usize,
    seed: Option<u64>,
    trace: bool,
    keep_going: bool,
    plan: Plan,
    long: Option<u64>,
}

fn main() -> ExitCode {
    install_panic_hook();
    let options = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("{complaint}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(commands) = options.long {
        return match warlock_sim::long::run(commands) {
            Ok(()) => ExitCode::SUCCESS,
            Err(complaint) => {
                eprintln!("{complaint}");
                ExitCode::FAILURE
            }
        };
    }
    match options.seed {
        Some(seed) => run_one(seed, &options),
        None => run_many(&options),
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    let mut options = Options {
        seeds: 1_000,
        start: 0,
        threads,
        seed: None,
        trace: false,
        keep_going: false,
        plan: Plan::default(),
        long: None,
    };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            value
                .replace('_', "")
                .parse::<u64>()
                .map_err(|_| format!("{argument}: '{value}' is not a number"))
        };
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--start" => options.start = number()?,
            "--threads" => options.threads = usize::try_from(number()?).unwrap_or(1).max(1),
            "--seed" => options.seed = Some(number()?),
            "--long" => options.long = Some(number()?),
            "--trace" => options.trace = true,
            "--locks" => options.plan.has_locks = true,
            "--keep-going" => options.keep_going = true,
            "--bug" => {
                let name = arguments.next().ok_or("--bug needs a name")?;
                options.plan = plan_of(&name).ok_or_else(|| format!("there is no bug '{name}'"))?;
                if !COMPILED_IN {
                    return Err(
                        "this build contains no planted bugs: build with --features planted-bugs".into()
                    );
                }
            }
            "--all-bugs" => {
                for (name, _) in bugs().filter(|_| COMPILED_IN) {
                    let begin = Instant::now();
                    let (seeds, law) = first_catch(plan_of(&name).unwrap_or_default(), 2_000)
                        .map_or((0, "not noticed".to_string()), |(seeds, violation)| (seeds, violation));
                    let law: String = law.lines().next().unwrap_or_default().chars().take(110).collect();
                    println!("{name:<28} {seeds:>5}  {:>5.1} s  {law}", begin.elapsed().as_secs_f64());
                }
                return Ok(None);
            }
            "--list-bugs" => {
                for (name, what) in bugs() {
                    println!("{name:<28} {what}");
                }
                return Ok(None);
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(None);
            }
            other => return Err(format!("unknown argument '{other}'")),
        }
    }
    Ok(Some(options))
}

/// Every bug that can be planted, and what it breaks.
fn bugs() -> impl Iterator<Item = (String, &'static str)> {
    let engine = Bug::ALL.iter().map(|bug| (format!("{bug:?}"), bug.describe()));
    engine.chain(LockBug::ALL.iter().map(|bug| (format!("{bug:?}"), bug.describe())))
}

/// A run with the bug of this name.
fn plan_of(name: &str) -> Option<Plan> {
    let bug = Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name);
    let lock_bug = LockBug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name);
    (bug.is_some() || lock_bug.is_some()).then_some(Plan { has_locks: lock_bug.is_some(), bug, lock_bug })
}

fn run_one(seed: u64, options: &Options) -> ExitCode {
    let limit = if options.trace { usize::MAX } else { TAIL };
    let tail = Tail::new(limit);
    let report = run_plan(seed, options.plan, Some(tail.clone()));
    if options.trace || report.violation.is_some() {
        let mut out = std::io::stdout().lock();
        for line in tail.lines() {
            if writeln!(out, "{line}").is_err() {
                break;
            }
        }
    }
    println!("seed {seed}: trace hash {:016x}\n{}", report.hash, report.stats);
    match report.violation {
        Some(violation) => {
            println!("seed {seed} FAILED: {violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn run_many(options: &Options) -> ExitCode {
    let begin = Instant::now();
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new((Stats::default(), Vec::<Report>::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= options.seeds || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let report = run_plan(options.start + index, options.plan, None);
                    done.fetch_add(1, Ordering::Relaxed);
                    if let Ok(mut total) = total.lock() {
                        total.0.add(&report.stats);
                        if report.violation.is_some() {
                            stop.store(!options.keep_going, Ordering::Relaxed);
                            total.1.push(report);
                        }
                    }
                }
            });
        }
        if std::io::stderr().is_terminal() {
            scope.spawn(|| show_progress(&next, &done, &stop, options.seeds, begin));
        }
    });
    let (stats, mut failures) = total.into_inner().unwrap_or_default();
    failures.sort_by_key(|report| report.seed);
    println!("{stats}");
    println!("{} seeds in {:.1} s", done.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
    if options.keep_going && failures.len() > 1 {
        for report in &failures {
            let violation = report.violation.as_deref().unwrap_or_default();
            println!("seed {}: {}", report.seed, violation.lines().next().unwrap_or_default());
        }
    }
    let Some(report) = failures.first() else { return ExitCode::SUCCESS };
    let seed = report.seed;
    let tail = Tail::new(TAIL);
    let again = run_plan(seed, options.plan, Some(tail.clone()));
    println!("\nthe last events of seed {seed}:");
    for line in tail.lines() {
        println!("{line}");
    }
    let violation = again.violation.or_else(|| report.violation.clone()).unwrap_or_default();
    println!(
        "\nseed {seed} FAILED: {violation}\n\nto see it again: make simulate SEED={seed}{}",
        if options.plan.has_locks { " LOCKS=1" } else { "" }
    );
    println!("failed seeds: {} of {}", failures.len(), done.load(Ordering::Relaxed));
    ExitCode::FAILURE
}

fn show_progress(next: &AtomicU64, done: &AtomicU64, stop: &AtomicBool, seeds: u64, begin: Instant) {
    loop {
        let finished = done.load(Ordering::Relaxed);
        let filled = usize::try_from(finished * 40 / seeds.max(1)).unwrap_or(40).min(40);
        let rate = finished as f64 / begin.elapsed().as_secs_f64().max(0.001);
        eprint!(
            "\r[{}{}] {finished}/{seeds} seeds, {rate:.0}/s ",
            "#".repeat(filled),
            ".".repeat(40 - filled)
        );
        let _ = std::io::stderr().flush();
        if finished >= seeds || (stop.load(Ordering::Relaxed) && next.load(Ordering::Relaxed) > 0) {
            eprintln!();
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
