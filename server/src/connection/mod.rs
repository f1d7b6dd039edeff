//! One client's connection: requests in, replies out in the same order.
//!
//! Every request gets a *place* in the sequence of replies ([`places`]). A read on the master is answered on the spot; a write, or a read
//! elsewhere, leaves a place that waits for its answer.
//!
//! A connection's requests take effect in the order in which they were sent. So a read behind a write that is still on its way rides along with it, or is held back until the
//! write is answered, and a write behind a read that still waits for its permission until the read is. Writes behind writes are not held, unless many of
//! them may have large replies.
//!
//! A client that does not read costs little more than the limit of its output: reads are done only while there is room for what they find, and nothing more
//! is taken from it meanwhile.
//!
//! Parts: `state` what it remembers · `places` the sequence of replies · `reads` · `multi` transactions · `pushes` what the client did not ask
//! for · `answers` what comes back · `serve` its bytes, in and out. Here: requests.

mod answers;
mod multi;
mod places;
mod pushes;
mod reads;
mod serve;
mod state;

pub use multi::{Multi, Watching};
pub use places::{Exec, Read};
pub use serve::serve;
pub use state::{Replies, State};

use crate::breath::Standing;
use crate::commands::{self, Behind, Effect, InMulti, OwnCommand, Paused};
use crate::engine::Ticket;
use crate::face::Face;
use crate::resp::{Parser, Request};
use crate::stats::Sender;
use bytes::{Bytes, BytesMut};
use places::{Call, Place};
use pushes::Old;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Instant;
use storage::commands::{CommandSpec, Handler, lookup};
use storage::machine::{encode_command, encode_command_of};
use storage::reply::Reply;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

/// Requests of one connection that wait for an answer, at most; more are left in the socket.
const PLACES_MAX: usize = 4_096;
/// What is taken from a connection whose command waits, at most.
const BLOCKED_INPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of one connection's requests that are on their way, at most.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Writes of one connection on their way whose replies may be large, at most: nobody knows how large before they are there, on every node.
const TELLS_MAX: usize = 32;

const NO_AUTH: Reply = Reply::error("NOAUTH Authentication required.");

fn only_subscriber(name: &str) -> Reply {
    let name = name.to_ascii_lowercase();
    Reply::Error(
        format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        )
        .into(),
    )
}

/// Whether this begins a line of HTTP: a web page can make its reader's browser send commands in the body of a form.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"HOST:")
}

/// The channel whose listeners are the reply.
fn channel_of(spec: &CommandSpec, words: &[&[u8]]) -> Option<Bytes> {
    words.get(1).filter(|_| spec.publishes()).map(|channel| Bytes::copy_from_slice(channel))
}

/// A connection.
pub struct Connection {
    /// Its number, as CLIENT ID tells.
    pub id: u64,
    /// Where the client is.
    pub address: String,
    /// Where it connected to.
    pub local: String,
    /// All connections.
    pub face: Rc<Face>,
    /// Since when it is there.
    pub since: Instant,
    state: RefCell<State>,
    /// What the client did not ask for, on its way to the output. Apart from the state, so that anybody can push at any time.
    pushed: RefCell<VecDeque<Reply>>,
    /// The same for notices that copies are old, with their sizes.
    old: RefCell<VecDeque<(Old, usize)>>,
    pushed_bytes: Cell<usize>,
    is_killed: Cell<bool>,
    wake: Notify,
    /// Where replies go, while there is a client.
    writer: RefCell<Weak<OwnedWriteHalf>>,
    /// The connection's task has done everything, and waits for the next request.
    is_resting: Cell<bool>,
    /// Among those whose requests wait for the node's next turn.
    pub(crate) standing: Cell<Standing>,
    /// Replies of this turn wait for its end.
    pub(crate) is_answered: Cell<bool>,
}

