//! Running a command while a lock is held: what `warlock lock` and `warlock elect` share.
//!
//! The rule: the command is stopped before the lock can be somebody else's. A hold is counted from *before* the request that gave or renewed it
//! was sent, by this process's clock, and shortened by what the clocks may differ ([`safe_share`]). One thread renews; this one watches the command, the
//! signals and the time, and asks the network nothing.
//!
//! What it cannot do: while this process itself stands still (SIGSTOP, a frozen virtual machine), nobody stops the command. That is what the
//! fencing token in `WARLOCK_TOKEN` is for. If this process is killed, the kernel kills the command.

use super::access::AccessFlags;
use rustix::process::{Pid, Signal};
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use warlock::client::{Access, Client, ClientError, Value};

/// The lock is or may be lost; the command was stopped.
pub const LOST: u8 = 123;
/// Somebody else has the lock, and the time to wait is over.
pub const BUSY: u8 = 124;
/// The cluster cannot be reached, or refuses.
pub const FAILED: u8 = 125;
/// The command cannot be run; 127 when it is not there. As shells say it.
pub const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A request that waits is repeated after so long: a node that fell silent is noticed then.
const WAIT_PIECE: Duration = Duration::from_secs(300);
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

/// Takes the lock; waits for it if that is wanted.
pub fn acquire(flags: &AccessFlags, wanted: &Wanted) -> Result<Held, NotHeld> {
    let give_up_at = wanted.wait.map(|wait| Instant::now() + wait);
    let left =
        || give_up_at.map_or(WAIT_PIECE, |at| at.saturating_duration_since(Instant::now()).min(WAIT_PIECE));
    loop {
        let wait = left();
        let access = flags.access();
        let mut client = Client::new(Access { patience: access.patience + wait, ..access });
        let (ttl, wait_ms) = (ms(wanted.ttl), wait.as_millis().to_string());
        let mut request =
            vec!["LOCK.ACQUIRE", &wanted.name, &wanted.owner, &ttl, "WAIT", &wait_ms, "DATA", &wanted.data];
        if wanted.is_shared {
            request.push("SHARED");
        }
        let trouble = match client.ask(&request) {
            Ok(Value::Nil) if left().is_zero() => return Err(NotHeld::Busy),
            Ok(Value::Nil) => continue,
            Ok(Value::Error(text)) if is_passing(&text) => text,
            Ok(Value::Error(text)) => return Err(NotHeld::Failed(text)),
            Ok(granted) => match granted.field("token").and_then(Value::integer) {
                // When it was granted is not known, only that it was: the time counts from a renewal.
                Some(token) => match first_renewal(flags, wanted, token) {
                    Some(held) => return Ok(held),
                    None => continue,
                },
                None => return Err(NotHeld::Failed(format!("unexpected answer {granted:?}"))),
            },
            Err(error @ (ClientError::NotRedis(..) | ClientError::Refused(..))) => {
                return Err(NotHeld::Failed(error.to_string()));
            }
            Err(error) => error.to_string(),
        };
        if left().is_zero() || wanted.wait.is_some_and(|wait| wait.is_zero()) {
            return Err(NotHeld::Failed(trouble));
        }
        std::thread::sleep(ASK_AGAIN.min(left()));
    }
}

/// Errors that another try may not meet.
pub fn is_passing(text: &str) -> bool {
    ["TRYAGAIN", "CLUSTERDOWN", "UNCERTAIN", "LOADING", "UNBLOCKED"].iter().any(|word| text.starts_with(word))
}

fn first_renewal(flags: &AccessFlags, wanted: &Wanted, token: i64) -> Option<Held> {
    let mut client = client(flags, wanted.ttl);
    let give_up_at = Instant::now() + wanted.ttl;
    while Instant::now() < give_up_at {
        match renew(&mut client, wanted, token) {
            Renewal::Until(until) => return Some(Held { token, until }),
            Renewal::Lost(_) => return None,
            Renewal::Unknown => std::thread::sleep(ASK_AGAIN.min(wanted.ttl / 10)),
        }
    }
    None
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

enum News {
    Renewed(Instant),
    Lost(String),
}

/// Renews until it is told to stop; then gives the lock back.
fn keep(flags: &AccessFlags, wanted: &Wanted, held: Held, news: &UnboundedSender<News>, stop: &Receiver<()>) {
    let mut client = client(flags, wanted.ttl);
    let mut until = held.until;
    let mut pause = wanted.ttl / 3;
    loop {
        match stop.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                return release(&mut client, wanted, held.token, until);
            }
        }
        pause = match renew(&mut client, wanted, held.token) {
            Renewal::Until(renewed) => {
                until = renewed;
                let _ = news.send(News::Renewed(renewed));
                wanted.ttl / 3
            }
            Renewal::Lost(why) => {
                let _ = news.send(News::Lost(why));
                return;
            }
            Renewal::Unknown => ASK_AGAIN.min(wanted.ttl / 20),
        };
    }
}

