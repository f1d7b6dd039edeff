//! The sequence of replies of one connection: a place for every request that is taken and not yet answered.

use crate::reply;
use crate::resp::{Encoder, Protocol, Request};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::time::Instant;
use storage::commands::{Args, Handler, Watched, lookup};
use storage::machine::View;
use storage::reply::Reply;

/// A place in the sequence.
pub enum Place {
    /// A write on its way, and its size.
    Write(usize),
    /// A transaction on its way, its size, and what of it the connection does itself.
    Exec(usize, Exec),
    /// An administrative command on its way.
    Admin,
    /// A read that waits for its permission.
    Read(Read),
    /// Answered, but something before it is not.
    Done(Reply),
    /// The same, in bytes.
    Raw(BytesMut),
}

/// What the connection itself has to do with a transaction.
pub struct Exec {
    /// What it adds to the replies.
    pub own: Vec<Own>,
    /// Keys that were read, for a client that caches.
    pub tracked: Vec<Bytes>,
}

/// What comes into a place.
pub enum Filling {
    /// A reply.
    Reply(Reply),
    /// One that is written out already.
    Raw(BytesMut),
}

/// What the connection itself adds to a transaction's replies.
pub struct Own {
    /// The position among them.
    pub index: usize,
    /// What.
    pub part: Part,
}

/// See [`Own`].
pub enum Part {
    /// The reply of a command of its own.
    Command(Request),
    /// The number of this node's listeners to a channel, in place of the reply that is there.
    Listeners(Bytes),
}

/// A read to be done when it is allowed.
pub enum Read {
    /// A command of the table.
    Command {
        /// The database.
        db: u8,
        /// The command.
        request: Request,
        /// Whether the client may keep what it reads.
        is_tracked: bool,
    },
    /// WATCH: the versions of these keys.
    Watch(u8, Vec<Bytes>),
}

/// What a read found.
pub enum Finding {
    /// A reply.
    Reply(Reply),
    /// The keys that are watched from now on.
    Watched(Vec<Watched>),
    /// A key's time has passed by the clock, and not yet by the log.
    Due,
}

impl Read {
    /// Does it.
    pub fn run(&self, view: &View<'_>) -> Finding {
        let finding = match self {
            Read::Command { db, request, .. } => Finding::Reply(run_command(*db, request, view)),
            Read::Watch(db, keys) => {
                let watched =
                    |key: &Bytes| Watched { db: *db, key: key.clone(), version: view.version(*db, key) };
                Finding::Watched(keys.iter().map(watched).collect())
            }
        };
        match view.check() {
            Ok(()) => finding,
            Err(error) => Finding::Reply(Reply::Error(format!("ERR the store failed: {error}").into())),
        }
    }
}

fn run_command(db: u8, request: &Request, view: &View<'_>) -> Reply {
    let words: Vec<&[u8]> = request.iter().collect();
    let Some((name, args)) = words.split_first() else { return Reply::Null };
    match lookup(name).map(|spec| spec.handler) {
        Some(Handler::Read(read)) => read(view, &Args::new(db, args)),
        _ => storage::commands::unknown_command(name, args),
    }
}

/// What is remembered about a request until it is answered.
pub struct Call {
    /// The command's name in the table.
    pub name: &'static str,
    /// When it was taken.
    pub since: Instant,
    /// The channel whose listeners are to be counted.
    pub channel: Option<Bytes>,
    /// What was asked; nothing for commands that may wait long by their nature.
    pub request: Option<Request>,
}

struct Entry {
    place: Place,
    call: Option<Call>,
    /// CLIENT REPLY OFF or SKIP: the client wants no reply.
    is_silent: bool,
    /// What was pushed when this was the last answered place.
    behind: BytesMut,
}

/// The places, and the output that those in front have become.
#[derive(Default)]
pub struct Places {
    /// The number of the first place.
    first: u64,
    queue: VecDeque<Entry>,
    /// Writes among the places, and reads that wait for their permission.
    writes: usize,
    reads: usize,
    /// Those that are answered.
    done: usize,
    /// Bytes of those writes.
    write_bytes: usize,
    /// Bytes for the client.
    pub output: BytesMut,
    /// Whether the client wants no reply to what comes now.
    pub is_silent: bool,
}

impl Places {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether everything is answered.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a write is on its way.
    pub fn has_writes(&self) -> bool {
        self.writes > 0
    }

