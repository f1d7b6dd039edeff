//! One client's connection: requests in, replies out in the same order.
//!
//! Every request gets a *place* in the sequence of replies. A read on the master is answered on the spot; a write, or a read elsewhere, leaves a
//! place that waits for its answer.
//!
//! A connection's requests take effect in the order in which they were sent. So a read behind a write that is still on its way is held back until the
//! write is answered, and a write behind a read that still waits for its permission until the read is. Writes behind writes are not held.
//!
//! A client that does not read its replies is not read from either, and nothing is buffered for it beyond a limit.

use crate::commands::{self, Effect};
use crate::engine::{Answer, Ticket};
use crate::face::Face;
use crate::reply;
use crate::resp::{Encoder, Parser, Protocol, Request};
use bytes::{Buf, Bytes, BytesMut};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use storage::commands::{Args, CommandSpec, Handler, lookup};
use storage::machine::{View, encode_command, encode_command_of};
use storage::reply::Reply;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Requests of one connection that wait for an answer, at most; more are left in the socket.
const PLACES_MAX: usize = 4_096;
/// What is taken from a connection whose command waits, at most.
const BLOCKED_INPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of one connection's writes that are on their way, at most.
const WRITE_BYTES_MAX: usize = 64 << 20;

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
    parser: Parser,
    input: BytesMut,
    output: BytesMut,
    /// The number of the first place.
    first: u64,
    places: VecDeque<Place>,
    /// Writes among the places, and reads that wait for their permission.
    writes: usize,
    reads: usize,
    /// Bytes of those writes.
    write_bytes: usize,
    /// A request that must wait until everything before it is answered. Nothing behind it is looked at.
    held: Option<Request>,
    /// A command that may wait is on its way: nothing behind it is looked at.
    is_blocked: bool,
    is_closing: bool,
}

enum Place {
    /// A write on its way, and its size.
    Write(usize),
    /// An administrative command on its way.
    Admin,
    /// A read that waits for its permission.
    Read(Read),
    /// Answered, but something before it is not.
    Done(Reply),
    /// The same, in bytes.
    Raw(BytesMut),
}

/// A read to be done later: what was asked, of which database.
struct Read {
    db: u8,
    request: Request,
}

impl Read {
    fn run(&self, view: &View<'_>) -> Reply {
        let words: Vec<&[u8]> = self.request.iter().collect();
        let Some((name, args)) = words.split_first() else { return Reply::Null };
        match lookup(name).map(|spec| spec.handler) {
            Some(Handler::Read(read)) => read(view, &Args::new(self.db, args)),
            _ => storage::commands::unknown_command(name, args),
        }
    }
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
            parser: Parser::new(face.settings.limits, is_authenticated),
            input: BytesMut::new(),
            output: BytesMut::new(),
            first: 0,
            places: VecDeque::new(),
            writes: 0,
            reads: 0,
            write_bytes: 0,
            held: None,
            is_blocked: false,
            is_closing: false,
        };
        Connection { id, address, face, state: RefCell::new(state), wake: Notify::new() }
    }

    /// An answer for a place.
    pub fn answer(&self, place: u64, answer: Answer) {
        let mut state = self.state.borrow_mut();
        let Some(index) = place.checked_sub(state.first).and_then(|index| usize::try_from(index).ok()) else {
            return;
        };
        let Some(waiting) = state.places.get_mut(index) else { return };
        let was_read = matches!(waiting, Place::Read(_));
        let write_bytes = if let Place::Write(bytes) = waiting { Some(*bytes) } else { None };
        let reply = match (answer, &*waiting) {
            (Answer::Ran(bytes), _) => Reply::decode(&bytes)
                .unwrap_or_else(|error| Reply::Error(format!("ERR damaged reply: {error:?}").into())),
            (Answer::Reply(reply), _) => reply,
            (Answer::ReadNow, Place::Read(read)) => self.read_allowed(read),
            (Answer::ReadNow, _) => return,
            (Answer::NotDone, _) => Reply::error(
                "CLUSTERDOWN no master took the command in time; it was certainly not done, try again",
            ),
            (Answer::Uncertain, _) => Reply::error(
                "UNCERTAIN no answer in time: the command may or may not have run; check before you repeat it",
            ),
        };
        *waiting = Place::Done(reply);
        state.writes -= usize::from(write_bytes.is_some());
        state.write_bytes -= write_bytes.unwrap_or(0);
        state.reads -= usize::from(was_read);
        state.drain();
        drop(state);
        self.wake.notify_one();
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
                    state.places.push_back(Place::Raw(raw));
                    state.drain();
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
            if !own.arity.allows(args.len()) {
                return self.done(state, own.wrong_arity());
            }
            if !state.is_authenticated && !own.before_auth {
                return self.done(state, Reply::error("NOAUTH Authentication required."));
            }
            if own.alone && !state.places.is_empty() {
                state.held = Some(request);
                return;
            }
            let effect = (own.handler)(self, state, args);
            return self.take_effect(effect, state);
        }
        if !state.is_authenticated {
            return self.done(state, Reply::error("NOAUTH Authentication required."));
        }
        let Some(spec) = lookup(name) else {
            return self.done(state, storage::commands::unknown_command(name, args));
        };
        if !spec.arity.allows(args.len()) {
            return self.done(state, storage::commands::wrong_arity(spec));
        }
        match spec.handler {
            Handler::Read(_) => {
                if state.writes > 0 {
                    state.held = Some(request);
                    return;
                }
                let read = Read { db: state.db, request };
                if state.reads == 0
                    && let Some(done) = self.read_now(&read)
                {
                    return self.done(state, done);
                }
                let ticket = self.ticket(state);
                state.places.push_back(Place::Read(read));
                state.reads += 1;
                self.face.engine.read_later(ticket);
            }
            Handler::Write(_) if state.reads > 0 => state.held = Some(request),
            Handler::Write(_) => {
                state.is_blocked = spec.may_block(args);
                self.replicate(spec, &words, state);
            }
        }
    }

    fn replicate(&self, spec: &CommandSpec, words: &[&[u8]], state: &mut State) {
        let payload = if spec.names_client() {
            encode_command_of(state.db, self.id, self.address.as_bytes(), words)
        } else {
            encode_command(state.db, words)
        };
        let ticket = self.ticket(state);
        state.places.push_back(Place::Write(payload.len()));
        state.writes += 1;
        state.write_bytes += payload.len();
        self.face.engine.write(payload, ticket);
    }

    fn take_effect(&self, effect: Effect, state: &mut State) {
        match effect {
            Effect::Reply(reply) => self.done(state, reply),
            Effect::Close(reply) => {
                self.done(state, reply);
                state.is_closing = true;
            }
            Effect::Admin(words) => {
                let ticket = self.ticket(state);
                state.places.push_back(Place::Admin);
                self.face.engine.admin(words, ticket);
            }
        }
    }

    fn ticket(&self, state: &State) -> Ticket {
        Ticket { connection: self.id, place: state.first + state.places.len() as u64 }
    }

    /// A reply that is there already takes its place in the sequence.
    fn done(&self, state: &mut State, reply: Reply) {
        if state.places.is_empty() {
            state.first += 1;
            state.put(&reply);
        } else {
            state.places.push_back(Place::Done(reply));
        }
    }

    fn read_now(&self, read: &Read) -> Option<Reply> {
        let mut reply = None;
        self.face.engine.read_now(&mut |view| reply = Some(read.run(view)));
        reply
    }

    fn read_allowed(&self, read: &Read) -> Reply {
        let mut reply = Reply::Null;
        self.face.engine.read(&mut |view| reply = read.run(view));
        reply
    }
}