/// How the command ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself, or by a signal that we passed on.
    Itself(ExitStatus),
    /// We stopped it, because of this.
    Lost(String),
    /// It did not begin.
    NotRun(u8, String),
}

impl Ended {
    /// As shells say it.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Ended::Itself(status) => {
                let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                u8::try_from(code & 0xFF).unwrap_or(u8::MAX)
            }
            Ended::Lost(_) => LOST,
            Ended::NotRun(code, _) => *code,
        }
    }
}

/// Runs a command while the lock is held, and gives it back.
pub fn run(flags: &AccessFlags, wanted: &Wanted, held: Held, command: &[String]) -> Ended {
    let (send_news, news) = unbounded_channel();
    let (stop, stopped): (Sender<()>, Receiver<()>) = channel();
    let keeper = {
        let (flags, wanted) = (flags.clone(), wanted.clone());
        std::thread::spawn(move || keep(&flags, &wanted, held, &send_news, &stopped))
    };
    let ended = match start(command, held.token) {
        Ok(child) => watch(child, wanted, held.until, news),
        Err(error) => {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            Ended::NotRun(code, format!("cannot run {}: {error}", command.first().map_or("", String::as_str)))
        }
    };
    drop(stop);
    // It cannot have panicked: it does nothing that could.
    let _ = keeper.join();
    ended
}

struct Running {
    child: Child,
    /// Whether the child leads a group of its own, so that its children can be signalled, too.
    has_group: bool,
}

impl Running {
    fn signal(&self, signal: Signal) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        // A process that is gone already needs no signal.
        let _ = if self.has_group {
            rustix::process::kill_process_group(pid, signal)
        } else {
            rustix::process::kill_process(pid, signal)
        };
    }
}

fn start(command: &[String], token: i64) -> io::Result<Running> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(arguments).env("WARLOCK_TOKEN", token.to_string());
    // A group of its own could not read from the terminal.
    let has_group = !io::stdin().is_terminal();
    if has_group {
        command.process_group(0);
    }
    let parent = rustix::process::getpid();
    // SAFETY: the closure runs between fork and exec; it makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
    Ok(Running { child: command.spawn()?, has_group })
}

/// When to ask the command to end, and when to end it, so that it is over before `until`.
fn stop_times(until: Instant, ttl: Duration) -> (Instant, Instant) {
    let (term, kill) = (ttl / 4, (ttl / 20).min(Duration::from_millis(500)));
    (until.checked_sub(term).unwrap_or(until), until.checked_sub(kill).unwrap_or(until))
}

fn watch(mut running: Running, wanted: &Wanted, until: Instant, mut news: UnboundedReceiver<News>) -> Ended {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            running.signal(Signal::KILL);
            let _ = running.child.wait();
            return Ended::NotRun(CANNOT_RUN, format!("cannot watch the command: {error}"));
        }
    };
    let outcome = runtime.block_on(watching(&mut running, wanted, until, &mut news));
    outcome.unwrap_or_else(|error| {
        running.signal(Signal::KILL);
        let _ = running.child.wait();
        Ended::NotRun(CANNOT_RUN, format!("cannot watch the command: {error}"))
    })
}

async fn watching(
    running: &mut Running,
    wanted: &Wanted,
    until: Instant,
    news: &mut UnboundedReceiver<News>,
) -> io::Result<Ended> {
    let (mut children, mut terminate) = (signal(SignalKind::child())?, signal(SignalKind::terminate())?);
    let (mut interrupt, mut hang_up) = (signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    let (mut term_at, mut kill_at) = stop_times(until, wanted.ttl);
    let mut lost: Option<String> = None;
    let mut is_told = false;
    loop {
        if let Some(status) = running.child.try_wait()? {
            // Its children may go on although it does not.
            if lost.is_some() && running.has_group {
                running.signal(Signal::KILL);
            }
            return Ok(lost.map_or(Ended::Itself(status), Ended::Lost));
        }
        tokio::select! {
            _ = children.recv() => {}
            _ = terminate.recv() => running.signal(Signal::TERM),
            _ = interrupt.recv() => running.signal(Signal::INT),
            _ = hang_up.recv() => running.signal(Signal::HUP),
            Some(told) = news.recv() => match told {
                News::Renewed(until) if lost.is_none() => (term_at, kill_at) = stop_times(until, wanted.ttl),
                News::Renewed(_) => {}
                News::Lost(why) => {
                    let now = Instant::now();
                    (term_at, kill_at) = (now, kill_at.min(now + wanted.ttl / 4));
                    lost = Some(why);
                }
            },
            () = tokio::time::sleep_until(term_at.into()), if !is_told => {
                is_told = true;
                lost.get_or_insert_with(|| "it could not be renewed in time".to_string());
                running.signal(Signal::TERM);
            }
            () = tokio::time::sleep_until(kill_at.into()), if is_told => {
                running.signal(Signal::KILL);
                let _ = running.child.wait();
                return Ok(Ended::Lost(lost.unwrap_or_default()));
            }
        }
    }
}
