//! One client's connection: requests in, replies out in the same order.
//!
//! Every request gets a *place* in the sequence of replies ([`places`]). A read on the master is answered on the spot; a write, or a read
//! elsewhere, leaves a place that waits for its answer.
//!
//! A connection's requests take effect in the order in which they were sent. So a read behind a write that is still on its way is held back until the
//! write is answered, and a write behind a read that still waits for its permission until the read is. Writes behind writes are not held.

mod multi;
mod places;
mod serve;

pub use multi::{Multi, Watching};
pub use places::{Own, Read};
pub use serve::serve;

use crate::commands::{self, Behind, Effect, InMulti, OwnCommand};
use crate::engine::{Answer, Ticket};
use crate::face::Face;
use crate::resp::{Parser, Protocol, Request};
use bytes::{Bytes, BytesMut};
use places::{Finding, Place, Places};
use std::cell::RefCell;
use std::rc::Rc;
use storage::commands::{CommandSpec, Handler, lookup};
use storage::machine::{encode_command, encode_command_of};
use storage::reply::Reply;
use tokio::sync::Notify;

/// Requests of one connection that wait for an answer, at most; more are left in the socket.
const PLACES_MAX: usize = 4_096;
/// What is taken from a connection whose command waits, at most.
const BLOCKED_INPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of one connection's writes that are on their way, at most.
const WRITE_BYTES_MAX: usize = 64 << 20;

const NO_AUTH: Reply = Reply::error("NOAUTH Authentication required.");

/// A connection.
pub struct Connection {
    /// Its number, as CLIENT ID tells.
    pub id: u64,
    /// Where the client is.
    pub address: String,
    /// All connections.
    pub face: Rc<Face>,
    state: RefCell<State>,
    wake: Notify,
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
    parser: Parser,
    input: BytesMut,
    places: Places,
    /// A request that must wait until everything before it is answered. Nothing behind it is looked at.
    held: Option<Request>,
    /// A command that may wait, or a transaction that may change the connection, is on its way: nothing behind it is looked at.
    is_blocked: bool,
    is_closing: bool,
}

impl Connection {
    /// A new connection.
    #[must_use]
    pub fn new(id: u64, address: String, face: Rc<Face>) -> Connection {
        let is_authenticated = face.settings.password.is_none();
        let state = State {
            db: 0,
            protocol: Protocol::Resp2,
            is_authenticated,
            name: Bytes::new(),
            library: (Bytes::new(), Bytes::new()),
            multi: None,
            watching: Watching::default(),
            parser: Parser::new(face.settings.limits, is_authenticated),
            input: BytesMut::new(),
            places: Places::default(),
            held: None,
            is_blocked: false,
            is_closing: false,
        };
        Connection { id, address, face, state: RefCell::new(state), wake: Notify::new() }
    }

    /// An answer for a place.
    pub fn answer(&self, place: u64, answer: Answer) {
        let mut state = self.state.borrow_mut();
        let Some(waiting) = state.places.take(place) else { return };
        let reply = match (answer, waiting) {
            (Answer::Ran(bytes), waiting) => {
                let reply = Reply::decode(&bytes)
                    .unwrap_or_else(|error| Reply::Error(format!("ERR damaged reply: {error:?}").into()));
                match waiting {
                    Place::Exec(_, own) => self.do_own(reply, own, &mut state),
                    _ => reply,
                }
            }
            (Answer::Reply(reply), _) => reply,
            (Answer::ReadNow, Place::Read(read)) => {
                let mut finding = Finding::Reply(Reply::Null);
                self.face.engine.read(&mut |view| finding = read.run(view));
                self.found(finding, &mut state)
            }
            (Answer::ReadNow, _) => Reply::error("ERR a write was answered as a read"),
            (answer @ (Answer::NotDone | Answer::Uncertain), waiting) => {
                if matches!(waiting, Place::Read(Read::Watch(..))) {
                    state.watching.lose();
                }
                Reply::error(if answer == Answer::NotDone {
                    "CLUSTERDOWN no master took the command in time; it was certainly not done, try again"
                } else {
                    "UNCERTAIN no answer in time: the command may or may not have run; check before you repeat it"
                })
            }
        };
        let protocol = state.protocol;
        state.places.fill(place, reply, protocol);
        drop(state);
        self.wake.notify_one();
    }

    /// Takes no more requests, and closes once the replies are sent.
    pub fn close(&self) {
        self.state.borrow_mut().is_closing = true;
        self.wake.notify_one();
    }

