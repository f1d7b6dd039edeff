//! `warlock elect`: runs a command while it is the leader, or prints who leads. An election is a lock; the leader's value is the hold's data.

use super::access::AccessFlags;
use super::hold::{self, Ended, FAILED, NotHeld, Wanted};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use warlock::client::{Client, ClientError, Value};
use warlock::settings;

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
    /// Print each leader, one a line: its token and its value.
    #[arg(long, conflicts_with_all = ["value", "command"])]
    watch: bool,
    /// For how long we lead without saying so again. It is said three times as often.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = settings::time)]
    ttl: Duration,
    /// The command and its arguments, behind `--`.
    #[arg(last = true, required_unless_present = "watch")]
    command: Vec<String>,
}

/// Leads until the command ends by itself; stands again when leadership is lost.
pub fn run(flags: &Flags) -> ExitCode {
    if flags.watch {
        return watch(flags);
    }
    let wanted = Wanted {
        name: flags.name.clone(),
        owner: hold::owner(),
        ttl: flags.ttl.max(Duration::from_millis(100)),
        is_shared: false,
        wait: None,
        data: flags.value.clone().unwrap_or_default(),
    };
    loop {
        let held = match hold::acquire(&flags.access, &wanted) {
            Ok(held) => held,
            Err(NotHeld::Busy) => continue,
            Err(NotHeld::Failed(why)) => {
                eprintln!("warlock: {why}");
                return ExitCode::from(FAILED);
            }
        };
        eprintln!("warlock: leads '{}' with token {}", wanted.name, held.token);
        let ended = hold::run(&flags.access, &wanted, held, &flags.command);
        match &ended {
            Ended::Lost(why) => {
                eprintln!("warlock: leads '{}' no longer: {why}; the command was stopped", wanted.name);
                continue;
            }
            Ended::NotRun(_, why) => eprintln!("warlock: {why}"),
            Ended::Itself(_) => {}
        }
        return ExitCode::from(ended.code());
    }
}

/// Prints each leader. The nodes tell every change of a lock on its channel, so nobody has to ask again and again.
fn watch(flags: &Flags) -> ExitCode {
    let mut client = flags.access.client();
    let channel = format!("__lock__:{}", flags.name);
    let (mut subscribed, mut last) = (None, None);
    loop {
        // The subscription comes first: what changes after the question is told.
        if subscribed != Some(client.connections()) {
            let is_sent = client.send(&["SUBSCRIBE", &channel]).is_ok();
            subscribed = is_sent.then(|| client.connections());
        }
        match leader(&mut client, &flags.name) {
            Ok(Some((token, value))) if last != Some(token) => {
                println!("{token} {value}");
                last = Some(token);
            }
            Ok(_) => {}
            Err(Trouble::Passing) => {
                client.disconnect();
                std::thread::sleep(ASK_AGAIN);
                continue;
            }
            Err(Trouble::Lasting(why)) => {
                eprintln!("warlock: {why}");
                return ExitCode::from(FAILED);
            }
        }
        if subscribed == Some(client.connections()) && client.listen(LOOK_EVERY).is_err() {
            subscribed = None;
        }
    }
}

/// Why there is no answer.
enum Trouble {
    /// Another try, at another node, may succeed.
    Passing,
    /// It would be refused again.
    Lasting(String),
}

/// The leader's token and value, if there is one.
fn leader(client: &mut Client, name: &str) -> Result<Option<(i64, String)>, Trouble> {
    let info = match client.ask(&["LOCK.INFO", name]) {
        Ok(Value::Error(text)) if hold::is_passing(&text) => return Err(Trouble::Passing),
        Ok(Value::Error(text)) => return Err(Trouble::Lasting(text)),
        Ok(info) => info,
        Err(error @ (ClientError::NotRedis(..) | ClientError::Refused(..))) => {
            return Err(Trouble::Lasting(error.to_string()));
        }
        Err(_) => return Err(Trouble::Passing),
    };
    let holder = info.field("holders").and_then(|holders| holders.elements().first());
    Ok(holder.and_then(|holder| {
        Some((holder.field("token")?.integer()?, holder.field("data")?.text().unwrap_or_default()))
    }))
}
