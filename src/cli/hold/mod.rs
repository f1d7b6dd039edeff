//! Running a command while a lock is held: what `warlock lock` and `warlock elect` share.
//!
//! The rule: the command is stopped before the lock can be somebody else's. A hold is counted from *before* the request that gave or renewed it
//! was sent, by this process's clock, and shortened by what the clocks may differ ([`safe_share`]). Threads ask the cluster: one stands in the line ([`acquire`]),
//! one renews and one listens for the loss ([`keep`]); the first thread watches the command, the signals and the time ([`run`]), and asks the network nothing.
//!
//! What it cannot do: while this process itself stands still (SIGSTOP, a frozen virtual machine), nobody stops the command. That is what the
//! fencing token in `WARLOCK_TOKEN` is for; and for a lock that is taken away, which is somebody else's before anybody can be stopped. If this process is
//! killed, the kernel kills the command, but not what the command started.

mod acquire;
mod keep;
mod outage;
mod run;
mod signals;

pub use acquire::acquire;
pub use outage::Outage;
pub use run::{Ended, run};
pub use signals::Signals;

use super::access::AccessFlags;
use crate::cli::say::note;
use rustix::process::Signal;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warlock::client::{Access, Client, Value};
use warlock::settings;

/// The lock is or may be lost; the command was stopped.
pub const LOST: u8 = 123;
/// Somebody else has the lock, and the time to wait is over.
pub const BUSY: u8 = 124;
/// The cluster cannot be reached, or refuses.
pub const FAILED: u8 = 125;
/// The command cannot be run; 127 when it is not there. As shells say it.
pub const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How long to wait before the cluster is asked again, when it could not answer.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The lock.
    pub name: String,
    /// Who asks: the same name gets the same hold, so a request can be repeated.
    pub owner: String,
    /// For how long a hold lasts without being renewed.
    pub ttl: Duration,
    /// Shared with others.
    pub is_shared: bool,
    /// How long to wait for it; nothing: for ever.
    pub wait: Option<Duration>,
    /// What others see in LOCK.INFO.
    pub data: String,
}

/// A hold.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The fencing token.
    pub token: i64,
    /// Until then it is certainly ours.
    pub until: Instant,
}

/// Why there is no hold.
#[derive(Debug)]
pub enum NotHeld {
    /// Somebody else has it.
    Busy,
    /// The cluster said no, or nothing.
    Failed(String),
    /// We were asked to end.
    Signalled(Signal),
}

/// A shorter hold could not be renewed in time.
const TTL_MIN: Duration = Duration::from_millis(100);

/// The time of a hold, on the command line.
pub fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = settings::time(text)?;
    if ttl < TTL_MIN { Err(format!("it must be at least {TTL_MIN:?}")) } else { Ok(ttl) }
}

/// Runs all this on a runtime, with the signals heard before anything is asked for.
pub fn with_signals(run: impl AsyncFnOnce(&mut Signals) -> u8) -> ExitCode {
    let done = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            let mut signals = Signals::listen()?;
            Ok(run(&mut signals).await)
        })
    });
    ExitCode::from(done.unwrap_or_else(|error| {
        note!("warlock: cannot listen for signals: {error}");
        CANNOT_RUN
    }))
}

/// As shells say that a signal ended something.
#[must_use]
pub fn signal_code(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

/// A name that no other process has.
#[must_use]
pub fn owner() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}:{:08x}", host.trim(), std::process::id(), rand::random::<u32>())
}

/// Cluster time may run ahead by so much, once, when a master dies.
const AHEAD_AT_FAIL_OVER: Duration = Duration::from_millis(10);

/// The part of a hold's time that is certainly ours, counted by our clock, TTL·(1 − σ − 2ρ): ours may be slow by ρ while the master's is fast by ρ and
/// pulled toward its wall clock by σ.
fn safe_share(ttl: Duration) -> Duration {
    let config = consensus::Config::default();
    let unsafe_ppm = u32::try_from(config.pull_ppm + 2 * config.drift_ppm).unwrap_or(u32::MAX);
    ttl.saturating_sub(ttl.saturating_mul(unsafe_ppm) / 1_000_000).saturating_sub(AHEAD_AT_FAIL_OVER)
}

fn ms(time: Duration) -> String {
    time.as_millis().max(1).to_string()
}

/// A client that does not wait longer for one node than a hold can afford.
fn client(access: &AccessFlags, ttl: Duration) -> Client {
    let access = access.access();
    let patience = access.patience.min(ttl / 6).max(Duration::from_millis(50));
    Client::new(Access { patience, ..access })
}

/// Errors that another try may not meet.
pub fn is_passing(text: &str) -> bool {
    ["TRYAGAIN", "CLUSTERDOWN", "UNCERTAIN", "LOADING", "UNBLOCKED"].iter().any(|word| text.starts_with(word))
}

enum Renewal {
    Until(Instant),
    Lost(String),
    Unknown,
}

fn renew(client: &mut Client, wanted: &Wanted, token: i64) -> Renewal {
    let before = Instant::now();
    match client.ask(&["LOCK.RENEW", &wanted.name, &token.to_string(), &ms(wanted.ttl)]) {
        Ok(Value::Integer(_)) => Renewal::Until(before + safe_share(wanted.ttl)),
        Ok(Value::Error(text)) if is_passing(&text) => {
            // This node may be cut off.
            client.disconnect();
            Renewal::Unknown
        }
        Ok(Value::Error(text)) => Renewal::Lost(text),
        Ok(_) | Err(_) => Renewal::Unknown,
    }
}

/// Gives the lock back. What cannot be given back runs out.
fn release(client: &mut Client, wanted: &Wanted, token: i64, until: Instant) {
    while Instant::now() < until {
        match client.ask(&["LOCK.RELEASE", &wanted.name, &token.to_string()]) {
            // A request that was repeated was counted twice.
            Ok(Value::Integer(left)) if left > 0 => {}
            Ok(Value::Error(text)) if is_passing(&text) => std::thread::sleep(ASK_AGAIN),
            Ok(_) => return,
            Err(_) => std::thread::sleep(ASK_AGAIN),
        }
    }
}
