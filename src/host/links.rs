//! Peer links: one TCP connection per direction, framed, authenticated, re-dialled with back-off.
//!
//! A link never makes the core wait: what does not fit into its bounded queues is dropped, which the protocol survives. Heartbeats and votes leave before
//! bulk data (snapshots), which is sent in pieces so that nothing waits long behind it.

use super::handshake::{self, Identity};
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
use tracing::{debug, info, warn};

const QUEUE_BYTES_MAX: usize = 64 << 20;
const BULK_FRAMES_MAX: usize = 8;
const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 256 << 10;

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
    /// Everything but bulk data, in order.
    ordinary: BytesMut,
    bulk: VecDeque<Bytes>,
}

impl Outbox {
    /// Queues an encoded frame; drops it when the peer is not connected or too far behind.
    pub fn push(&self, frame: &[u8], is_bulk: bool) {
        let mut queues = self.queues.borrow_mut();
        let fits = if is_bulk {
            queues.bulk.len() < BULK_FRAMES_MAX
        } else {
            queues.ordinary.len() + frame.len() <= QUEUE_BYTES_MAX
        };
        if !self.is_up.get() || !fits {
            self.dropped.set(self.dropped.get() + 1);
            return;
        }
        if is_bulk {
            queues.bulk.push_back(Bytes::copy_from_slice(frame));
        } else {
            queues.ordinary.extend_from_slice(frame);
        }
    }

    /// Lets the writer write what was queued. One call, one write, for everything queued since the last.
    pub fn flush(&self) {
        let queues = self.queues.borrow();
        if !queues.ordinary.is_empty() || !queues.bulk.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Whether the peer is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up.get()
    }

    /// The peer is a member no more.
    pub fn close(&self) {
        self.closed.set(true);
        self.wake.notify_one();
    }
}

/// Whether a message is bulk data, which everything else overtakes.
#[must_use]
pub fn is_bulk(message: &Message) -> bool {
    matches!(message, Message::SnapshotChunk { .. })
}

/// Keeps a link to one peer up for as long as the peer is a member.
pub async fn dial(me: Identity, peer: NodeId, address: String, outbox: Rc<Outbox>) {
    let mut pause = REDIAL_MIN;
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
                warn!(%peer, address, %error, "peer link refused");
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
        let (ordinary, bulk) = {
            let mut queues = outbox.queues.borrow_mut();
            (queues.ordinary.split(), queues.bulk.pop_front())
        };
        if !ordinary.is_empty() {
            writer.write_all(&ordinary).await?;
        }
        if let Some(frame) = &bulk {
            writer.write_all(frame).await?;
        }
        if !ordinary.is_empty() || bulk.is_some() {
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

/// Takes links from peers; everything that arrives goes to `deliver`.
pub async fn listen(listener: TcpListener, me: Identity, deliver: Rc<dyn Fn(Vec<Letter>)>) {
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
        let (me, deliver, newest) = (me.clone(), deliver.clone(), newest.clone());
        tokio::task::spawn_local(async move {
            let ended = take_link(stream, &me, &newest, &*deliver).await;
            if let Err(error) = ended {
                info!(%address, %error, "peer link ended");
            }
        });
    }
}

async fn take_link(
    mut stream: TcpStream,
    me: &Identity,
    newest: &RefCell<BTreeMap<NodeId, u64>>,
    deliver: &dyn Fn(Vec<Letter>),
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let known = |node| newest.borrow().get(&node).copied().unwrap_or(0);
    let caller = handshake::answer(&mut stream, me, known).await?;
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
        if !letters.is_empty() {
            deliver(letters);
        }
    }
}
