//! `warlock lock`: runs a command while it holds a lock.

use super::access::AccessFlags;
use super::hold::{self, BUSY, Ended, FAILED, NotHeld, Signals, Wanted};
use super::say::note;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use warlock::settings;

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    access: AccessFlags,
    /// The lock: a key.
    name: String,
    /// For how long the lock is ours without being renewed. At least 100ms. It is renewed three times as often.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = hold::ttl)]
    ttl: Duration,
    /// Share the lock with others that share it.
    #[arg(long)]
    shared: bool,
    /// How long to wait for the lock (0s: not at all). Without it: for ever.
    #[arg(long, value_name = "TIME", value_parser = settings::time)]
    wait: Option<Duration>,
    /// The command and its arguments, behind `--`.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command; its exit code is ours.
pub fn run(flags: &Flags) -> ExitCode {
    hold::with_signals(async |signals| lock(signals, flags).await)
}

async fn lock(signals: &mut Signals, flags: &Flags) -> u8 {
    let wanted = Wanted {
        name: flags.name.clone(),
        owner: hold::owner(),
        ttl: flags.ttl,
        is_shared: flags.shared,
        wait: flags.wait,
        data: flags.command.join(" "),
    };
    let held = match hold::acquire(signals, &flags.access, &wanted).await {
        Ok(held) => held,
        Err(NotHeld::Busy) => {
            note!("warlock: somebody else holds '{}'; LOCK.INFO tells who", wanted.name);
            return BUSY;
        }
        Err(NotHeld::Failed(why)) => {
            note!("warlock: {why}");
            return FAILED;
        }
        Err(NotHeld::Signalled(signal)) => return hold::signal_code(signal),
    };
    let ended = hold::run(signals, &flags.access, &wanted, held, &flags.command).await;
    match &ended {
        Ended::Itself(_) => {}
        Ended::Lost(why, _) => {
            note!("warlock: the lock '{}' is or may be lost: {why}; the command was stopped", wanted.name)
        }
        Ended::NotRun(_, why) => note!("warlock: {why}"),
    }
    ended.code()
}
