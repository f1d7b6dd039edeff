//! Commands about the connection and the node: one entry of a table each, beside its function. Commands about data are in `storage`.

mod about;
mod session;

use crate::connection::{Connection, State};
use bytes::Bytes;
use storage::commands::Arity;
use storage::reply::Reply;

/// What a command of the connection does.
pub enum Effect {
    /// Replies.
    Reply(Reply),
    /// Replies and closes the connection.
    Close(Reply),
    /// Goes to the node: `WARLOCK …`.
    Admin(Vec<Bytes>),
}

/// A command of the connection or the node.
pub struct OwnCommand {
    /// In capitals.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// How many arguments it takes.
    pub arity: Arity,
    /// Whether it is allowed before AUTH.
    pub before_auth: bool,
    /// Whether it waits until everything before it is answered: it changes how replies are written.
    pub alone: bool,
    /// What it does.
    pub handler: fn(&Connection, &mut State, &[&[u8]]) -> Effect,
}

impl OwnCommand {
    /// The reply to a wrong number of arguments.
    #[must_use]
    pub fn wrong_arity(&self) -> Reply {
        let name = self.name.to_ascii_lowercase();
        Reply::Error(format!("ERR wrong number of arguments for '{name}' command").into())
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static OwnCommand> {
    session::COMMANDS.iter().chain(about::COMMANDS)
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

fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
