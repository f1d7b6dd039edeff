//! MULTI, EXEC, WATCH: what a connection queues and remembers before it submits one transaction.
//!
//! * T1: nothing of a transaction runs before EXEC, and nothing of it when a request was refused while queueing, or when a watched key has
//!   changed.
//! * T2: a WATCH that could not be answered counts as a change: the EXEC behind it does nothing.
//! * T3: what the connection does itself (PING, SELECT, CLIENT …) stands in the reply at its place and is done only if the rest was.

use super::places::{Call, Exec, Filling, Own, Part, Place};
use super::{Connection, State};
use crate::commands;
use crate::commands::{Effect, InMulti};
use crate::reply;
use crate::resp::{Encoder, Request};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use storage::commands::{Watched, transaction};
use storage::reply::Reply;

/// Commands in one transaction, at most: heartbeats wait while it runs.
pub const QUEUED_MAX: usize = 100_000;
/// Keys that one connection watches, at most.
const WATCHED_MAX: usize = 65_536;
/// What a queued command or a watched key takes besides its bytes.
const OVERHEAD: usize = 64;

const ABORTED: Reply = Reply::error("EXECABORT Transaction discarded because of previous errors.");
const TOO_LARGE: Reply =
    Reply::error("ERR done, but the replies of the transaction are more than client-output-buffer-limit");
const QUEUED: Reply = Reply::simple("QUEUED");

/// A transaction that is being queued.
pub struct Multi {
    /// The database that the next command is for.
    pub db: u8,
    queued: Vec<Queued>,
    bytes: usize,
    is_aborted: bool,
    /// Keys that are read.
    read: Vec<Bytes>,
}

enum Queued {
    /// Encoded for the log, and the channel that it publishes to.
    Data(Bytes, Option<Bytes>),
    /// For the connection itself.
    Own(Request),
}

/// What is watched.
#[derive(Default)]
pub struct Watching {
    keys: HashMap<(u8, Bytes), u64>,
    bytes: usize,
    /// A WATCH failed, so nobody knows whether its keys changed.
    is_lost: bool,
}

impl Multi {
    /// An empty one.
    pub fn new(db: u8) -> Multi {
        Multi { db, queued: Vec::new(), bytes: 0, is_aborted: false, read: Vec::new() }
    }

    /// EXEC will do nothing.
    pub fn abort(&mut self) {
        self.is_aborted = true;
        self.queued = Vec::new();
        self.read = Vec::new();
        self.bytes = 0;
    }

    /// How many commands are queued.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    fn push(&mut self, queued: Queued, bytes: usize, bytes_max: usize) -> Reply {
        if self.is_aborted {
            return QUEUED;
        }
        self.bytes += bytes + OVERHEAD;
        if self.queued.len() >= QUEUED_MAX || self.bytes > bytes_max {
            self.abort();
            return Reply::Error(
                format!(
                    "ERR the transaction is too large (at most {QUEUED_MAX} commands and {bytes_max} bytes); \
                     nothing of it will be done"
                )
                .into(),
            );
        }
        self.queued.push(queued);
        QUEUED
    }

    /// Notes keys that a queued command reads.
    pub fn track(&mut self, keys: Vec<Bytes>) {
        self.read.extend(keys);
    }

    /// Queues a command about data.
    pub fn push_data(
        &mut self,
        payload: impl FnOnce() -> Bytes,
        channel: Option<Bytes>,
        bytes_max: usize,
    ) -> Reply {
        let payload = if self.is_aborted { Bytes::new() } else { payload() };
        let bytes = payload.len() + channel.as_ref().map_or(0, Bytes::len);
        self.push(Queued::Data(payload, channel), bytes, bytes_max)
    }

    /// Queues a command of the connection.
    pub fn push_own(&mut self, request: Request, bytes_max: usize) -> Reply {
        let bytes = request.bytes_held();
        self.push(Queued::Own(request), bytes, bytes_max)
    }
}

impl Watching {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Watching::default();
    }

    /// A WATCH was not answered.
    pub fn lose(&mut self) {
        self.is_lost = true;
    }

    /// These keys are watched from now on; those that are watched already keep their older version.
    pub fn add(&mut self, watched: Vec<Watched>, bytes_max: usize) -> Reply {
        for Watched { db, key, version } in watched {
            self.bytes += key.len() + OVERHEAD;
            if self.keys.len() >= WATCHED_MAX || self.bytes > bytes_max {
                self.is_lost = true;
                return Reply::Error(
                    format!("ERR too many watched keys (at most {WATCHED_MAX} and {bytes_max} bytes)").into(),
                );
            }
            self.keys.entry((db, key)).or_insert(version);
        }
        Reply::Ok
    }
}

