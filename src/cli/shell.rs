//! `warlock cli`: for people without redis-cli. One command, lines from a pipe, or a prompt with history.

use super::access::{AccessFlags, REFUSED, complain};
use super::say::{self, note};
use bytes::BytesMut;
use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use server::resp::{Limits, Parser};
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use warlock::client::{Client, ClientError, Value, show};

/// Replies to these come as pushes, for as long as the connection lives.
const STREAMING: [&str; 4] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"];
/// How often a stream looks whether it should go on.
const STREAM_TURN: Duration = Duration::from_secs(5);

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    access: AccessFlags,
    /// The command to run; without one: a prompt, or one command a line from standard input.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// Print replies as JSON.
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Print replies bare, as into a pipe.
    #[arg(long)]
    raw: bool,
}

#[derive(Clone, Copy)]
enum Style {
    Pretty,
    Raw,
    Json,
}

/// Runs one command, or many.
pub fn run(flags: &Flags) -> ExitCode {
    let style = match (flags.json, flags.raw || !io::stdout().is_terminal()) {
        (true, _) => Style::Json,
        (false, true) => Style::Raw,
        (false, false) => Style::Pretty,
    };
    let mut client = flags.access.client();
    if !flags.command.is_empty() {
        let words: Vec<Vec<u8>> = flags.command.iter().map(|word| word.clone().into_bytes()).collect();
        return once(&mut client, &words, style);
    }
    if io::stdin().is_terminal() { prompt(&mut client, style) } else { lines(&mut client, style) }
}

fn once(client: &mut Client, words: &[Vec<u8>], style: Style) -> ExitCode {
    match perform(client, words, style) {
        Ok(is_error) => ExitCode::from(if is_error { REFUSED } else { 0 }),
        Err(error) => complain(&error),
    }
}

/// One command a line; stops at the first that cannot be sent. The exit code tells whether any was refused.
fn lines(client: &mut Client, style: Style) -> ExitCode {
    let mut refused = false;
    for line in io::stdin().lock().lines() {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                note!("warlock: cannot read standard input: {error}");
                return ExitCode::FAILURE;
            }
        };
        match split(&line) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => match perform(client, &words, style) {
                Ok(is_error) => refused |= is_error,
                Err(error) => return complain(&error),
            },
            Err(why) => {
                note!("warlock: {why}: {line}");
                refused = true;
            }
        }
    }
    ExitCode::from(if refused { REFUSED } else { 0 })
}

fn prompt(client: &mut Client, style: Style) -> ExitCode {
    let history = history_file();
    let config = Config::builder().max_history_size(1_000).map_or_else(|_| Config::default(), |b| b.build());
    let mut editor: Editor<(), FileHistory> = match Editor::with_config(config) {
        Ok(editor) => editor,
        Err(error) => {
            note!("warlock: the terminal cannot be used: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(file) = &history {
        let _ = editor.load_history(file); // there is none the first time
    }
    if let Err(error) = client.ask(&["PING"]) {
        note!("warlock: {error}");
    }
    loop {
        let place = client.address().map_or_else(|| "not connected".to_string(), str::to_string);
        match editor.readline(&format!("{place}> ")) {
            Ok(line) if ["quit", "exit"].contains(&line.trim().to_ascii_lowercase().as_str()) => break,
            Ok(line) => {
                let _ = editor.add_history_entry(line.as_str());
                match split(&line) {
                    Ok(words) if words.is_empty() => {}
                    Ok(words) => {
                        if let Err(error) = perform(client, &words, style) {
                            note!("{error}");
                        }
                    }
                    Err(why) => note!("{why}"),
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => {
                note!("warlock: the terminal cannot be read: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if let Some(file) = &history {
        let _ = editor.save_history(file); // a home that cannot be written is no reason to complain
    }
    ExitCode::SUCCESS
}

fn history_file() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".warlock_history"))
}

/// Sends a command and prints what comes back; says whether it was an error.
fn perform(client: &mut Client, words: &[Vec<u8>], style: Style) -> Result<bool, ClientError> {
    let name =
        words.first().map(|word| String::from_utf8_lossy(word).to_ascii_uppercase()).unwrap_or_default();
    if STREAMING.contains(&name.as_str()) {
        return stream(client, words, style);
    }
    let before = client.address().map(str::to_string);
    let reply = client.ask(words)?;
    if before.is_some() && before.as_deref() != client.address() {
        note!("(now at {})", client.address().unwrap_or("another node"));
    }
    print(&reply, style);
    Ok(matches!(reply, Value::Error(_)))
}

fn stream(client: &mut Client, words: &[Vec<u8>], style: Style) -> Result<bool, ClientError> {
    client.send(words)?;
    while !say::is_closed() {
        if let Some(value) = client.listen(STREAM_TURN)? {
            print(&value, style);
            if matches!(value, Value::Error(_)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn print(value: &Value, style: Style) {
    let mut bytes = match style {
        Style::Pretty => show::pretty(value).into_bytes(),
        Style::Raw => show::raw(value),
        Style::Json => show::json(value).into_bytes(),
    };
    bytes.push(b'\n');
    if !say::bytes(&bytes) {
        // What is not wanted is not asked for, either.
        std::process::exit(if matches!(value, Value::Error(_)) { i32::from(REFUSED) } else { 0 });
    }
}

/// Splits a line as Redis does.
fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut input = BytesMut::from(line.trim_start_matches('*').as_bytes());
    input.extend_from_slice(b"\r\n");
    let request = Parser::new(Limits::default(), true).next(&mut input).map_err(|error| error.to_string())?;
    Ok(request.map(|request| request.iter().map(<[u8]>::to_vec).collect()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_is_split_as_redis_does() {
        assert_eq!(split("set k \"a b\\x41\"").unwrap(), [b"set".to_vec(), b"k".to_vec(), b"a bA".to_vec()]);
        assert!(split("  ").unwrap().is_empty());
        assert!(split("set k \"open").is_err());
    }
}
