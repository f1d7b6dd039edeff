//! EXEC as it is replicated: what the connection watched and queued, in one command, so that it is atomic in one slot.
//!
//! A connection queues; this is what it submits. No client can name it. It goes through the log also when it only reads: then every
//! transaction has one path, and its replies are of one state.
//!
//! `WARLOCK.EXEC count · watched… · command…`: a watched key is `database¹ · version⁸ · key`, a command is encoded as if it were alone.
//!
//! * X1: all watched keys have the version that WATCH saw, or nothing is done and the reply is nothing.
//! * X2: a queued command that fails changes nothing; its error is its place in the reply, and the others are done.
//! * X3: the replies together have at most [`REPLY_BYTES_MAX`], or nothing is done: the ledger of every node keeps them until the client's
//!   node has seen them.

use super::number::parse_integer;
use super::spec::{Arity, CommandSpec, Flag, Group, Handler};
use super::{Args, lookup, unknown_command};
use crate::machine::{Txn, decode_command, encode_command};
use crate::reply::Reply;
use bytes::Bytes;

const EXEC: &str = "WARLOCK.EXEC";

/// Bytes of the replies of one transaction, at most.
pub const REPLY_BYTES_MAX: usize = 32 << 20;

const MALFORMED: Reply = Reply::error("ERR malformed transaction in the log");

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: EXEC,
    summary: "Runs a transaction if no watched key has changed.",
    since: "0.1.0",
    group: Group::Transactions,
    arity: Arity::AtLeast(1),
    flags: &[Flag::Internal],
    handler: Handler::Write(|txn, _, args| exec(txn, args).unwrap_or_else(|error| error)),
    ..CommandSpec::BASE
}];

/// A key that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The database.
    pub db: u8,
    /// The key.
    pub key: Bytes,
    /// Its version when WATCH was answered: [`crate::machine::View::version`].
    pub version: u64,
}

/// The payload of a transaction: `commands` (each made by [`encode_command`]) run if no watched key has changed.
#[must_use]
pub fn transaction(watched: &[Watched], commands: &[Bytes]) -> Bytes {
    let count = Bytes::from(watched.len().to_string());
    let mut words = vec![Bytes::from_static(EXEC.as_bytes()), count];
    words.extend(watched.iter().map(|watched| {
        Bytes::from([&[watched.db][..], &watched.version.to_be_bytes(), &watched.key].concat())
    }));
    words.extend_from_slice(commands);
    encode_command(0, &words)
}

fn parse_watched(bytes: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (&[db], rest) = bytes.split_first_chunk()?;
    let (version, key) = rest.split_first_chunk()?;
    Some((db, u64::from_be_bytes(*version), key))
}

fn exec(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let count = parse_integer(args[0]).and_then(|count| usize::try_from(count).ok()).ok_or(MALFORMED)?;
    let (watched, commands) = args.all()[1..].split_at_checked(count).ok_or(MALFORMED)?;
    for watched in watched {
        let (db, version, key) = parse_watched(watched).ok_or(MALFORMED)?;
        if txn.look(|view| view.version(db, key)) != version {
            return Ok(Reply::NullArray);
        }
    }
    let mut replies = Vec::with_capacity(commands.len());
    let mut bytes = 0;
    for payload in commands {
        let command = decode_command(payload).ok_or(MALFORMED)?;
        let (name, rest) = command.args().split_first().ok_or(MALFORMED)?;
        let reply = match lookup(name) {
            Some(_) => txn.attempt(|txn| {
                txn.set_client(command.client());
                txn.execute(command.db, command.args())
            }),
            None => unknown_command(name, rest),
        };
        bytes += reply.bytes_at_most();
        if bytes > REPLY_BYTES_MAX {
            return Err(Reply::error(
                "ERR the replies of this transaction are too large; nothing of it was done, ask for less at once",
            ));
        }
        replies.push(reply);
    }
    Ok(Reply::Array(replies))
}
