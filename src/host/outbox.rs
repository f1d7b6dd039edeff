//! What waits for one peer, in bounded queues that drop rather than block.
//!
//! The pulse of the lease waits behind nothing: it has a connection of its own. A large message is not queued again while it may still be on its way:
//! the protocol sends again what is not answered, and copies of many megabytes would only make all of them later.

use super::faults;
use super::shortcut::Shortcut;
use bytes::{Bytes, BytesMut};
use consensus::{Ballot, CommandId, Message, Slot};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const QUEUE_BYTES_MAX: usize = 64 << 20;
const BULK_FRAMES_MAX: usize = 8;
/// Frames are gathered into pieces of about this size; one piece is one write. What is longer is large.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// What is not longer is written by the turn itself. To write more takes so long that the journal should begin first.
const SMALL_BYTES: usize = 1 << 10;
/// What a slow link with a slow machine at its end takes in a second: a large message is not repeated before this much time for its bytes.
const SLOW_BYTES_A_SECOND: usize = 4 << 20;

/// A node has two connections to each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// What keeps the lease alive: small, and never behind anything else.
    Pulse,
    /// Everything else.
    Data,
}

/// What waits for one peer.
#[derive(Default)]
pub struct Outbox {
    queues: RefCell<Queues>,
    pulse: Line,
    data: Line,
    closed: Cell<bool>,
    dropped: Cell<u64>,
    /// Into the connection for data, for what waits for the disk and for nothing else.
    pub shortcut: Arc<Shortcut>,
}

/// One connection.
#[derive(Default)]
struct Line {
    is_up: Cell<bool>,
    wake: Notify,
}

/// Names a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Large {
    Proposal(Ballot, Slot),
    /// By its first command.
    Request(CommandId),
    /// By its first slot.
    Log(u64),
    /// By the scout's ballot and the slot that it asked from.
    Promise(Ballot, u64),
}

#[derive(Default)]
struct Queues {
    /// The pulse of the lease.
    urgent: BytesMut,
    /// Everything else but snapshots, in order, in pieces of whole frames; a large one is a piece of its own.
    ordinary: VecDeque<(BytesMut, Option<Large>)>,
    ordinary_bytes: usize,
    bulk: VecDeque<Bytes>,
    /// The large message that is being written.
    writing: Option<Large>,
    /// A piece of a snapshot is being written.
    writes_piece: bool,
    /// Large messages that were queued lately, and until when they are not repeated.
    recent: Vec<(Large, Instant)>,
}

impl Queues {
    fn next(&mut self, lane: Lane) -> Option<Bytes> {
        if lane == Lane::Pulse {
            return (!self.urgent.is_empty()).then(|| self.urgent.split().freeze());
        }
        self.writing = None;
        self.writes_piece = false;
        if let Some((piece, large)) = self.ordinary.pop_front() {
            self.ordinary_bytes -= piece.len();
            self.writing = large;
            return Some(piece.freeze());
        }
        let piece = self.bulk.pop_front();
        self.writes_piece = piece.is_some();
        piece
    }

    fn is_empty(&self, lane: Lane) -> bool {
        match lane {
            Lane::Pulse => self.urgent.is_empty(),
            Lane::Data => self.ordinary.is_empty() && self.bulk.is_empty(),
        }
    }

    fn clear(&mut self, lane: Lane) {
        match lane {
            Lane::Pulse => self.urgent.clear(),
            Lane::Data => *self = Queues { urgent: std::mem::take(&mut self.urgent), ..Queues::default() },
        }
    }

    fn push_ordinary(&mut self, frame: &[u8], large: Option<Large>) {
        self.ordinary_bytes += frame.len();
        if let Some(large) = large {
            let seconds = frame.len() as f64 / SLOW_BYTES_A_SECOND as f64;
            self.recent.push((large, Instant::now() + Duration::from_secs_f64(seconds)));
        }
        match self.ordinary.back_mut() {
            Some((piece, None)) if large.is_none() && piece.len() + frame.len() <= PIECE_BYTES => {
                piece.extend_from_slice(frame)
            }
            _ => self.ordinary.push_back((BytesMut::from(frame), large)),
        }
    }

