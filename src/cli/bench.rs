//! `warlock bench`: a quick closed-loop load, to see whether a cluster is about as fast as it should be. (`make bench` compares with other systems.)

use super::access::{AccessFlags, complain};
use super::say::say;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warlock::client::{Access, Client, ClientError, Value, encode};

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    access: AccessFlags,
    /// Connections, spread over the nodes.
    #[arg(long, short, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Commands that a connection sends at once.
    #[arg(long, short = 'P', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pipeline: u16,
    /// Commands in all.
    #[arg(long, short, default_value_t = 50_000)]
    requests: u64,
    /// Bytes of a value.
    #[arg(long, short = 'd', default_value_t = 16)]
    value_size: usize,
    /// Different keys.
    #[arg(long, short, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// What the commands are.
    #[arg(long, short, value_enum, default_value_t = Workload::Set)]
    workload: Workload,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    /// SET.
    Set,
    /// GET.
    Get,
    /// Four GETs to one SET.
    Mixed,
    /// LOCK.ACQUIRE, then LOCK.RELEASE, each on a key of its connection.
    Lock,
}

/// What one connection saw.
struct Seen {
    latency: Histogram<u64>,
    errors: u64,
    first_error: Option<String>,
}

/// Runs the load and prints what it saw.
pub fn run(flags: &Flags) -> ExitCode {
    let access = flags.access.access();
    // The first answer comes before the clock starts: a cluster that cannot be reached is an error, not a slow one.
    if let Err(error) = Client::new(access.clone()).ask(&["PING"]) {
        return complain(&error);
    }
    let bar = ProgressBar::new(flags.requests);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3}% {pos} of {len} ({per_sec})") {
        bar.set_style(style);
    }
    let (done, begin) = (AtomicU64::new(0), Instant::now());
    let outcomes: Vec<Result<Seen, ClientError>> = std::thread::scope(|scope| {
        let connections: Vec<_> = (0..flags.clients)
            .map(|index| {
                let (access, done, bar) = (spread(&access, index), &done, &bar);
                scope.spawn(move || connection(flags, u64::from(index), access, done, bar))
            })
            .collect();
        let joined = connections.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    let elapsed = begin.elapsed();
    bar.finish_and_clear();
    report(flags, outcomes, elapsed)
}

/// Each connection begins at another node.
fn spread(access: &Access, index: u16) -> Access {
    let mut access = access.clone();
    let nodes = access.nodes.len().max(1);
    access.nodes.rotate_left(usize::from(index) % nodes);
    access
}

fn connection(
    flags: &Flags,
    index: u64,
    access: Access,
    done: &AtomicU64,
    bar: &ProgressBar,
) -> Result<Seen, ClientError> {
    let mut client = Client::new(access);
    let mut seen = Seen {
        latency: Histogram::new_with_bounds(1, 600_000_000, 3)
            .unwrap_or_else(|_| unreachable!("the bounds are constants")),
        errors: 0,
        first_error: None,
    };
    let value = "x".repeat(flags.value_size);
    let mut state = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut token = 0;
    let step = u64::from(flags.pipeline);
    loop {
        let from = done.fetch_add(step, Ordering::Relaxed);
        if from >= flags.requests {
            return Ok(seen);
        }
        let count = step.min(flags.requests - from);
        let mut bytes = Vec::new();
        for turn in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(command(flags.workload, state % flags.keys, &value, index, token, from + turn));
        }
        let sent = Instant::now();
        let replies = client.exchange(&bytes, usize::try_from(count).unwrap_or(usize::MAX))?;
        let took = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
        seen.latency.saturating_record_n(took.max(1), count);
        for reply in &replies {
            if let Value::Error(text) = reply {
                seen.errors += 1;
                seen.first_error.get_or_insert_with(|| text.clone());
            }
        }
        token = replies.last().map_or(0, granted);
        bar.inc(count);
    }
}

/// The token of a granted lock; 0 when it was a release.
fn granted(reply: &Value) -> i64 {
    reply.field("token").or_else(|| reply.elements().first()).and_then(Value::integer).unwrap_or(0)
}

fn command(workload: Workload, key: u64, value: &str, connection: u64, token: i64, turn: u64) -> Vec<u8> {
    let key = format!("bench:{key}");
    match workload {
        Workload::Set => encode(&["SET", &key, value]),
        Workload::Get => encode(&["GET", &key]),
        Workload::Mixed if turn.is_multiple_of(5) => encode(&["SET", &key, value]),
        Workload::Mixed => encode(&["GET", &key]),
        Workload::Lock => {
            let (lock, owner) = (format!("bench:lock:{connection}"), format!("bench-{connection}"));
            match token {
                0 => encode(&["LOCK.ACQUIRE", &lock, &owner, "30000"]),
                token => encode(&["LOCK.RELEASE", &lock, &token.to_string()]),
            }
        }
    }
}

fn report(flags: &Flags, outcomes: Vec<Result<Seen, ClientError>>, elapsed: Duration) -> ExitCode {
    let mut all: Option<Histogram<u64>> = None;
    let (mut errors, mut first_error, mut lost) = (0, None, None);
    for outcome in outcomes {
        match outcome {
            Ok(seen) => {
                errors += seen.errors;
                first_error = first_error.or(seen.first_error);
                match &mut all {
                    Some(sum) => drop(sum.add(&seen.latency)),
                    None => all = Some(seen.latency),
                }
            }
            Err(error) => lost = Some(error),
        }
    }
    let Some(latency) = all.filter(|latency| !latency.is_empty()) else {
        return lost.as_ref().map_or(ExitCode::FAILURE, complain);
    };
    let per_second = latency.len() as f64 / elapsed.as_secs_f64();
    say!(
        "{}: {per_second:.0} commands/s ({} in {:.1} s, over {} connections, {} at once on each)",
        flags.workload.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default(),
        latency.len(),
        elapsed.as_secs_f64(),
        flags.clients,
        flags.pipeline,
    );
    let ms = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1_000.0;
    say!(
        "  milliseconds: p50 {:.2}  p90 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2}",
        ms(0.5),
        ms(0.9),
        ms(0.99),
        ms(0.999),
        latency.max() as f64 / 1_000.0
    );
    if let Some(text) = first_error {
        say!("  {errors} were answered with an error, the first: {text}");
    }
    lost.as_ref().map_or(ExitCode::SUCCESS, complain)
}