    /// Whether a read waits for its permission.
    pub fn has_reads(&self) -> bool {
        self.reads > 0
    }

    /// Bytes of the writes on their way.
    pub fn write_bytes(&self) -> usize {
        self.write_bytes
    }

    /// A place at the end; the result names it.
    pub fn push(&mut self, place: Place, call: Option<Call>) -> u64 {
        match &place {
            Place::Write(bytes) | Place::Exec(bytes, _) => {
                self.writes += 1;
                self.write_bytes += bytes;
            }
            Place::Read(_) => self.reads += 1,
            Place::Admin => {}
            Place::Done(_) | Place::Raw(_) => self.done += 1,
        }
        self.queue.push_back(Entry { place, call, is_silent: self.is_silent, behind: BytesMut::new() });
        self.first + self.queue.len() as u64 - 1
    }

    /// Takes out what waits at a place, to be answered with [`Places::fill`]. Nothing if it is answered already.
    pub fn take(&mut self, place: u64) -> Option<(Place, Option<Call>)> {
        let index = usize::try_from(place.checked_sub(self.first)?).ok()?;
        let waiting = self.queue.get_mut(index)?;
        if matches!(waiting.place, Place::Done(_) | Place::Raw(_)) {
            return None;
        }
        let taken = std::mem::replace(&mut waiting.place, Place::Admin);
        let call = waiting.call.take();
        match &taken {
            Place::Write(bytes) | Place::Exec(bytes, _) => {
                self.writes -= 1;
                self.write_bytes -= bytes;
            }
            Place::Read(_) => self.reads -= 1,
            Place::Admin | Place::Done(_) | Place::Raw(_) => {}
        }
        Some((taken, call))
    }

    /// Lets a read that was taken wait again.
    pub fn put_back(&mut self, place: u64, read: Place, call: Option<Call>) {
        let index = place.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(waiting) = index.and_then(|index| self.queue.get_mut(index)) {
            self.reads += usize::from(matches!(read, Place::Read(_)));
            (waiting.place, waiting.call) = (read, call);
        }
    }

    /// Answers a place that was taken.
    pub fn fill(&mut self, place: u64, filling: Filling, protocol: Protocol) {
        let index = place.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(waiting) = index.and_then(|index| self.queue.get_mut(index)) {
            waiting.place = match filling {
                Filling::Reply(reply) => Place::Done(reply),
                Filling::Raw(bytes) => Place::Raw(bytes),
            };
            self.done += 1;
        }
        self.drain(protocol);
    }

    /// A reply that is there already takes its place in the sequence.
    pub fn done(&mut self, reply: Reply, protocol: Protocol) {
        if self.queue.is_empty() {
            self.first += 1;
            if !self.is_silent {
                self.put(&reply, protocol);
            }
        } else {
            self.push(Place::Done(reply), None);
        }
    }

    /// The same for bytes.
    pub fn raw(&mut self, bytes: BytesMut, protocol: Protocol) {
        self.push(Place::Raw(bytes), None);
        self.drain(protocol);
    }

    /// Appends a reply to the output.
    pub fn put(&mut self, done: &Reply, protocol: Protocol) {
        let mut encoder = Encoder::new(&mut self.output, protocol);
        reply::put(&mut encoder, done);
    }

    /// Appends what the client did not ask for, behind every reply that is there.
    pub fn put_pushed(&mut self, pushed: &Reply, protocol: Protocol) {
        let is_done = |entry: &&mut Entry| matches!(entry.place, Place::Done(_) | Place::Raw(_));
        let last = if self.done == 0 { None } else { self.queue.iter_mut().rev().find(is_done) };
        let output = last.map_or(&mut self.output, |entry| &mut entry.behind);
        reply::put(&mut Encoder::new(output, protocol), pushed);
    }

    /// Moves what is answered to the output, in order.
    fn drain(&mut self, protocol: Protocol) {
        while let Some(Place::Done(_) | Place::Raw(_)) = self.queue.front().map(|entry| &entry.place) {
            self.first += 1;
            self.done = self.done.saturating_sub(1);
            let Some(Entry { place, is_silent, behind, .. }) = self.queue.pop_front() else { return };
            match place {
                _ if is_silent => {}
                Place::Done(done) => self.put(&done, protocol),
                Place::Raw(bytes) => self.output.extend_from_slice(&bytes),
                _ => {}
            }
            self.output.extend_from_slice(&behind);
        }
    }
}