    fn is_on_its_way(&mut self, large: Large) -> bool {
        let now = Instant::now();
        self.recent.retain(|(_, until)| *until > now);
        self.writing == Some(large)
            || self.ordinary.iter().any(|(_, queued)| *queued == Some(large))
            || self.recent.iter().any(|(queued, _)| *queued == large)
    }
}

/// What overtakes what on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Keeps the lease alive.
    Urgent,
    /// In order.
    Ordinary,
    /// Whenever there is nothing else.
    Bulk,
}

impl Outbox {
    /// Whether a message is large and may still be on its way: it is not worth encoding again.
    #[must_use]
    pub fn has(&self, message: &Message) -> bool {
        large(message).is_some_and(|large| self.queues.borrow_mut().is_on_its_way(large))
    }

    /// Whether a piece of a snapshot waits for the peer or is being written.
    #[must_use]
    pub fn has_piece(&self) -> bool {
        let queues = self.queues.borrow();
        queues.writes_piece || !queues.bulk.is_empty()
    }

    /// Queues a message, encoded as `frame`; drops it when the peer is not connected or too far behind.
    pub fn push(&self, frame: &[u8], message: &Message) {
        self.push_as(class_of(message), frame, message);
        if matches!(message, Message::Release { .. }) {
            // A heartbeat or a P2a that comes behind it would bind the peer again, and a hand-over would take a whole lease. So it goes behind both.
            self.push_as(Class::Urgent, frame, message);
        }
    }

    fn push_as(&self, class: Class, frame: &[u8], message: &Message) {
        let mut queues = self.queues.borrow_mut();
        let fits = match class {
            Class::Urgent => queues.urgent.len() + frame.len() <= QUEUE_BYTES_MAX,
            // One frame may be larger than the limit.
            Class::Ordinary => {
                queues.ordinary_bytes == 0 || queues.ordinary_bytes + frame.len() <= QUEUE_BYTES_MAX
            }
            Class::Bulk => queues.bulk.len() < BULK_FRAMES_MAX,
        };
        let lane = if class == Class::Urgent { Lane::Pulse } else { Lane::Data };
        if !self.line(lane).is_up.get() || !fits || faults::is_cut_off() {
            self.dropped.set(self.dropped.get() + 1);
            return;
        }
        match class {
            Class::Urgent => queues.urgent.extend_from_slice(frame),
            Class::Ordinary => queues.push_ordinary(frame, large(message)),
            Class::Bulk => queues.bulk.push_back(Bytes::copy_from_slice(frame)),
        }
    }

    /// The next piece to write.
    pub(super) fn next(&self, lane: Lane) -> Option<Bytes> {
        let own = || self.queues.borrow_mut().next(lane);
        if lane == Lane::Data { self.shortcut.next(own) } else { own() }
    }

    /// The last piece was written.
    pub(super) fn written(&self, lane: Lane) {
        if lane == Lane::Data {
            self.queues.borrow_mut().writes_piece = false;
            self.shortcut.written();
        }
    }

    /// Ready when there may be something to write.
    pub(super) async fn woken(&self, lane: Lane) {
        self.line(lane).wake.notified().await;
    }

    /// A connection is there.
    ///
    /// # Errors
    /// When its socket cannot be shared.
    pub(super) fn set_up(&self, lane: Lane, stream: &TcpStream) -> io::Result<()> {
        if lane == Lane::Data {
            self.shortcut.open(stream)?;
        }
        self.line(lane).is_up.set(true);
        Ok(())
    }

    /// A connection is lost, with all that waited for it.
    pub(super) fn set_down(&self, lane: Lane) {
        if lane == Lane::Data {
            self.shortcut.close();
        }
        self.line(lane).is_up.set(false);
        self.queues.borrow_mut().clear(lane);
    }