impl Connection {
    /// A new connection.
    #[must_use]
    pub fn new(id: u64, address: String, local: String, face: Rc<Face>) -> Connection {
        let is_authenticated = face.tunable.borrow().password.is_none();
        let since = Instant::now();
        let state = State::new(Parser::new(face.settings.limits, is_authenticated), is_authenticated, since);
        Connection {
            id,
            address,
            local,
            face,
            since,
            state: RefCell::new(state),
            pushed: RefCell::default(),
            old: RefCell::default(),
            pushed_bytes: Cell::new(0),
            is_killed: Cell::new(false),
            wake: Notify::new(),
            writer: RefCell::default(),
            is_resting: Cell::new(false),
            standing: Cell::default(),
            is_answered: Cell::new(false),
        }
    }

    /// Looks at what another connection remembers. Nothing if it is at work this very moment.
    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> Option<T> {
        self.state.try_borrow().ok().map(|state| look(&state))
    }

    /// Closes the connection, whatever it does.
    pub fn kill(&self) {
        self.is_killed.set(true);
        self.wake();
    }

    /// Lets it look whether there is something to do.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// The connection is gone: nobody publishes to it any more.
    pub fn unsubscribe(&self) {
        let mut state = self.state.borrow_mut();
        self.face.subscribe(|all| all.remove_all(self.id, &mut state.subscribed));
        self.face.stop_tracking(self.id);
    }

    /// A command has its reply, as of the last look at the clock.
    fn count(&self, call: &Call, reply: &Reply, state: &State) {
        let took = self.face.now().saturating_duration_since(call.since);
        let error = if let Reply::Error(text) = reply { Some(&text[..]) } else { None };
        let mut stats = self.face.stats.borrow_mut();
        stats.ran(call.name, took, error);
        let Some(request) = &call.request else { return };
        let tunable = self.face.tunable.borrow();
        let is_slow = u128::try_from(tunable.slower_than_us).is_ok_and(|limit| took.as_micros() >= limit);
        if is_slow {
            let sender = Sender { address: &self.address, name: &state.name };
            stats.slow(request.iter(), took, &sender, tunable.slow_max);
        }
        if tunable.latency_ms > 0 && took.as_millis() >= u128::from(tunable.latency_ms) {
            stats.late(took);
        }
    }

    /// Takes no more requests, and closes once the replies are sent.
    pub fn close(&self) {
        self.state.borrow_mut().is_closing = true;
        self.wake.notify_one();
    }

    /// Takes every whole request out of the input.
    fn process(&self) -> Result<(), ()> {
        self.face.look_at_clock();
        self.face.engine().begin_requests();
        let outcome = self.take_requests();
        self.face.engine().end_requests();
        self.face.is_done(self);
        outcome
    }

