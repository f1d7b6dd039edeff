//! Commands about the connection and the node: one entry of a table each, beside its function. Commands about data are in `storage`.

mod client;
mod info;
mod introspect;
mod node;
mod observe;
mod pubsub;
mod session;
mod tracking;
mod transactions;

use crate::connection::{Connection, Exec, Read, State};
use bytes::{Bytes, BytesMut};
use storage::commands::Arity;
use storage::reply::Reply;

/// What a command of the connection does.
pub enum Effect {
    /// Replies.
    Reply(Reply),
    /// Replies several times.
    Many(Vec<Reply>),
    /// Replies with what is written out already.
    Raw(BytesMut),
    /// Replies nothing.
    Silence,
    /// Replies and closes the connection.
    Close(Reply),
    /// Goes to the node: `WARLOCK …`.
    Admin(Vec<Bytes>),
    /// Reads the machine.
    Read(Read),
    /// Replicates a transaction; the rest of it the connection does itself.
    Submit(Bytes, Exec),
}

/// What must be answered before a command of the connection may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing.
    Nothing,
    /// Reads that wait for their permission.
    Reads,
    /// Writes on their way.
    Writes,
    /// Everything: it changes how replies are written.
    Everything,
}

/// What becomes of a command of the connection between MULTI and EXEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InMulti {
    /// It waits for EXEC. It must do nothing but reply.
    Queued,
    /// It runs at once.
    Runs,
    /// It runs at once, and ends the transaction.
    Ends,
    /// It waits for EXEC, and is not done then: this is its reply.
    Fails(&'static str),
    /// It is not allowed.
    Refused,
}

/// Which CLIENT PAUSE holds a command of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// None: it may be what ends the pause, or what must be done before that.
    Never,
    /// One of everything.
    WithAll,
    /// Also one of writes.
    AsWrite,
}

/// Finds the database that a command chooses, in its arguments.
pub type Selects = fn(&[&[u8]]) -> Option<u8>;

/// A command of the connection or the node.
pub struct OwnCommand {
    /// In capitals.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Where it differs from Redis, and why. Empty: nowhere, or Redis has no such command.
    pub differs: &'static str,
    /// How many arguments it takes.
    pub arity: Arity,
    /// Its subcommands, in capitals.
    pub parts: &'static [&'static str],
    /// Whether it is allowed before AUTH.
    pub before_auth: bool,
    /// What it waits for.
    pub behind: Behind,
    /// What it does in a transaction.
    pub in_multi: InMulti,
    /// Whether a subscriber may send it that speaks RESP2, where messages and replies look alike.
    pub while_subscribed: bool,
    /// Which CLIENT PAUSE holds it.
    pub paused: Paused,
    /// Whether it is replicated, with a reply that may be large.
    pub tells: bool,
    /// Whether what CLIENT CACHING said of the next command outlives it.
    pub keeps_caching: bool,
    /// Whether MONITOR does not show it.
    pub is_secret: bool,
    /// The database that it chooses for the commands behind it.
    pub selects: Option<Selects>,
    /// What it does.
    pub handler: fn(&Connection, &mut State, &[&[u8]]) -> Effect,
}

impl OwnCommand {
    /// What every entry of the table starts from.
    pub(crate) const BASE: OwnCommand = OwnCommand {
        name: "",
        summary: "",
        differs: "",
        arity: Arity::AtLeast(0),
        parts: &[],
        before_auth: false,
        behind: Behind::Nothing,
        in_multi: InMulti::Queued,
        while_subscribed: false,
        paused: Paused::WithAll,
        tells: false,
        keeps_caching: false,
        is_secret: false,
        selects: None,
        handler: |_, _, _| error("ERR not implemented"),
    };

    /// The reply to a wrong number of arguments.
    #[must_use]
    pub fn wrong_arity(&self) -> Reply {
        let name = self.name.to_ascii_lowercase();
        Reply::Error(format!("ERR wrong number of arguments for '{name}' command").into())
    }
}

/// Every family of commands.
const FAMILIES: &[&[OwnCommand]] = &[
    session::COMMANDS,
    transactions::COMMANDS,
    client::COMMANDS,
    pubsub::COMMANDS,
    info::COMMANDS,
    introspect::COMMANDS,
    observe::COMMANDS,
    node::COMMANDS,
];

/// All of them.
pub fn all() -> impl Iterator<Item = &'static OwnCommand> {
    FAMILIES.iter().copied().flatten()
}

/// The command of that name, in any case.
#[must_use]
pub fn lookup(name: &[u8]) -> Option<&'static OwnCommand> {
    // Few and short; the first letter and the length tell nearly all apart.
    all().find(|own| own.name.len() == name.len() && own.name.as_bytes().eq_ignore_ascii_case(name))
}

fn error(text: impl Into<String>) -> Effect {
    Effect::Reply(Reply::Error(text.into().into()))
}

/// A subcommand that there is not.
fn unknown_subcommand(command: &str, name: &[u8]) -> Effect {
    let name = String::from_utf8_lossy(&name[..name.len().min(128)]).into_owned();
    error(format!("ERR unknown subcommand '{name}'. Try {command} HELP."))
}

/// The wrong number of arguments for a subcommand.
fn wrong_subcommand_arity(command: &str, name: &[u8]) -> Effect {
    let name = String::from_utf8_lossy(name).to_lowercase();
    error(format!("ERR wrong number of arguments for '{command}|{name}' command"))
}

/// The same, as subcommands say it that count their arguments themselves.
fn wrong_use(command: &str, name: &[u8]) -> Effect {
    let name = String::from_utf8_lossy(name).into_owned();
    error(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {command} HELP."))
}

/// What HELP answers.
fn help(lines: &[&'static str]) -> Reply {
    Reply::Array(lines.iter().map(|line| Reply::simple(line)).collect())
}

pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