    /// Whether both connections are there.
    #[cfg(test)]
    pub(super) fn is_whole(&self) -> bool {
        self.pulse.is_up.get() && self.data.is_up.get()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    fn line(&self, lane: Lane) -> &Line {
        match lane {
            Lane::Pulse => &self.pulse,
            Lane::Data => &self.data,
        }
    }

    /// Writes what was queued if it is small and nothing else is on its way: it reaches the peer before anybody else is woken.
    pub fn send_small(&self) {
        let mut queues = self.queues.borrow_mut();
        if let Some((piece, None)) = queues.ordinary.front()
            && piece.len() <= SMALL_BYTES
            && queues.ordinary.len() == 1
            && self.shortcut.send_now(piece)
        {
            queues.ordinary.clear();
            queues.ordinary_bytes = 0;
        }
    }

    /// Lets the writers write what was queued. One call, one write, for everything queued since the last.
    pub fn flush(&self) {
        let queues = self.queues.borrow();
        for lane in [Lane::Pulse, Lane::Data] {
            if !queues.is_empty(lane) || (lane == Lane::Data && self.shortcut.has_left()) {
                self.line(lane).wake.notify_one();
            }
        }
    }

    /// Whether the peer is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.data.is_up.get()
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
        self.pulse.wake.notify_one();
        self.data.wake.notify_one();
    }
}

/// What a message may overtake. The protocol does not mind any order.
fn class_of(message: &Message) -> Class {
    match message {
        Message::Heartbeat(_) | Message::HeartbeatAnswer { .. } => Class::Urgent,
        Message::SnapshotChunk { .. } => Class::Bulk,
        _ => Class::Ordinary,
    }
}

