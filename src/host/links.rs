//! Peer links: one TCP connection per direction, framed, authenticated, re-dialled with back-off.
//!
//! A link never makes the core wait: what does not fit into its bounded queues is dropped, which the protocol survives. What keeps the master's
//! lease alive leaves first, snapshots leave last, and everything is written in pieces of whole frames, so that a heartbeat waits behind one piece at most.

use super::calls::{self, Answerer};
use super::faults;
use super::handshake::{self, CALL_MAGIC, Identity};
use crate::codec::{self, Letter};
use bytes::{Bytes, BytesMut};
use consensus::{Message, NodeId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tracing::{debug, warn};

const QUEUE_BYTES_MAX: usize = 64 << 20;
const BULK_FRAMES_MAX: usize = 8;
/// Frames are gathered into pieces of about this size; one piece is one write.
const PIECE_BYTES: usize = 256 << 10;
const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 256 << 10;
/// A link that takes nothing for this long is dead.
const STALLED: Duration = Duration::from_secs(5);

/// What waits for one peer.
#[derive(Default)]
pub struct Outbox {
    queues: RefCell<Queues>,
    is_up: Cell<bool>,
    wake: Notify,
    closed: Cell<bool>,
    dropped: Cell<u64>,
}

#[derive(Default)]
struct Queues {
    /// The pulse of the lease.
    urgent: BytesMut,
    /// Everything else but snapshots, in order, in pieces of whole frames.
    ordinary: VecDeque<BytesMut>,
    ordinary_bytes: usize,
    bulk: VecDeque<Bytes>,
}

impl Queues {
    fn next(&mut self) -> Option<Bytes> {
        if !self.urgent.is_empty() {
            return Some(self.urgent.split().freeze());
        }
        if let Some(piece) = self.ordinary.pop_front() {
            self.ordinary_bytes -= piece.len();
            return Some(piece.freeze());
        }
        self.bulk.pop_front()
    }

    fn push_ordinary(&mut self, frame: &[u8]) {
        self.ordinary_bytes += frame.len();
        match self.ordinary.back_mut() {
            Some(piece) if piece.len() + frame.len() <= PIECE_BYTES => piece.extend_from_slice(frame),
            _ => self.ordinary.push_back(BytesMut::from(frame)),
        }
    }
}

/// What overtakes what on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Keeps the lease alive.
    Urgent,
    /// In order.
    Ordinary,
    /// Whenever there is nothing else.
    Bulk,
}

impl Outbox {
    /// Queues an encoded frame; drops it when the peer is not connected or too far behind.
    pub fn push(&self, frame: &[u8], class: Class) {
        let mut queues = self.queues.borrow_mut();
        let fits = match class {
            Class::Urgent => queues.urgent.len() + frame.len() <= QUEUE_BYTES_MAX,
            Class::Ordinary => queues.ordinary_bytes + frame.len() <= QUEUE_BYTES_MAX,
            Class::Bulk => queues.bulk.len() < BULK_FRAMES_MAX,
        };
        if !self.is_up.get() || !fits || faults::is_cut_off() {
            self.dropped.set(self.dropped.get() + 1);
            return;
        }
        match class {
            Class::Urgent => queues.urgent.extend_from_slice(frame),
            Class::Ordinary => queues.push_ordinary(frame),
            Class::Bulk => queues.bulk.push_back(Bytes::copy_from_slice(frame)),
        }
    }

    /// Lets the writer write what was queued. One call, one write, for everything queued since the last.
    pub fn flush(&self) {
        let queues = self.queues.borrow();
        if !queues.urgent.is_empty() || !queues.ordinary.is_empty() || !queues.bulk.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Whether the peer is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up.get()
    }

    /// Bytes that wait for the peer.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        let queues = self.queues.borrow();
        queues.urgent.len() + queues.ordinary_bytes + queues.bulk.iter().map(Bytes::len).sum::<usize>()
    }

    /// Frames that were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    /// The peer is a member no more.
    pub fn close(&self) {
        self.closed.set(true);
        self.wake.notify_one();
    }
}

/// What a message may overtake. The protocol does not mind any order.
#[must_use]
pub fn class_of(message: &Message) -> Class {
    match message {
        Message::Heartbeat(_) | Message::HeartbeatAnswer { .. } => Class::Urgent,
        Message::SnapshotChunk { .. } => Class::Bulk,
        _ => Class::Ordinary,
    }
}

