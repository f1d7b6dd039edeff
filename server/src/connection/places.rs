//! The sequence of replies of one connection: a place for every request that is taken and not yet answered.
//!
//! * P1: reads are done in the order of their places. One that is allowed waits for those before it, and for room in the output.
//! * P2: everything that waits for the client is counted, also what is answered and waits for another reply before it.

use crate::reply;
use crate::resp::{Encoder, Protocol, Request};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::time::Instant;
use storage::commands::{Args, Handler, Watched, lookup};
use storage::machine::View;
use storage::reply::Reply;

/// Bytes of replies to reads that ride along with writes, at a time, as far as that can be known before.
const RIDDEN_BYTES_MAX: usize = 1 << 20;

/// A place in the sequence.
pub enum Place {
    /// A write on its way.
    Write {
        /// Its size.
        bytes: usize,
        /// Whether its reply may be large.
        tells: bool,
        /// Keys that it may have read, for a client that caches.
        tracked: Vec<Bytes>,
    },
    /// A read that rides along with a write, and its size.
    Ride(usize),
    /// A transaction on its way, its size, and what of it the connection does itself.
    Exec(usize, Exec),
    /// An administrative command on its way.
    Admin,
    /// A read that waits for its permission.
    Read(Read),
    /// A read that may be done.
    Allowed(Read),
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
    fn bytes(&self) -> usize {
        match self {
            Read::Command { request, .. } => request.bytes_held(),
            Read::Watch(_, keys) => keys.iter().map(|key| key.len() + size_of::<Bytes>()).sum(),
        }
    }

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
    /// What of it waits for the client, in bytes.
    bytes: usize,
}

/// The places, and the output that those in front have become.
#[derive(Default)]
pub struct Places {
    /// The number of the first place.
    first: u64,
    queue: VecDeque<Entry>,
    /// Writes among the places, and reads that are not done.
    writes: usize,
    reads: usize,
    /// Reads among them that may be done; before this place there are none that are not.
    allowed: usize,
    next_read: u64,
    /// Writes whose reply may be large, and how large the last one was.
    tells: usize,
    told_bytes: usize,
    /// About how large the replies of reads that ride along are, as far as one came.
    ridden_bytes: Option<usize>,
    /// Those that are answered, and the bytes of their replies.
    done: usize,
    done_bytes: usize,
    /// Bytes of the requests that wait.
    request_bytes: usize,
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

    /// Whether a read is not done yet.
    pub fn has_reads(&self) -> bool {
        self.reads > 0
    }

    /// Whether a read may be done, as soon as there is room.
    pub fn has_allowed(&self) -> bool {
        self.allowed > 0
    }

    /// Writes on their way whose reply may be large, and how large the last such reply was.
    pub fn tells(&self) -> (usize, usize) {
        (self.tells, self.told_bytes)
    }

    /// The reply of such a write came.
    pub fn told(&mut self, bytes: usize) {
        self.told_bytes = bytes;
    }

    /// Whether another read may ride along with a write: its reply is made whether there is room for it or not, so that must be little. As long as nothing is known, one alone may.
    /// A large reply is forgotten little by little, with every read that cannot ride because of it and every one that can.
    pub fn may_ride(&mut self) -> bool {
        let Some(bytes) = self.ridden_bytes else { return self.tells == 0 };
        let is_little = bytes.saturating_mul(self.tells + 1) <= RIDDEN_BYTES_MAX;
        if !is_little {
            self.ridden_bytes = Some(bytes - bytes / 16);
        }
        is_little
    }

    /// The reply of such a read came.
    pub fn ridden(&mut self, bytes: usize) {
        let known = self.ridden_bytes.unwrap_or(0);
        self.ridden_bytes = Some(bytes.max(known - known / 16));
    }

    /// Bytes of the requests that wait.
    pub fn request_bytes(&self) -> usize {
        self.request_bytes
    }

    /// Bytes that wait for the client (P2).
    pub fn reply_bytes(&self) -> usize {
        self.output.len() + self.done_bytes
    }

    fn index(&self, place: u64) -> Option<usize> {
        usize::try_from(place.checked_sub(self.first)?).ok().filter(|index| *index < self.queue.len())
    }

    /// Counts what waits, or no longer does.
    fn count(&mut self, place: &Place, is_more: bool) {
        let change = |count: &mut usize, by: usize| {
            *count = if is_more { *count + by } else { count.saturating_sub(by) };
        };
        match place {
            Place::Write { bytes, tells, .. } => {
                change(&mut self.writes, 1);
                change(&mut self.tells, usize::from(*tells));
                change(&mut self.request_bytes, *bytes);
            }
            Place::Exec(bytes, _) | Place::Ride(bytes) => {
                change(&mut self.writes, 1);
                change(&mut self.tells, 1);
                change(&mut self.request_bytes, *bytes);
            }
            Place::Read(read) | Place::Allowed(read) => {
                change(&mut self.reads, 1);
                change(&mut self.allowed, usize::from(matches!(place, Place::Allowed(_))));
                change(&mut self.request_bytes, read.bytes());
            }
            Place::Admin | Place::Done(_) | Place::Raw(_) => {}
        }
    }

