//! `warlock admin …`: WARLOCK commands from the command line.

use super::access::{AccessFlags, REFUSED, UNREACHABLE, complain};
use super::say::{note, say};
use super::{Outcome, backup};
use clap::Args;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use warlock::client::{Access, Client, ClientError, Value, show};
use warlock::node::HELP;

/// A change of the member set may take this long.
const PATIENCE: Duration = Duration::from_secs(90);

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    access: AccessFlags,
    /// What to do: members, status, add host:peerport, backup FILE …; 'help' lists all.
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
}

/// Asks a node and shows its answer.
pub fn run(flags: &Flags) -> ExitCode {
    let access = flags.access.access();
    match flags.words.as_slice() {
        [word, file] if word.eq_ignore_ascii_case("backup") => {
            return finish_backup(backup::run(access, Path::new(file)));
        }
        [word] if word.eq_ignore_ascii_case("backup") => {
            return refused("name the file: warlock admin backup FILE");
        }
        [word] if word.eq_ignore_ascii_case("help") => {
            // The same as a node says, for who has none yet.
            say!("{}", HELP.join("\n"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let mut client = Client::new(Access { patience: access.patience.max(PATIENCE), ..access });
    let mut command = vec!["WARLOCK"];
    command.extend(flags.words.iter().map(String::as_str));
    match client.ask(&command) {
        Ok(Value::Error(_)) if is_formed_already(&mut client, &flags.words) => {
            say!("these nodes are members of one cluster already; nothing was done");
            ExitCode::SUCCESS
        }
        Ok(Value::Error(error)) => refused(&error),
        Ok(reply) => {
            say!("{}", show::pretty(&reply).trim_end());
            ExitCode::SUCCESS
        }
        Err(error) => complain(&error),
    }
}

/// Who could not be reached is told from who said no.
fn finish_backup(outcome: Outcome) -> ExitCode {
    match outcome {
        Err(error) if error.is::<ClientError>() => {
            note!("warlock: {error}");
            ExitCode::from(UNREACHABLE)
        }
        outcome => crate::finish(outcome),
    }
}

fn refused(why: &str) -> ExitCode {
    note!("warlock: {why}");
    ExitCode::from(REFUSED)
}

/// Whether JOIN was refused because it was done before. Whoever starts a cluster by machine asks for it at every start.
fn is_formed_already(client: &mut Client, words: &[String]) -> bool {
    let Some((_, others)) = words.split_first().filter(|(word, _)| word.eq_ignore_ascii_case("join")) else {
        return false;
    };
    let Ok(members) = client.ask(&["WARLOCK", "MEMBERS"]) else { return false };
    let peers: Vec<String> =
        members.elements().iter().filter_map(|member| member.field("peer")?.text()).collect();
    !others.is_empty() && others.iter().all(|other| peers.contains(other))
}
