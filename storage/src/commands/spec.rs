//! What an entry of the table says.

use super::Args;
use super::number::parse_integer;
use crate::machine::{Stamp, Txn, View};
use crate::reply::Reply;

/// A command. See the rules in the module above.
#[derive(Debug)]
pub struct CommandSpec {
    /// In capitals.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The version of Redis that brought it, or ours.
    pub since: &'static str,
    /// What it is about.
    pub group: Group,
    /// How many arguments it takes.
    pub arity: Arity,
    /// Which arguments are keys.
    pub keys: Keys,
    /// Special properties.
    pub flags: &'static [Flag],
    /// Where it differs from Redis, and why. Empty: nowhere.
    pub differs: &'static str,
    /// What it does.
    pub handler: Handler,
}

/// How many arguments a command takes, its name not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// So many.
    Exactly(usize),
    /// So many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether a command may have so many arguments.
    #[inline]
    #[must_use]
    pub const fn allows(self, count: usize) -> bool {
        match self {
            Arity::Exactly(n) => count == n,
            Arity::AtLeast(n) => count >= n,
        }
    }

    /// As COMMAND says it: with the name counted, negative for a minimum.
    #[must_use]
    pub const fn as_redis(self) -> i64 {
        match self {
            Arity::Exactly(n) => n as i64 + 1,
            Arity::AtLeast(n) => -(n as i64 + 1),
        }
    }
}

/// Which arguments are keys. Positions count from 0, the name not counted.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// None.
    None,
    /// One argument.
    At(usize),
    /// The arguments from `first` to `last`.
    Span {
        /// The first key.
        first: usize,
        /// The last key.
        last: usize,
    },
    /// Every `step`-th argument from `first` to the end.
    Every {
        /// The first key.
        first: usize,
        /// The distance to the next.
        step: usize,
    },
    /// The arguments from `first` to the end, but not the last `after`.
    Before {
        /// The first key.
        first: usize,
        /// How many arguments come after the keys.
        after: usize,
    },
    /// The arguments after a number that says how many keys there are.
    Counted {
        /// Where the number is.
        at: usize,
    },
    /// The second argument, if there is one: the first says what is done with it.
    OfSubcommand,
    /// The first argument, and others that only the command itself can tell.
    FirstAnd(fn(&[&[u8]]) -> Option<usize>),
}

impl Keys {
    /// The positions of the keys among the arguments.
    #[must_use]
    pub fn positions(self, args: &[&[u8]]) -> Vec<usize> {
        let count = args.len();
        let (first, end, step) = match self {
            Keys::None => (0, 0, 1),
            Keys::At(at) => (at, at + 1, 1),
            Keys::OfSubcommand => (1, 2, 1),
            Keys::Span { first, last } => (first, last + 1, 1),
            Keys::Every { first, step } => (first, count, step),
            Keys::Before { first, after } => (first, count.saturating_sub(after), 1),
            Keys::Counted { at } => {
                let number = args.get(at).and_then(|number| parse_integer(number));
                let keys = number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
                (at + 1, keys.saturating_add(at + 1), 1)
            }
            Keys::FirstAnd(find) => return (0..count.min(1)).chain(find(args)).collect(),
        };
        (first..end.min(count)).step_by(step).collect()
    }

    /// As COMMAND says it: first, last (negative: from the end), step, with the name counted.
    #[must_use]
    pub const fn as_redis(self) -> (i64, i64, i64) {
        match self {
            Keys::None | Keys::Counted { .. } => (0, 0, 0),
            Keys::At(at) => (at as i64 + 1, at as i64 + 1, 1),
            Keys::OfSubcommand => (2, 2, 1),
            Keys::Span { first, last } => (first as i64 + 1, last as i64 + 1, 1),
            Keys::Every { first, step } => (first as i64 + 1, -1, step as i64),
            Keys::Before { first, after } => (first as i64 + 1, -1 - after as i64, 1),
            Keys::FirstAnd(_) => (1, 1, 1),
        }
    }

    /// Whether the arguments must be looked at to find the keys.
    #[must_use]
    pub const fn are_movable(self) -> bool {
        matches!(self, Keys::Counted { .. } | Keys::FirstAnd(_))
    }
}

/// Special properties of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Takes the same time whatever is stored.
    Fast,
    /// May add to what is stored.
    Grows,
    /// May hurt everybody if used without care.
    Dangerous,
    /// Proposed by a node itself; no client can name it.
    Internal,
    /// May wait: what the same connection sends behind it is held back until it is answered.
    Blocks,
    /// The same, if this word is among its arguments.
    BlocksWith(&'static str),
    /// Its reply is the number of the node's clients that listen to its first argument.
    Publishes,
    /// Cannot be called by a script.
    NoScript,
    /// Its reply may be as large as what is stored, and it stays stored: to ask again and again makes ever more of it. (LPOP and GETDEL only move it.)
    Tells,
    /// The same, if this word is among its arguments.
    TellsWith(&'static str),
    /// Remembers the connection that sent it, which therefore travels with it.
    NamesClient,
}

/// What a command is about: its chapter in the documentation and its ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Strings as bits.
    Bitmap,
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Locks and sessions.
    Lock,
    /// The node and its databases.
    Server,
    /// Several commands as one.
    Transactions,
    /// Messages.
    PubSub,
    /// Scripts.
    Scripting,
}

impl Group {
    /// As COMMAND DOCS says it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Lock => "lock",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
        }
    }
}

/// What a command does. The variant is its class.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// Looks, cannot change.
    Read(fn(&View<'_>, &Args<'_>) -> Reply),
    /// Runs on every node, in the order of the log.
    Write(fn(&mut Txn<'_>, &Stamp, &Args<'_>) -> Reply),
}

impl CommandSpec {
    /// What every entry of the table starts from.
    pub(crate) const BASE: CommandSpec = CommandSpec {
        name: "",
        summary: "",
        since: "1.0.0",
        group: Group::Generic,
        arity: Arity::AtLeast(0),
        keys: Keys::None,
        flags: &[],
        differs: "",
        handler: Handler::Read(|_, _| Reply::error("ERR not implemented")),
    };

    /// Whether it changes anything.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        matches!(self.handler, Handler::Write(_))
    }

    /// Whether it may wait, given its arguments.
    #[must_use]
    pub fn may_block(&self, args: &[&[u8]]) -> bool {
        self.flags.iter().any(|flag| match flag {
            Flag::Blocks => true,
            Flag::BlocksWith(word) => args.iter().any(|arg| super::args::is(arg, word)),
            _ => false,
        })
    }

    /// Whether its reply may be as large as what is stored, given its arguments.
    #[must_use]
    pub fn tells(&self, args: &[&[u8]]) -> bool {
        self.flags.iter().any(|flag| match flag {
            Flag::Tells => true,
            Flag::TellsWith(word) => args.iter().any(|arg| super::args::is(arg, word)),
            _ => false,
        })
    }

    /// Whether the connection that sent it travels with it.
    #[must_use]
    pub fn names_client(&self) -> bool {
        self.flags.contains(&Flag::NamesClient)
    }

    /// Whether its reply is a number of listeners.
    #[must_use]
    pub fn publishes(&self) -> bool {
        self.flags.contains(&Flag::Publishes)
    }

    /// Whether no client can name it.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.flags.contains(&Flag::Internal)
    }
}
