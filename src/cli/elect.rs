//! `warlock elect`: runs a command while it is the leader, or prints who leads. An election is a lock; the leader's value is the hold's data.

use super::access::AccessFlags;
use super::hold::{self, Ended, FAILED, NotHeld, Outage, Signals, Wanted};
use super::say::{self, note, say};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use warlock::client::{Client, ClientError, Value};

/// How often the leader is asked for although nothing was heard: a node that fell silent is noticed so.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Before the next node is asked, when one could not answer.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    access: AccessFlags,
    /// The election: a key.
    name: String,
    /// What others see of the leader, an address for instance.
    #[arg(required_unless_present = "watch")]
    value: Option<String>,
    /// Print each leader, one a line: its token and its value, with control characters and backslashes escaped.
    #[arg(long, conflicts_with_all = ["value", "command"])]
    watch: bool,
    /// For how long we lead without saying so again. At least 100ms. It is said three times as often.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = hold::ttl)]
    ttl: Duration,
    /// The command and its arguments, behind `--`.
    #[arg(last = true, required_unless_present = "watch")]
    command: Vec<String>,
}

/// Leads until the command ends by itself; stands again when leadership is lost, unless it was asked to end.
pub fn run(flags: &Flags) -> ExitCode {
    if flags.watch {
        return watch(flags);
    }
    hold::with_signals(async |signals| lead(signals, flags).await)
}

async fn lead(signals: &mut Signals, flags: &Flags) -> u8 {
    let wanted = Wanted {
        name: flags.name.clone(),
        owner: hold::owner(),
        ttl: flags.ttl,
        is_shared: false,
        wait: None,
        data: flags.value.clone().unwrap_or_default(),
    };
    loop {
        let held = match hold::acquire(signals, &flags.access, &wanted).await {
            Ok(held) => held,
            Err(NotHeld::Busy) => continue,
            Err(NotHeld::Failed(why)) => {
                note!("warlock: {why}");
                return FAILED;
            }
            Err(NotHeld::Signalled(signal)) => return hold::signal_code(signal),
        };
        note!("warlock: leads '{}' with token {}", wanted.name, held.token);
        let ended = hold::run(signals, &flags.access, &wanted, held, &flags.command).await;
        match &ended {
            Ended::Lost(why, asked) => {
                note!("warlock: leads '{}' no longer: {why}; the command was stopped", wanted.name);
                match asked {
                    Some(signal) => return hold::signal_code(*signal),
                    None => continue,
                }
            }
            Ended::NotRun(_, why) => note!("warlock: {why}"),
            Ended::Itself(_) => {}
        }
        return ended.code();
    }
}

/// Prints each leader. The nodes tell every change of a lock on its channel, so nobody has to ask again and again.
fn watch(flags: &Flags) -> ExitCode {
    let mut client = flags.access.client();
    let channel = format!("__lock__:{}", flags.name);
    let (mut subscribed, mut last) = (None, None);
    let mut outage = Outage::new(flags.access.patience);
    // A leader may lead for long: who has gone meanwhile is noticed at every look.
    while !say::is_closed() {
        // The subscription comes first: what changes after the question is told.
        if subscribed != Some(client.connections()) {
            let is_sent = client.send(&["SUBSCRIBE", &channel]).is_ok();
            subscribed = is_sent.then(|| client.connections());
        }
        match leader(&mut client, &flags.name) {
            Ok(Some((token, value))) if last != Some(token) => {
                if !say!("{token} {}", one_line(&value)) {
                    return ExitCode::SUCCESS;
                }
                last = Some(token);
                outage.is_over();
            }
            Ok(_) => outage.is_over(),
            Err(Trouble::Passing(why)) => {
                if client.connections() > 0 {
                    outage.is_reached();
                }
                if outage.is_enough(&why) {
                    note!("warlock: {why}");
                    return ExitCode::from(FAILED);
                }
                client.disconnect();
                std::thread::sleep(ASK_AGAIN);
                continue;
            }
            Err(Trouble::Lasting(why)) => {
                note!("warlock: {why}");
                return ExitCode::from(FAILED);
            }
        }
        if subscribed == Some(client.connections()) && client.listen(LOOK_EVERY).is_err() {
            subscribed = None;
        }
    }
    ExitCode::SUCCESS
}

/// A value as a part of a line: what would end the line, or act on a terminal, is written out (`\n`), and so is the backslash.
fn one_line(value: &str) -> String {
    let shown =
        |c: char| if c.is_control() || c == '\\' { c.escape_default().to_string() } else { c.to_string() };
    value.chars().map(shown).collect()
}

/// Why there is no answer.
enum Trouble {
    /// Another try, at another node, may succeed.
    Passing(String),
    /// It would be refused again.
    Lasting(String),
}

/// The leader's token and value, if there is one.
fn leader(client: &mut Client, name: &str) -> Result<Option<(i64, String)>, Trouble> {
    let info = match client.ask(&["LOCK.INFO", name]) {
        Ok(Value::Error(text)) if hold::is_passing(&text) => return Err(Trouble::Passing(text)),
        Ok(Value::Error(text)) => return Err(Trouble::Lasting(text)),
        Ok(info) => info,
        Err(error @ (ClientError::NotRedis(..) | ClientError::Refused(..))) => {
            return Err(Trouble::Lasting(error.to_string()));
        }
        Err(error) => return Err(Trouble::Passing(error.to_string())),
    };
    let holder = info.field("holders").and_then(|holders| holders.elements().first());
    Ok(holder.and_then(|holder| {
        Some((holder.field("token")?.integer()?, holder.field("data")?.text().unwrap_or_default()))
    }))
}
