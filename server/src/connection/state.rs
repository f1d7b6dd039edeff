//! What a connection remembers between requests.

use super::places::Places;
use super::{Connection, Multi, PLACES_MAX, REQUEST_BYTES_MAX, TELLS_MAX, Watching};
use crate::pubsub::Subscribed;
use crate::resp::{Parser, Protocol, Request};
use bytes::{Bytes, BytesMut};
use std::time::Instant;
use storage::reply::Reply;

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// The client gets them.
    On,
    /// It gets none.
    Off,
    /// It gets none to the next request.
    SkipNext,
    /// It gets none to this one.
    Skip,
}

/// What a connection remembers.
pub struct State {
    /// The selected database.
    pub db: u8,
    /// RESP2 or RESP3.
    pub protocol: Protocol,
    /// Whether AUTH is done, or not needed.
    pub is_authenticated: bool,
    /// CLIENT SETNAME.
    pub name: Bytes,
    /// CLIENT SETINFO.
    pub library: (Bytes, Bytes),
    /// The transaction that is being queued.
    pub multi: Option<Multi>,
    /// What WATCH remembers.
    pub watching: Watching,
    /// READONLY: reads may be of a bounded age.
    pub is_readonly: bool,
    /// What it listens to.
    pub subscribed: Subscribed,
    /// CLIENT REPLY.
    pub replies: Replies,
    /// Whether it sees every command.
    pub is_monitor: bool,
    /// What CLIENT CACHING said of the next command.
    pub caching: Option<bool>,
    /// The request that is looked at is CLIENT, which leaves that as it is.
    pub(super) is_about_clients: bool,
    /// The last command, and when it came.
    pub last: (&'static str, Instant),
    /// Its subcommand.
    pub last_part: Option<&'static &'static str>,
    pub(super) parser: Parser,
    pub(super) input: BytesMut,
    pub(super) places: Places,
    /// A request that must wait until everything before it is answered. Nothing behind it is looked at.
    pub(super) held: Option<Request>,
    /// A command that may wait, or a transaction that may change the connection, is on its way: nothing behind it is looked at.
    pub(super) is_blocked: bool,
    /// What is held waits for the end of a CLIENT PAUSE; whether it is a write.
    pub(super) paused: Option<bool>,
    pub(super) is_closing: bool,
    /// Requests wait in the input for the node's next turn.
    pub(super) is_out_of_breath: bool,
}

impl State {
    /// At the beginning.
    pub(super) fn new(parser: Parser, is_authenticated: bool, since: Instant) -> State {
        State {
            db: 0,
            protocol: Protocol::Resp2,
            is_authenticated,
            name: Bytes::new(),
            library: (Bytes::new(), Bytes::new()),
            multi: None,
            watching: Watching::default(),
            is_readonly: false,
            subscribed: Subscribed::default(),
            replies: Replies::On,
            is_monitor: false,
            caching: None,
            is_about_clients: false,
            last: ("NULL", since),
            last_part: None,
            parser,
            input: BytesMut::new(),
            places: Places::default(),
            held: None,
            is_blocked: false,
            paused: None,
            is_closing: false,
            is_out_of_breath: false,
        }
    }

    /// From now on the larger limits hold, or the smaller ones.
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.is_authenticated = is_authenticated;
        self.parser.set_authenticated(is_authenticated);
    }

    pub(super) fn done(&mut self, reply: Reply) {
        let protocol = self.protocol;
        self.places.done(reply, protocol);
    }

    /// A request begins.
    pub(super) fn begin(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            other => other,
        };
        self.places.is_silent = !matches!(self.replies, Replies::On | Replies::SkipNext);
    }

    /// CLIENT REPLY.
    pub fn set_replies(&mut self, replies: Replies) {
        self.replies = replies;
        self.places.is_silent = replies == Replies::Off;
    }

    /// Whether it listens and speaks RESP2, where replies could be taken for messages.
    pub fn is_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscribed.count() > 0
    }

    /// Bytes that wait: from the client, in requests on their way, for the client.
    pub fn bytes(&self) -> (usize, usize, usize) {
        (self.input.len(), self.places.request_bytes(), self.places.reply_bytes())
    }

    /// Whether another reply may be made for the client.
    pub(super) fn has_room(&self, connection: &Connection) -> bool {
        self.places.reply_bytes() < connection.face.tunable.borrow().output_bytes_max
    }

    /// The next read that may be done now: there is room for what it finds, or it stands in front of all that takes the room and can leave only behind it.
    pub(super) fn next_read(&mut self, connection: &Connection) -> Option<u64> {
        let place = self.places.next_allowed()?;
        let is_first = self.places.is_first(place);
        let bytes = if is_first { self.places.output.len() } else { self.places.reply_bytes() };
        (bytes < connection.face.tunable.borrow().output_bytes_max).then_some(place)
    }

    /// Whether a write whose reply may be large has to wait for such replies that are on their way. They are taken to be as large as the last one.
    pub(super) fn must_hear_first(&self, connection: &Connection) -> bool {
        let (count, bytes) = self.places.tells();
        let expected = bytes.saturating_mul(count + 1).saturating_add(self.places.reply_bytes());
        count >= TELLS_MAX || (count > 0 && expected > connection.face.tunable.borrow().output_bytes_max)
    }

    /// Whether a command of it waits for its reply.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked && !self.places.is_empty()
    }

    pub(super) fn is_full(&self, connection: &Connection) -> bool {
        let waits = (self.held.is_some() || self.is_blocked) && !self.places.is_empty();
        waits
            || self.paused.is_some_and(|is_write| connection.face.is_paused(is_write))
            || self.places.request_bytes() >= REQUEST_BYTES_MAX
            || self.places.len() >= PLACES_MAX
            || !self.has_room(connection)
    }
}
