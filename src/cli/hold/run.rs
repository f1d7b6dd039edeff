//! The command: started when the lock is held, stopped when it is or may be lost.

use super::keep::{self, News};
use super::signals::{Arrived, Signals};
use super::{CANNOT_RUN, Held, LOST, NOT_FOUND, Wanted};
use crate::cli::access::AccessFlags;
use crate::cli::say::note;
use rustix::process::{Pid, Signal};
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

/// How long the command has between SIGTERM and SIGKILL when the lock is certainly lost, at most: it may be somebody else's already.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long we try to give the lock back, whatever signal comes. A key that the command has heard, too, is heard within that time.
const GIVING_BACK: Duration = Duration::from_millis(250);

/// How the command ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself, or by a signal that we passed on.
    Itself(ExitStatus),
    /// We stopped it, because of this. Perhaps we were asked to end, too.
    Lost(String, Option<Signal>),
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
            Ended::Lost(..) => LOST,
            Ended::NotRun(code, _) => *code,
        }
    }
}

/// Runs a command while the lock is held, and gives it back.
pub async fn run(
    signals: &mut Signals,
    flags: &AccessFlags,
    wanted: &Wanted,
    held: Held,
    command: &[String],
) -> Ended {
    let (send_news, mut news) = unbounded_channel();
    let (stop, stopped) = mpsc::channel::<()>();
    let (send_done, done) = oneshot::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    {
        let (flags, wanted, send_news) = (flags.clone(), wanted.clone(), send_news.clone());
        std::thread::spawn(move || {
            keep::renewing(&flags, &wanted, held, &send_news, &stopped);
            send_done.send(())
        });
    }
    {
        let (flags, wanted, is_over) = (flags.clone(), wanted.clone(), is_over.clone());
        std::thread::spawn(move || keep::listening(&flags, &wanted, held.token, &send_news, &is_over));
    }
    let (mut ended, late) = match start(command, held.token) {
        Ok(mut running) => {
            watching(&mut running, signals, wanted, held.until, &mut news).await.unwrap_or_else(|error| {
                running.signal(Signal::KILL);
                let _ = running.child.wait();
                (Ended::NotRun(CANNOT_RUN, format!("cannot watch the command: {error}")), None)
            })
        }
        Err(error) => {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            let name = command.first().map_or("", String::as_str);
            (Ended::NotRun(code, format!("cannot run {name}: {error}")), None)
        }
    };
    is_over.store(true, Ordering::Relaxed);
    drop(stop);
    if let Some(signal) = giving_back(signals, late, done).await {
        match &mut ended {
            Ended::Lost(_, asked) => *asked = Some(signal),
            _ => note!("warlock: '{}' could not be given back; it runs out by itself", wanted.name),
        }
    }
    ended
}

/// Waits until the lock is given back, or has run out. A signal ends that, also one that came too `late` for the command.
async fn giving_back(
    signals: &mut Signals,
    late: Option<Signal>,
    mut done: oneshot::Receiver<()>,
) -> Option<Signal> {
    let least = Instant::now() + GIVING_BACK;
    let mut asked = late;
    loop {
        tokio::select! {
            _ = &mut done => return None,
            arrived = signals.next() => {
                if !arrived.is_typed || Instant::now() >= least {
                    asked = Some(arrived.signal);
                }
            }
            () = tokio::time::sleep_until(least.into()), if asked.is_some() => return asked,
        }
    }
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

/// How the command ended, and a signal that came when it had ended already.
async fn watching(
    running: &mut Running,
    signals: &mut Signals,
    wanted: &Wanted,
    until: Instant,
    news: &mut UnboundedReceiver<News>,
) -> io::Result<(Ended, Option<Signal>)> {
    let mut children = signal(SignalKind::child())?;
    let (mut term_at, mut kill_at) = stop_times(until, wanted.ttl);
    let mut lost: Option<String> = None;
    let (mut is_told, mut asked) = (false, None);
    let mut arrived: Option<Arrived> = None;
    loop {
        if let Some(status) = running.child.try_wait()? {
            // Its children may go on although it does not.
            if lost.is_some() && running.has_group {
                running.signal(Signal::KILL);
            }
            let late = arrived.filter(|arrived| !arrived.is_typed).map(|arrived| arrived.signal);
            return Ok((lost.map_or(Ended::Itself(status), |why| Ended::Lost(why, asked)), late));
        }
        if let Some(Arrived { signal, is_typed }) = arrived.take() {
            // A command in our group has heard the key itself.
            if running.has_group || !is_typed {
                running.signal(signal);
            }
            // SIGHUP often means no more than: read your settings again.
            if lost.is_some() || signal != Signal::HUP {
                asked = Some(signal);
            }
        }
        tokio::select! {
            _ = children.recv() => {}
            signal = signals.next() => arrived = Some(signal),
            Some(told) = news.recv() => match told {
                News::Renewed(until) if lost.is_none() => (term_at, kill_at) = stop_times(until, wanted.ttl),
                News::Renewed(_) => {}
                News::Lost(why) => {
                    let now = Instant::now();
                    (term_at, kill_at) = (now, kill_at.min(now + LAST_WORDS.min(wanted.ttl / 4)));
                    lost.get_or_insert(why);
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
                return Ok((Ended::Lost(lost.unwrap_or_default(), asked), None));
            }
        }
    }
}