fn large(message: &Message) -> Option<Large> {
    match message {
        Message::P2a { pvalue, .. } if pvalue.value.weight() > PIECE_BYTES => {
            Some(Large::Proposal(pvalue.ballot, pvalue.slot))
        }
        Message::Request { commands } => {
            let bytes: usize = commands.iter().map(|command| command.payload.len()).sum();
            commands.first().filter(|_| bytes > PIECE_BYTES).map(|command| Large::Request(command.id))
        }
        Message::Log { first, values, .. } => {
            let bytes: usize = values.iter().map(|value| value.weight()).sum();
            (bytes > PIECE_BYTES).then_some(Large::Log(*first))
        }
        Message::P1b(promise) => {
            let bytes: usize = promise.accepted.iter().map(|pvalue| pvalue.value.weight()).sum();
            (bytes > PIECE_BYTES).then_some(Large::Promise(promise.ballot, promise.from_slot))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::codec;
    use consensus::{Address, Body, Command, NodeId, Origin, PValue, RoleId, Time, Value, Watermark};
    use std::sync::Arc;

    pub fn frame(message: &Message) -> BytesMut {
        let from = Address { node: NodeId(1), role: RoleId::Leader };
        let mut frame = BytesMut::new();
        codec::put_frame(from, RoleId::Acceptor, message, &mut frame);
        frame
    }

    fn ballot() -> Ballot {
        Ballot { view: 1, round: 1, leader: NodeId(1) }
    }

    /// Far more than a socket takes before somebody reads.
    pub fn large_proposal() -> Message {
        let command = Command {
            id: CommandId { origin: Origin { node: NodeId(1), incarnation: 1 }, seq: 1 },
            low: 1,
            payload: Bytes::from(vec![7; 48 << 20]),
        };
        let value = Value { made_in: ballot(), stamp_ms: 1, body: Body::Commands(vec![command]) };
        let pvalue = PValue { slot: Slot::Data(1), ballot: ballot(), value: Arc::new(value) };
        Message::P2a {
            pvalue,
            commit: Watermark::default(),
            sent_at: Time(1),
            lease: Duration::from_secs(1),
            may_wait: Arc::default(),
        }
    }

    pub fn heartbeat() -> Message {
        let (promised, sent_at) = (ballot(), Time(1));
        Message::HeartbeatAnswer { ballot: ballot(), seq: 1, sent_at, promised, granted: true, life: 1 }
    }

    #[test]
    fn a_release_comes_behind_everything_that_binds() {
        let outbox = Outbox::default();
        outbox.data.is_up.set(true);
        outbox.pulse.is_up.set(true);
        let release = Message::Release { ballot: Ballot::default(), successor: consensus::NodeId(2) };
        outbox.push(b"proposal", &large_proposal());
        outbox.push(b"heartbeat", &heartbeat());
        outbox.push(b"release", &release);
        assert_eq!(outbox.next(Lane::Pulse).unwrap(), "heartbeatrelease");
        assert_eq!(outbox.next(Lane::Data).unwrap(), "proposal");
        assert_eq!(outbox.next(Lane::Data).unwrap(), "release");
    }

    #[test]
    fn a_large_message_is_not_queued_again_while_it_may_be_on_its_way() {
        let outbox = Outbox::default();
        outbox.data.is_up.set(true);
        let proposal = large_proposal();
        assert!(!outbox.has(&proposal));
        outbox.push(&frame(&proposal), &proposal);
        assert!(outbox.has(&proposal), "it waits");
        assert!(outbox.next(Lane::Data).is_some());
        outbox.queues.borrow_mut().recent.clear(); // as if its time had passed
        assert!(outbox.has(&proposal), "it is being written");
        assert!(outbox.next(Lane::Data).is_none());
        assert!(!outbox.has(&proposal), "it was written; perhaps it was lost");
        outbox.push(&frame(&proposal), &proposal);
        outbox.set_down(Lane::Data);
        assert!(!outbox.has(&proposal), "it was lost with the link");
        assert!(!outbox.has(&heartbeat()), "small ones are sent whenever somebody wants");
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let outbox = Outbox::default();
        let probe = Message::Probe { ballot: ballot() };
        outbox.push(b"nobody is there", &probe);
        assert_eq!((outbox.dropped(), outbox.queued_bytes()), (1, 0));
        outbox.data.is_up.set(true);
        let half = vec![0; QUEUE_BYTES_MAX / 2];
        (0..3).for_each(|_| outbox.push(&half, &probe));
        assert_eq!((outbox.dropped(), outbox.queued_bytes()), (2, QUEUE_BYTES_MAX));
        let piece = Message::SnapshotChunk { slot: 1, offset: 0, total: 1, data: Bytes::new() };
        assert!(!outbox.has_piece());
        (0..=BULK_FRAMES_MAX).for_each(|_| outbox.push(b"x", &piece));
        assert_eq!(outbox.dropped(), 3);
        // Pieces leave last, and the one that is being written counts.
        (0..2).for_each(|_| assert_eq!(outbox.next(Lane::Data).unwrap().len(), half.len()));
        (0..BULK_FRAMES_MAX).for_each(|_| assert_eq!(outbox.next(Lane::Data).unwrap(), "x"));
        assert!(outbox.has_piece());
        assert!(outbox.next(Lane::Data).is_none() && !outbox.has_piece());
    }

    #[test]
    fn only_what_is_small_and_alone_leaves_at_once() {
        use std::io::Read;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let outbox = Outbox::default();
        outbox.data.is_up.set(true);
        let probe = Message::Probe { ballot: ballot() };
        outbox.push(b"nobody is connected", &probe);
        outbox.send_small();
        assert_eq!(outbox.next(Lane::Data).unwrap(), "nobody is connected");
        outbox.shortcut.open_with(socket);
        let mut came = [0; 8];
        outbox.push(b"four", &probe);
        outbox.push(b"four", &probe);
        outbox.send_small();
        assert_eq!(outbox.queued_bytes(), 0);
        peer.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"fourfour");
        // In the middle of a piece of the task, nothing.
        outbox.push(b"task", &probe);
        assert_eq!(outbox.next(Lane::Data).unwrap(), "task");
        outbox.push(b"behind", &probe);
        outbox.send_small();
        assert_eq!(outbox.queued_bytes(), 6);
        outbox.written(Lane::Data);
        // What is longer is left to the task.
        outbox.push(&[0; SMALL_BYTES], &probe);
        outbox.send_small();
        assert_eq!(outbox.queued_bytes(), 6 + SMALL_BYTES);
        // And nothing of what comes behind something small is lost.
        assert_eq!(outbox.next(Lane::Data).unwrap().len(), 6 + SMALL_BYTES);
        outbox.written(Lane::Data);
        outbox.push(b"small", &probe);
        outbox.push(&frame(&large_proposal()), &large_proposal());
        let queued = outbox.queued_bytes();
        outbox.send_small();
        assert_eq!(outbox.queued_bytes(), queued);
    }

    #[test]
    fn the_log_of_a_large_value_is_not_queued_again_either() {
        let Message::P2a { pvalue, .. } = large_proposal() else { return };
        let outbox = Outbox::default();
        outbox.data.is_up.set(true);
        let log = |first| Message::Log { first, values: vec![pvalue.value.clone()], decided: 9 };
        outbox.push(b"log", &log(1));
        assert!(outbox.has(&log(1)));
        assert!(!outbox.has(&log(2)));
    }
}