/// Keeps a link to one peer up for as long as the peer is a member.
pub async fn dial(me: Identity, peer: NodeId, address: String, outbox: Rc<Outbox>) {
    let (mut pause, mut refusal) = (REDIAL_MIN, String::new());
    while !outbox.closed.get() {
        match connect(&me, peer, &address).await {
            Ok(stream) => {
                debug!(%peer, address, "peer link is up");
                pause = REDIAL_MIN;
                outbox.is_up.set(true);
                let ended = write_all(stream, &outbox).await;
                outbox.is_up.set(false);
                *outbox.queues.borrow_mut() = Queues::default();
                debug!(%peer, ?ended, "peer link is down");
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // It is tried again and again; said once.
                if error.to_string() != refusal {
                    refusal = error.to_string();
                    warn!(%peer, address, %error, "peer link refused");
                }
            }
            Err(error) => debug!(%peer, address, %error, "peer cannot be reached"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(REDIAL_MAX);
    }
}

async fn connect(me: &Identity, peer: NodeId, address: &str) -> io::Result<TcpStream> {
    let mut stream = tokio::time::timeout(REDIAL_MAX * 2, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    handshake::dial(&mut stream, me, peer).await?;
    Ok(stream)
}

async fn write_all(stream: TcpStream, outbox: &Outbox) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    // The peer never writes on this link: a read ends when the link does.
    let mut nothing = [0; 1];
    loop {
        let piece = outbox.queues.borrow_mut().next();
        if let Some(piece) = piece {
            // A peer behind a dead network takes nothing and says nothing: dial it again rather than wait for TCP to notice.
            tokio::time::timeout(STALLED, writer.write_all(&piece)).await??;
            continue;
        }
        if outbox.closed.get() {
            return Ok(());
        }
        tokio::select! {
            () = outbox.wake.notified() => {}
            _ = reader.read(&mut nothing) => return Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

/// Takes links from peers, and calls; everything that arrives on links goes to `deliver`.
pub async fn listen(
    listener: TcpListener,
    me: Identity,
    deliver: Rc<dyn Fn(Vec<Letter>)>,
    answerer: Answerer,
) {
    let newest: Rc<RefCell<BTreeMap<NodeId, u64>>> = Rc::default();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a peer link");
                tokio::time::sleep(REDIAL_MIN).await;
                continue;
            }
        };
        if faults::is_cut_off() {
            continue;
        }
        let (me, deliver, newest, answerer) = (me.clone(), deliver.clone(), newest.clone(), answerer.clone());
        tokio::task::spawn_local(async move {
            let mut stream = stream;
            let ended = match calls::first_bytes(&mut stream).await {
                Ok(magic) if &magic == CALL_MAGIC => calls::answer(&mut stream, &me.secret, &answerer).await,
                Ok(magic) => take_link(stream, magic, &me, &newest, &*deliver).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                debug!(%address, %error, "peer link ended");
            }
        });
    }
}

async fn take_link(
    mut stream: TcpStream,
    magic: [u8; 4],
    me: &Identity,
    newest: &RefCell<BTreeMap<NodeId, u64>>,
    deliver: &dyn Fn(Vec<Letter>),
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let known = |node| newest.borrow().get(&node).copied().unwrap_or(0);
    let caller = handshake::answer(&mut stream, magic, me, known).await?;
    if caller.incarnation < known(caller.node) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a newer life of the peer is here"));
    }
    newest.borrow_mut().insert(caller.node, caller.incarnation);
    let mut input = BytesMut::with_capacity(READ_BYTES);
    loop {
        input.reserve(READ_BYTES / 4);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        if newest.borrow().get(&caller.node) != Some(&caller.incarnation) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a newer life of the peer is here"));
        }
        let mut letters = Vec::new();
        while let Some(letter) = codec::take_frame(&mut input).map_err(io::Error::other)? {
            if letter.from.node != caller.node {
                return Err(io::Error::other("the peer speaks for another node"));
            }
            letters.push(letter);
        }
        if !letters.is_empty() && !faults::is_cut_off() {
            deliver(letters);
        }
    }
}
