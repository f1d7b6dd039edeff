//! Peer links: two TCP connections per direction (the pulse of the lease, and the rest), framed, authenticated, re-dialled with back-off.
//!
//! A link never makes the core wait: what does not fit into its bounded queues is dropped, which the protocol survives. What keeps the master's
//! lease alive has a connection of its own, so that it waits behind nothing; snapshots leave last.

use super::calls::{self, Answerer};
use super::faults;
use super::handshake::{self, CALL_MAGIC, Identity};
use super::outbox::{Lane, Outbox, PIECE_BYTES};
use crate::codec::{self, Letter};
use bytes::BytesMut;
use consensus::NodeId;
use socket2::TcpKeepalive;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 256 << 10;
/// A link that takes nothing for this long is dead.
const STALLED: Duration = Duration::from_secs(5);

/// Keeps the links to one peer up for as long as the peer is a member.
pub async fn dial(me: Identity, peer: NodeId, address: String, outbox: Rc<Outbox>) {
    tokio::join!(
        keep_up(Lane::Pulse, &me, peer, &address, &outbox),
        keep_up(Lane::Data, &me, peer, &address, &outbox),
    );
}

/// How long to wait before a peer is dialled again: longer each time, until it has answered.
struct Redial(Duration);

impl Redial {
    fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(REDIAL_MAX);
        pause
    }

    fn reset(&mut self) {
        self.0 = REDIAL_MIN;
    }
}

async fn keep_up(lane: Lane, me: &Identity, peer: NodeId, address: &str, outbox: &Outbox) {
    let (mut redial, mut refusal) = (Redial(REDIAL_MIN), String::new());
    while !outbox.is_closed() {
        match connect(me, peer, address).await {
            Ok(stream) => {
                debug!(%peer, address, ?lane, "peer link is up");
                redial.reset();
                let ended = write_all(stream, lane, outbox).await;
                outbox.set_down(lane);
                debug!(%peer, ?lane, ?ended, "peer link is down");
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && lane == Lane::Data => {
                // It is tried again and again; said once.
                if error.to_string() != refusal {
                    refusal = error.to_string();
                    warn!(%peer, address, %error, "peer link refused");
                }
            }
            Err(error) => debug!(%peer, address, %error, "peer cannot be reached"),
        }
        tokio::time::sleep(redial.next_pause()).await;
    }
}

async fn connect(me: &Identity, peer: NodeId, address: &str) -> io::Result<TcpStream> {
    let mut stream = tokio::time::timeout(REDIAL_MAX * 2, TcpStream::connect(address)).await??;
    tune(&stream)?;
    handshake::dial(&mut stream, me, peer).await?;
    Ok(stream)
}

/// Small writes leave at once, and a peer behind a dead network is noticed: by what it does not acknowledge, and on an idle link by what the kernel asks.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(STALLED))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(STALLED).with_interval(REDIAL_MAX))
}

async fn write_all(stream: TcpStream, lane: Lane, outbox: &Outbox) -> io::Result<()> {
    outbox.set_up(lane, &stream)?;
    let (mut reader, mut writer) = stream.into_split();
    // The peer never writes on this link: a read ends when the link does.
    let mut nothing = [0; 1];
    loop {
        let piece = outbox.next(lane);
        if let Some(piece) = piece {
            // A peer that takes nothing is dialled again; one that takes a large frame slowly is not.
            for part in piece.chunks(PIECE_BYTES) {
                tokio::time::timeout(STALLED, writer.write_all(part)).await??;
            }
            outbox.written(lane);
            continue;
        }
        if outbox.is_closed() {
            return Ok(());
        }
        tokio::select! {
            () = outbox.woken(lane) => {}
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
    tune(&stream)?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::host::outbox::tests::{frame, heartbeat, large_proposal};
    use consensus::Message;

    fn identity(node: u64) -> Identity {
        Identity { cluster: [7; 16], node: NodeId(node), incarnation: 1, secret: b"secret".to_vec() }
    }

    #[test]
    fn a_peer_that_does_not_answer_is_dialled_less_and_less_often() {
        let mut redial = Redial(REDIAL_MIN);
        let pauses: Vec<u128> = (0..8).map(|_| redial.next_pause().as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        redial.reset();
        assert_eq!(redial.next_pause(), REDIAL_MIN);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_heartbeat_does_not_wait_behind_a_large_proposal() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let outbox = Rc::new(Outbox::default());
        let talk = async {
            let mut links = Vec::new();
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let magic = calls::first_bytes(&mut stream).await.unwrap();
                handshake::answer(&mut stream, magic, &identity(2), |_| 0).await.unwrap();
                links.push(stream);
            }
            while !outbox.is_whole() {
                tokio::task::yield_now().await;
            }
            let (proposal, heartbeat) = (large_proposal(), heartbeat());
            outbox.push(&frame(&proposal), &proposal);
            outbox.flush();
            // Some of it came, and nobody reads the rest.
            let (mut here, mut there) = ([0; 1], [0; 1]);
            let (pulse, data) = tokio::select! {
                peeked = links[0].peek(&mut here) => (1, 1 - peeked.unwrap()),
                peeked = links[1].peek(&mut there) => (0, peeked.unwrap()),
            };
            assert_eq!(outbox.queued_bytes(), 0, "it is being written");
            outbox.push(&frame(&heartbeat), &heartbeat);
            outbox.flush();
            let mut input = BytesMut::new();
            let letter = loop {
                links[pulse].read_buf(&mut input).await.unwrap();
                if let Some(letter) = codec::take_frame(&mut input).unwrap() {
                    break letter;
                }
            };
            assert!(matches!(letter.message, Message::HeartbeatAnswer { .. }), "{letter:?}");
            drop(links.remove(data));
            outbox.close();
        };
        let dialling = dial(identity(1), NodeId(2), address, outbox.clone());
        let both = async {
            tokio::select! { () = talk => {}, () = dialling => panic!("the links ended first") }
        };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("the heartbeat within a minute");
    }
}
