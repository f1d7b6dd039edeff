//! SESSION.*: one heartbeat that many locks and keys live by. What ends with a session is in `machine::sessions`.

use super::number::integer;
use super::spec::{Arity, CommandSpec, Flag, Group, Handler};
use super::{Args, errors};
use crate::commands::args::is;
use crate::machine::{Session, Stamp, Txn};
use crate::reply::Reply;

const SESSION: CommandSpec =
    CommandSpec { since: "0.1.0", group: Group::Lock, flags: &[Flag::Fast], ..CommandSpec::BASE };

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SESSION.OPEN",
        summary: "Begins a session that lives as long as it is told so; replies with its id.",
        arity: Arity::AtLeast(1),
        flags: &[Flag::Grows, Flag::Fast],
        handler: Handler::Write(|txn, stamp, args| open(txn, stamp, args).unwrap_or_else(|error| error)),
        ..SESSION
    },
    CommandSpec {
        name: "SESSION.ALIVE",
        summary: "Lets a session live on; replies with the time that it has from now.",
        arity: Arity::Exactly(1),
        handler: Handler::Write(|txn, stamp, args| alive(txn, stamp, args).unwrap_or_else(|error| error)),
        ..SESSION
    },
    CommandSpec {
        name: "SESSION.CLOSE",
        summary: "Ends a session with its locks and keys; replies whether it still lived.",
        arity: Arity::Exactly(1),
        handler: Handler::Write(|txn, _, args| close(txn, args).unwrap_or_else(|error| error)),
        ..SESSION
    },
];

/// The number of a session, as a client says it.
pub(super) fn session_id(arg: &[u8]) -> Result<u64, Reply> {
    u64::try_from(integer(arg)?).map_err(|_| errors::NOT_AN_INTEGER)
}

/// Told to whoever names a session that is over.
pub(crate) fn no_session(id: u64) -> Reply {
    Reply::Error(format!("NOSESSION session {id} has ended, or there was none; open another one").into())
}

/// The session that an option names; it must live.
pub(super) fn live_session(txn: &mut Txn<'_>, arg: &[u8]) -> Result<u64, Reply> {
    let id = session_id(arg)?;
    txn.session(id).map(|_| id).ok_or_else(|| no_session(id))
}

/// SESSION.OPEN ttl-ms [NAME n]
fn open(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let ttl_ms = super::locks::ttl(args[0], stamp.at_ms, "session.open")?;
    let name = match &args.all()[1..] {
        [] => Vec::new(),
        [option, name] if is(option, "NAME") => name.to_vec(),
        _ => return Err(errors::SYNTAX),
    };
    let id = txn.next_token();
    txn.put_session(id, &Session { ttl_ms, deadline_ms: stamp.at_ms + ttl_ms, name });
    Ok(super::locks::number(id))
}

/// SESSION.ALIVE id
fn alive(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let id = session_id(args[0])?;
    let mut session = txn.session(id).ok_or_else(|| no_session(id))?;
    session.deadline_ms = stamp.at_ms + session.ttl_ms;
    txn.put_session(id, &session);
    Ok(super::locks::number(session.ttl_ms))
}

/// SESSION.CLOSE id
fn close(txn: &mut Txn<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let id = session_id(args[0])?;
    let Some(session) = txn.session(id) else { return Ok(Reply::Integer(0)) };
    txn.end_session(id, &session, false);
    Ok(Reply::Integer(1))
}