    /// Says something that was not asked for, to a client whose protocol has room for it. It comes between replies, never inside one.
    pub fn push(&self, message: Vec<Reply>) {
        let mut state = self.state.borrow_mut();
        if state.protocol == Protocol::Resp3 && !state.is_closing {
            state.places.push_out(&Reply::Push(message));
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Takes every whole request out of the input.
    fn process(&self) -> Result<(), ()> {
        loop {
            let mut state = self.state.borrow_mut();
            if state.is_closing || state.is_full(self) {
                return Ok(());
            }
            state.is_blocked = false;
            if let Some(request) = state.held.take() {
                self.execute(request, &mut state);
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
            self.face.commands.set(self.face.commands.get() + 1);
            self.execute(request, &mut state);
        }
    }

    fn execute(&self, request: Request, state: &mut State) {
        let words: Vec<&[u8]> = request.iter().collect();
        let Some((name, args)) = words.split_first() else { return };
        if let Some(own) = commands::lookup(name) {
            return self.execute_own(own, &request, args, state);
        }
        let Some(spec) = lookup(name) else {
            return state.refuse(storage::commands::unknown_command(name, args));
        };
        if !spec.arity.allows(args.len()) {
            return state.refuse(storage::commands::wrong_arity(spec));
        }
        if !state.is_authenticated {
            return state.refuse(NO_AUTH);
        }
        if let Some(multi) = &mut state.multi {
            let db = multi.db;
            let payload = || self.encode(spec, db, &words);
            let reply = multi.push_data(payload, &words, self.face.settings.limits.request_bytes_max);
            return state.done(reply);
        }
        self.execute_data(spec, request, state);
    }

    /// A command about the connection or the node.
    fn execute_own(&self, own: &OwnCommand, request: &Request, args: &[&[u8]], state: &mut State) {
        if !own.arity.allows(args.len()) {
            if own.in_multi == InMulti::Ends {
                // Redis says so also when there is no transaction to discard.
                state.multi = None;
                state.watching.clear();
                return state.done(own.wrong_arity_ends());
            }
            return state.refuse(own.wrong_arity());
        }
        if !state.is_authenticated && !own.before_auth {
            return state.refuse(NO_AUTH);
        }
        if state.multi.is_some() {
            match own.in_multi {
                InMulti::Runs | InMulti::Ends => {}
                InMulti::Refused => {
                    return state.refuse(Reply::error("ERR Command not allowed inside a transaction"));
                }
                InMulti::Queued => return self.queue_own(own, request, args, state),
            }
        }
        let waits = match own.behind {
            Behind::Nothing => false,
            Behind::Reads => state.places.has_reads(),
            Behind::Writes => state.places.has_writes(),
            Behind::Everything => !state.places.is_empty(),
        };
        if waits {
            state.held = Some(request.clone());
            return;
        }
        let effect = (own.handler)(self, state, args);
        self.take_effect(effect, state);
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
    fn execute_data(&self, spec: &CommandSpec, request: Request, state: &mut State) {
        match spec.handler {
            Handler::Read(_) if state.places.has_writes() => state.held = Some(request),
            Handler::Read(_) => self.read(Read::Command(state.db, request), state),
            Handler::Write(_) if state.places.has_reads() => state.held = Some(request),
            Handler::Write(_) => {
                let words: Vec<&[u8]> = request.iter().collect();
                state.is_blocked = spec.may_block(words.get(1..).unwrap_or_default());
                let payload = self.encode(spec, state.db, &words);
                let place = state.places.push(Place::Write(payload.len()));
                self.face.engine.write(payload, self.ticket(place));
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

    /// Reads at once if that is allowed here, else as soon as it is.
    fn read(&self, read: Read, state: &mut State) {
        if !state.places.has_reads() {
            let mut finding = None;
            self.face.engine.read_now(&mut |view| finding = Some(read.run(view)));
            if let Some(finding) = finding {
                let reply = self.found(finding, state);
                return state.done(reply);
            }
        }
        let place = state.places.push(Place::Read(read));
        self.face.engine.read_later(self.ticket(place));
    }

    fn found(&self, finding: Finding, state: &mut State) -> Reply {
        match finding {
            Finding::Reply(reply) => reply,
            Finding::Watched(watched) => {
                state.watching.add(watched, self.face.settings.limits.request_bytes_max)
            }
        }
    }

    fn take_effect(&self, effect: Effect, state: &mut State) {
        match effect {
            Effect::Reply(reply) => state.done(reply),
            Effect::Close(reply) => {
                state.done(reply);
                state.is_closing = true;
            }
            Effect::Admin(words) => {
                let place = state.places.push(Place::Admin);
                self.face.engine.admin(words, self.ticket(place));
            }
            Effect::Read(read) => self.read(read, state),
            Effect::Submit(payload, own) => self.submit(payload, own, state),
        }
    }

    fn ticket(&self, place: u64) -> Ticket {
        Ticket { connection: self.id, place }
    }
}

impl State {
    /// From now on the larger limits hold, or the smaller ones.
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.is_authenticated = is_authenticated;
        self.parser.set_authenticated(is_authenticated);
    }

    fn done(&mut self, reply: Reply) {
        let protocol = self.protocol;
        self.places.done(reply, protocol);
    }

    /// A request that is wrong before it could run: a transaction with it in it is not done.
    fn refuse(&mut self, error: Reply) {
        if let Some(multi) = &mut self.multi {
            multi.abort();
        }
        self.done(error);
    }

    fn is_full(&self, connection: &Connection) -> bool {
        let waits = (self.held.is_some() || self.is_blocked) && !self.places.is_empty();
        waits
            || self.places.write_bytes() >= WRITE_BYTES_MAX
            || self.places.len() >= PLACES_MAX
            || self.places.output.len() >= connection.face.settings.output_bytes_max
    }
}