impl State {
    fn put(&mut self, done: &Reply) {
        let mut encoder = Encoder::new(&mut self.output, self.protocol);
        reply::put(&mut encoder, done);
    }

    /// From now on the larger limits hold, or the smaller ones.
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.is_authenticated = is_authenticated;
        self.parser.set_authenticated(is_authenticated);
    }

    /// Moves what is answered to the output, in order.
    fn drain(&mut self) {
        while let Some(Place::Done(_) | Place::Raw(_)) = self.places.front() {
            self.first += 1;
            match self.places.pop_front() {
                Some(Place::Done(done)) => self.put(&done),
                Some(Place::Raw(bytes)) => self.output.extend_from_slice(&bytes),
                _ => {}
            }
        }
    }

    fn is_full(&self, connection: &Connection) -> bool {
        let waits = (self.held.is_some() || self.is_blocked) && !self.places.is_empty();
        waits
            || self.write_bytes >= WRITE_BYTES_MAX
            || self.places.len() >= PLACES_MAX
            || self.output.len() >= connection.face.settings.output_bytes_max
    }
}

/// Serves one client until either side has enough.
pub async fn serve(stream: TcpStream, connection: &Connection) {
    // Without it small replies wait for the client's acknowledgement; a socket that refuses is as good as closed.
    let _ = stream.set_nodelay(true);
    // How it ended is the client's business.
    let _ = serve_until_end(&stream, connection).await;
}

async fn serve_until_end(stream: &TcpStream, connection: &Connection) -> io::Result<()> {
    loop {
        // An error is already in the output.
        let _ = connection.process();
        let (wants_write, wants_read, is_over) = {
            let mut state = connection.state.borrow_mut();
            while !state.output.is_empty() {
                match stream.try_write(&state.output) {
                    Ok(written) => state.output.advance(written),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            let is_over = state.is_closing && state.output.is_empty() && state.places.is_empty();
            // While a command waits, its client is listened to: a wait ends when its client is gone.
            let listens = state.is_blocked && state.input.len() < BLOCKED_INPUT_BYTES_MAX;
            let wants_read = !state.is_closing && (listens || !state.is_full(connection));
            (!state.output.is_empty(), wants_read, is_over)
        };
        if is_over {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = connection.wake.notified() => {}
            ready = stream.writable(), if wants_write => ready?,
            ready = stream.readable(), if wants_read => {
                ready?;
                let mut state = connection.state.borrow_mut();
                let State { parser, input, .. } = &mut *state;
                parser.make_room(input);
                match stream.try_read_buf(input) {
                    Ok(0) => return Ok(()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