    fn take_requests(&self) -> Result<(), ()> {
        loop {
            let mut state = self.state.borrow_mut();
            self.take_pushed(&mut state);
            self.read_allowed(&mut state);
            state.is_out_of_breath = false;
            if state.is_closing || state.is_full(self) {
                return Ok(());
            }
            state.is_out_of_breath =
                (state.held.is_some() || !state.input.is_empty()) && !self.face.take_breath(self);
            if state.is_out_of_breath {
                return Ok(());
            }
            state.is_blocked = false;
            state.paused = None;
            if let Some(request) = state.held.take() {
                self.execute_one(request, &mut state);
                continue;
            }
            let State { parser, input, .. } = &mut *state;
            let request = match parser.next(input) {
                Ok(Some(request)) => request,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let mut raw = BytesMut::new();
                    error.put(&mut raw);
                    let protocol = state.protocol;
                    state.places.raw(raw, protocol);
                    state.is_closing = true;
                    return Err(());
                }
            };
            self.face.stats.borrow_mut().processed += 1;
            state.begin();
            self.execute_one(request, &mut state);
        }
    }

    /// What CLIENT CACHING said holds for the next command, or for all of a transaction.
    fn execute_one(&self, request: Request, state: &mut State) {
        self.execute(request, state);
        if state.held.is_none() && state.multi.is_none() && !state.is_about_clients {
            state.caching = None;
        }
    }

    /// Whether what is read now is remembered for a client that caches.
    fn is_tracked(&self, state: &State) -> bool {
        self.face.tracking.borrow().counts_read(self.id, state.caching.is_some())
    }

    fn execute(&self, request: Request, state: &mut State) {
        let words: Vec<&[u8]> = request.iter().collect();
        let Some((name, args)) = words.split_first() else { return };
        if is_http(name) {
            self.face.warn_of_attack(&self.address);
            state.is_closing = true;
            return self.kill();
        }
        if let Some(own) = commands::lookup(name) {
            state.last = (own.name, self.face.now());
            state.last_part =
                own.parts.iter().find(|part| args.first().is_some_and(|arg| commands::is(arg, part)));
            state.is_about_clients = own.keeps_caching;
            return self.execute_own(own, &request, args, state);
        }
        let Some(spec) = lookup(name) else {
            return self.refuse(None, storage::commands::unknown_command(name, args), state);
        };
        state.last = (spec.name, self.face.now());
        state.last_part = None;
        state.is_about_clients = false;
        if !spec.arity.allows(args.len()) {
            return self.refuse(Some(spec.name), storage::commands::wrong_arity(spec), state);
        }
        if !state.is_authenticated {
            return self.refuse(Some(spec.name), NO_AUTH, state);
        }
        if state.is_subscriber() {
            return self.refuse(Some(spec.name), only_subscriber(spec.name), state);
        }
        if state.is_monitor {
            // A monitor is a kind of replica in Redis.
            let error = Reply::error("ERR Replica can't interact with the keyspace");
            return self.refuse(Some(spec.name), error, state);
        }
        if self.face.is_paused(spec.is_write()) {
            state.paused = Some(spec.is_write());
            state.held = Some(request);
            return;
        }
        if let Some(multi) = &mut state.multi {
            let db = multi.db;
            let payload = || self.encode(spec, db, &words);
            let channel = channel_of(spec, &words);
            if !self.face.tracking.borrow().is_idle() {
                multi.track(reads::keys_read(&request));
            }
            let reply = multi.push_data(payload, channel, self.face.settings.limits.request_bytes_max);
            return state.done(reply);
        }
        self.execute_data(spec, request, state);
    }

    /// A request that is wrong before it could run: a transaction with it in it is not done.
    fn refuse(&self, name: Option<&'static str>, error: Reply, state: &mut State) {
        if let Reply::Error(text) = &error {
            self.face.stats.borrow_mut().rejected(name, text);
        }
        if let Some(multi) = &mut state.multi {
            multi.abort();
        }
        state.done(error);
    }

    /// The same for a command of the connection. EXEC drops the transaction and says why, as in Redis also when there is none.
    fn refuse_own(&self, own: &OwnCommand, error: Reply, state: &mut State) {
        let error = match error {
            Reply::Error(text) if own.in_multi == InMulti::Ends => {
                state.multi = None;
                state.watching.clear();
                let why = String::from_utf8_lossy(text.strip_prefix(b"ERR ").unwrap_or(&text)).into_owned();
                Reply::Error(format!("EXECABORT Transaction discarded because of: {why}").into())
            }
            error => error,
        };
        self.refuse(Some(own.name), error, state);
    }

    /// A command about the connection or the node.
    fn execute_own(&self, own: &'static OwnCommand, request: &Request, args: &[&[u8]], state: &mut State) {
        if !own.arity.allows(args.len()) {
            return self.refuse_own(own, own.wrong_arity(), state);
        }
        if !state.is_authenticated && !own.before_auth {
            return self.refuse_own(own, NO_AUTH, state);
        }
        if state.is_subscriber() && !own.while_subscribed {
            return self.refuse_own(own, only_subscriber(own.name), state);
        }
        if own.paused != Paused::Never && self.face.is_paused(own.paused == Paused::AsWrite) {
            state.paused = Some(own.paused == Paused::AsWrite);
            state.held = Some(request.clone());
            return;
        }
        if state.multi.is_some() {
            match own.in_multi {
                InMulti::Runs | InMulti::Ends => {}
                InMulti::Refused => {
                    let error = Reply::error("ERR Command not allowed inside a transaction");
                    return self.refuse(Some(own.name), error, state);
                }
                InMulti::Queued | InMulti::Fails(_) => return self.queue_own(own, request, args, state),
            }
        }
        let waits = match own.behind {
            Behind::Nothing => false,
            Behind::Reads => state.places.has_reads(),
            Behind::Writes => state.places.has_writes(),
            Behind::Everything => !state.places.is_empty(),
        };
        if waits || (own.tells && state.must_hear_first(self)) {
            state.held = Some(request.clone());
            return;
        }
        let shown = Some(request.clone()).filter(|_| !own.is_secret);
        let call = Call { name: own.name, since: state.last.1, channel: None, request: shown };
        let effect = (own.handler)(self, state, args);
        // Behind it, as in Redis: RESET of a monitor is not shown to itself, SELECT shows the database that it chose.
        if !own.is_secret {
            self.face.show(state.db, &self.address, request.iter());
        }
        self.take_effect(effect, call, state);
    }

    fn queue_own(&self, own: &OwnCommand, request: &Request, args: &[&[u8]], state: &mut State) {
        let bytes_max = self.face.settings.limits.request_bytes_max;
        let Some(multi) = &mut state.multi else { return };
        if let Some(db) = own.selects.and_then(|selects| selects(args)) {
            multi.db = db;
        }
        let reply = multi.push_own(request.clone(), bytes_max);
        state.done(reply);
    }

    /// A command about data.
    fn execute_data(&self, spec: &'static CommandSpec, request: Request, state: &mut State) {
        let call = Call { name: spec.name, since: state.last.1, channel: None, request: None };
        match spec.handler {
            Handler::Read(_) if state.places.has_writes() => {
                if let Err(request) = self.read_behind(spec, request, call, state) {
                    state.held = Some(request);
                }
            }
            Handler::Read(_) => {
                self.face.show(state.db, &self.address, request.iter());
                let call = Call { request: Some(request.clone()), ..call };
                let is_tracked = self.is_tracked(state);
                self.read(Read::Command { db: state.db, request, is_tracked }, call, state);
            }
            Handler::Write(_) if state.places.has_reads() => state.held = Some(request),
            Handler::Write(_) => {
                let words: Vec<&[u8]> = request.iter().collect();
                let args = words.get(1..).unwrap_or_default();
                let tells = spec.tells(args);
                if tells && state.must_hear_first(self) {
                    state.held = Some(request);
                    return;
                }
                self.face.show(state.db, &self.address, request.iter());
                state.is_blocked = spec.may_block(args);
                let payload = self.encode(spec, state.db, &words);
                let channel = channel_of(spec, &words);
                let tracked = if self.is_tracked(state) { reads::keys_read(&request) } else { Vec::new() };
                let request = Some(request).filter(|_| !state.is_blocked);
                let call = Call { channel, request, ..call };
                let place =
                    state.places.push(Place::Write { bytes: payload.len(), tells, tracked }, Some(call));
                self.face.engine().write(payload, self.ticket(place));
            }
        }
    }

    /// A command as it is replicated.
    fn encode(&self, spec: &CommandSpec, db: u8, words: &[&[u8]]) -> Bytes {
        if spec.names_client() {
            encode_command_of(db, self.id, self.address.as_bytes(), words)
        } else {
            encode_command(db, words)
        }
    }

    fn take_effect(&self, effect: Effect, call: Call, state: &mut State) {
        self.face.look_at_clock();
        match effect {
            Effect::Reply(reply) => {
                self.count(&call, &reply, state);
                state.done(reply);
            }
            Effect::Many(replies) => {
                self.count(&call, &Reply::Ok, state);
                replies.into_iter().for_each(|reply| state.done(reply));
            }
            Effect::Raw(bytes) => {
                self.count(&call, &Reply::Ok, state);
                let protocol = state.protocol;
                state.places.raw(bytes, protocol);
            }
            Effect::Silence => self.count(&call, &Reply::Ok, state),
            Effect::Close(reply) => {
                state.done(reply);
                state.is_closing = true;
            }
            Effect::Admin(words) => {
                let place = state.places.push(Place::Admin, Some(call));
                self.face.engine().admin(words, self.ticket(place));
            }
            Effect::Read(read) => self.read(read, call, state),
            Effect::Submit(payload, exec) => self.submit(payload, exec, call, state),
        }
    }

    fn ticket(&self, place: u64) -> Ticket {
        Ticket { connection: self.id, place }
    }
}