    /// The name of the next place at the end.
    pub fn next(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// A place at the end; the result names it.
    pub fn push(&mut self, place: Place, call: Option<Call>) -> u64 {
        self.count(&place, true);
        let bytes = match &place {
            Place::Done(reply) => reply.bytes_at_most(),
            Place::Raw(bytes) => bytes.len(),
            _ => 0,
        };
        self.done += usize::from(matches!(place, Place::Done(_) | Place::Raw(_)));
        self.done_bytes += bytes;
        self.queue.push_back(Entry {
            place,
            call,
            is_silent: self.is_silent,
            behind: BytesMut::new(),
            bytes,
        });
        self.next() - 1
    }

    /// Takes out what waits at a place, to be answered with [`Places::fill`]. Nothing if it is answered already.
    pub fn take(&mut self, place: u64) -> Option<(Place, Option<Call>)> {
        let index = self.index(place)?;
        let waiting = self.queue.get_mut(index)?;
        if matches!(waiting.place, Place::Done(_) | Place::Raw(_)) {
            return None;
        }
        let taken = std::mem::replace(&mut waiting.place, Place::Admin);
        let call = waiting.call.take();
        self.count(&taken, false);
        Some((taken, call))
    }

    /// Lets a read that was taken wait again.
    pub fn put_back(&mut self, place: u64, read: Place, call: Option<Call>) {
        if let Some(index) = self.index(place) {
            self.count(&read, true);
            (self.queue[index].place, self.queue[index].call) = (read, call);
        }
    }

    /// Whether nothing is in front of a place.
    pub fn is_first(&self, place: u64) -> bool {
        place == self.first
    }

    /// The place of the first read that is not done, if it may be done (P1).
    pub fn next_allowed(&mut self) -> Option<u64> {
        if self.allowed == 0 {
            return None;
        }
        self.next_read = self.next_read.max(self.first);
        loop {
            match self.queue.get(self.index(self.next_read)?)?.place {
                Place::Allowed(_) => return Some(self.next_read),
                Place::Read(_) => return None,
                _ => self.next_read += 1,
            }
        }
    }

    /// Answers a place that was taken.
    pub fn fill(&mut self, place: u64, filling: Filling, protocol: Protocol) {
        let index = self.index(place);
        if let Some(waiting) = index.and_then(|index| self.queue.get_mut(index)) {
            // What is in front leaves at once, and need not be counted.
            let is_first = index == Some(0);
            let (filled, bytes) = match filling {
                Filling::Reply(reply) if is_first => (Place::Done(reply), 0),
                Filling::Raw(bytes) if is_first => (Place::Raw(bytes), 0),
                Filling::Reply(reply) => {
                    let bytes = reply.bytes_at_most();
                    (Place::Done(reply), bytes)
                }
                Filling::Raw(bytes) => {
                    let count = bytes.len();
                    (Place::Raw(bytes), count)
                }
            };
            waiting.place = filled;
            waiting.bytes += bytes;
            self.done += 1;
            self.done_bytes += bytes;
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
        let Some(last) = last else { return self.put(pushed, protocol) };
        let before = last.behind.len();
        reply::put(&mut Encoder::new(&mut last.behind, protocol), pushed);
        let bytes = last.behind.len() - before;
        last.bytes += bytes;
        self.done_bytes += bytes;
    }

    /// Moves what is answered to the output, in order.
    fn drain(&mut self, protocol: Protocol) {
        while let Some(Place::Done(_) | Place::Raw(_)) = self.queue.front().map(|entry| &entry.place) {
            self.first += 1;
            self.done = self.done.saturating_sub(1);
            let Some(Entry { place, is_silent, behind, bytes, .. }) = self.queue.pop_front() else { return };
            self.done_bytes = self.done_bytes.saturating_sub(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_reply_lets_no_read_ride_for_a_while_but_not_for_ever() {
        let mut places = Places::default();
        assert!(places.may_ride());
        places.push(Place::Ride(0), None);
        assert!(!places.may_ride(), "nothing is known before the first came");
        places.take(0);
        places.ridden(100);
        places.push(Place::Ride(0), None);
        assert!(places.may_ride());
        places.ridden(10 * RIDDEN_BYTES_MAX);
        places.take(1);
        let waited = (0..1_000).take_while(|_| !places.may_ride()).count();
        assert!((10..100).contains(&waited), "{waited} reads waited");
    }
}
