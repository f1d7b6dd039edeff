//! What a client says to each kind of server, and how it knows that the answer is right.
//!
//! A wire turns operations into bytes and bytes into counted answers; it does no input or output of its own, so the same closed loop drives every
//! server. An answer that says "no" (an error, a missing key, a lock that somebody holds) ends the run: a fast failure must not count as speed.

pub mod etcd;
pub mod locks;
pub mod resp;
pub mod zookeeper;

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Redis and Warlock.
    Resp,
    /// The same with Warlock's own locks.
    Locks,
    /// etcd v3: gRPC over HTTP/2.
    Etcd,
    /// ZooKeeper's jute.
    ZooKeeper,
}

/// What one request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes a key that does not exist (fills the key space).
    Create,
    /// Overwrites a key.
    Set,
    /// Reads a key.
    Get,
    /// Takes a lock that must be free.
    Acquire,
    /// Gives it back.
    Release,
}

/// One request. Keys live in a space of their own for each length of values; locks in another.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// What to do.
    pub kind: Kind,
    /// Which key or lock.
    pub key: u64,
    /// What to store; for reads only its length matters.
    pub value: &'a [u8],
}

/// One connection's side of a protocol.
pub trait Wire {
    /// What to say first. Its answer counts like any other if [`Wire::hello_answers`] says so.
    fn hello(&mut self, out: &mut Vec<u8>);

    /// How many answers the first words get.
    fn hello_answers(&self) -> usize {
        0
    }

    /// Begins a batch; every answer to the one before has been taken.
    fn begin(&mut self) {}

    /// Appends one request.
    fn put(&mut self, op: &Op<'_>, out: &mut Vec<u8>);

    /// Takes whole answers off the front of `input`: how many bytes, how many answers. May want to say something at once.
    ///
    /// # Errors
    /// The server said no, or something that this client does not understand.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, usize), String>;

    /// What to say last; no answer is waited for.
    fn goodbye(&mut self, _out: &mut Vec<u8>) {}
}

/// A fresh connection's wire.
#[must_use]
pub fn new(protocol: Protocol) -> Box<dyn Wire> {
    match protocol {
        Protocol::Resp => Box::new(resp::Resp),
        Protocol::Locks => Box::new(locks::Locks::default()),
        Protocol::Etcd => Box::new(etcd::Etcd::default()),
        Protocol::ZooKeeper => Box::new(zookeeper::ZooKeeper::default()),
    }
}

/// A key's name, the same length in every system.
pub(crate) fn name(op: &Op<'_>, prefix: &str) -> String {
    match op.kind {
        Kind::Acquire | Kind::Release => format!("{prefix}lock:{:09}", op.key),
        _ => format!("{prefix}k{}:{:09}", op.value.len(), op.key),
    }
}

/// Big-endian number at `at`.
pub(crate) fn be32(input: &[u8], at: usize) -> Option<u32> {
    let bytes: [u8; 4] = input.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes))
}