impl Connection {
    /// EXEC.
    pub(crate) fn exec(&self, state: &mut State) -> Effect {
        let Some(multi) = state.multi.take() else {
            return Effect::Reply(Reply::error("ERR EXEC without MULTI"));
        };
        let watching = std::mem::take(&mut state.watching);
        if multi.is_aborted {
            return Effect::Reply(ABORTED);
        }
        if watching.is_lost {
            return Effect::Reply(Reply::NullArray);
        }
        let tracked = if self.is_tracked(state) { multi.read } else { Vec::new() };
        let (mut data, mut own) = (Vec::new(), Vec::new());
        for (index, queued) in multi.queued.into_iter().enumerate() {
            match queued {
                Queued::Data(payload, channel) => {
                    data.push(payload);
                    own.extend(channel.map(|channel| Own { index, part: Part::Listeners(channel) }));
                }
                Queued::Own(request) => own.push(Own { index, part: Part::Command(request) }),
            }
        }
        if data.is_empty() && watching.keys.is_empty() {
            return match self.do_own(Reply::Array(Vec::new()), own, state) {
                Filling::Reply(reply) => Effect::Reply(reply),
                Filling::Raw(bytes) => Effect::Raw(bytes),
            };
        }
        let watched: Vec<Watched> =
            watching.keys.into_iter().map(|((db, key), version)| Watched { db, key, version }).collect();
        Effect::Submit(transaction(&watched, &data), Exec { own, tracked })
    }

    /// Submits a transaction. What comes behind one that changes the connection waits for it.
    pub(super) fn submit(&self, payload: Bytes, exec: Exec, call: Call, state: &mut State) {
        state.is_blocked = exec.own.iter().any(|own| matches!(own.part, Part::Command(_)));
        let place = state.places.push(Place::Exec(payload.len(), exec), Some(call));
        self.face.engine().write(payload, self.ticket(place));
    }

    /// A transaction was done: adds what the connection has to do itself. Each reply is written in the protocol of its moment (HELLO changes it), and
    /// SUBSCRIBE says several things in one place, as in Redis.
    pub(super) fn do_own(&self, reply: Reply, own: Vec<Own>, state: &mut State) -> Filling {
        let Reply::Array(done) = reply else { return Filling::Reply(reply) };
        if own.is_empty() {
            return Filling::Reply(Reply::Array(done));
        }
        let commands = own.iter().filter(|own| matches!(own.part, Part::Command(_))).count();
        let count = done.len() + commands;
        let (mut done, mut own) = (done.into_iter(), own.into_iter().peekable());
        let bytes_max = self.face.tunable.borrow().output_bytes_max;
        let mut bytes = BytesMut::new();
        Encoder::new(&mut bytes, state.protocol).put_array(count);
        for index in 0..count {
            let replies = match own.next_if(|own| own.index == index).map(|own| own.part) {
                Some(Part::Command(request)) => match self.run_own(&request, state) {
                    _ if bytes.len() > bytes_max => vec![TOO_LARGE],
                    replies => replies,
                },
                Some(Part::Listeners(channel)) => {
                    vec![self.listeners(done.next().unwrap_or(Reply::Null), &channel)]
                }
                None => vec![done.next().unwrap_or(Reply::Null)],
            };
            let mut encoder = Encoder::new(&mut bytes, state.protocol);
            replies.iter().for_each(|reply| reply::put(&mut encoder, reply));
        }
        Filling::Raw(bytes)
    }

    fn run_own(&self, request: &Request, state: &mut State) -> Vec<Reply> {
        let words: Vec<&[u8]> = request.iter().collect();
        let Some((name, args)) = words.split_first() else { return vec![Reply::Null] };
        let Some(own) = commands::lookup(name) else {
            return vec![storage::commands::unknown_command(name, args)];
        };
        if let InMulti::Fails(text) = own.in_multi {
            return vec![Reply::error(text)];
        }
        match (own.handler)(self, state, args) {
            Effect::Reply(reply) => vec![reply],
            Effect::Many(replies) => replies,
            // Commands that do more are not queued.
            _ => vec![Reply::error("ERR Command not allowed inside a transaction")],
        }
    }
}
