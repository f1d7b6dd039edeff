//! `warlock admin …`: WARLOCK commands from the command line.

use super::Outcome;
use super::access::AccessFlags;
use super::backup;
use clap::Args;
use std::path::Path;
use std::time::Duration;
use warlock::client::{Access, Client, Value, show};

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
pub fn run(flags: Flags) -> Outcome {
    let access = flags.access.access();
    match flags.words.as_slice() {
        [word, file] if word.eq_ignore_ascii_case("backup") => return backup::run(access, Path::new(file)),
        [word] if word.eq_ignore_ascii_case("backup") => {
            return Err("name the file: warlock admin backup FILE".into());
        }
        _ => {}
    }
    let mut client = Client::new(Access { patience: access.patience.max(PATIENCE), ..access });
    let mut command = vec!["WARLOCK".to_string()];
    command.extend(flags.words);
    match client.ask(&command)? {
        Value::Error(error) => Err(error.into()),
        reply => {
            println!("{}", show::pretty(&reply).trim_end());
            Ok(())
        }
    }
}
