//! The way from the journal's thread straight to a peer, for what may leave only when it is durable.
//!
//! A follower's answer to the master waits for the disk and for nothing else. When the journal's thread sends it itself, nobody has to wake the
//! node's thread first: one wake-up less on the way of every write, and one turn less per batch.
//!
//! The rule it keeps: frames are never torn. Either thread writes only when nothing of an earlier frame is left to write; what the journal's thread
//! cannot write at once it leaves to the link's task, which writes it before anything of its own.

use super::faults;
use bytes::{Bytes, BytesMut};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the journal's thread may leave behind for a link's task, at most.
const LEFT_BYTES_MAX: usize = 64 << 20;

/// One link, as both threads see it.
#[derive(Debug, Default)]
pub struct Shortcut(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The link's socket while it is up; it never blocks.
    socket: Option<TcpStream>,
    /// The link's task is in the middle of a piece.
    is_task_writing: bool,
    /// Bytes that the task has to write first, perhaps beginning inside a frame.
    left: BytesMut,
}

impl State {
    /// Writes whole frames unless something of earlier ones is left to write; the link's task writes the rest of what was begun. False: nothing was
    /// taken. An error is the task's to notice, with the next thing it writes.
    fn write(&mut self, frames: &[u8]) -> bool {
        if self.is_task_writing || !self.left.is_empty() {
            return false;
        }
        let written = self.socket.as_mut().map_or(0, |socket| socket.write(frames).unwrap_or(0));
        if written > 0 {
            self.left.extend_from_slice(&frames[written..]);
        }
        written > 0
    }
}

impl Shortcut {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link is up on this socket.
    ///
    /// # Errors
    /// When the socket cannot be shared.
    pub fn open(&self, socket: &tokio::net::TcpStream) -> io::Result<()> {
        self.open_with(TcpStream::from(socket.as_fd().try_clone_to_owned()?));
        Ok(())
    }

    /// The same, with a socket of its own.
    pub(super) fn open_with(&self, socket: TcpStream) {
        *self.state() = State { socket: Some(socket), is_task_writing: false, left: BytesMut::new() };
    }

    /// The link is down.
    pub fn close(&self) {
        *self.state() = State::default();
    }

    /// Sends whole frames, on any thread. True: the link's task has to be woken, because something is left to do. A link that is down takes nothing.
    #[must_use]
    pub fn send(&self, frames: &[u8]) -> bool {
        let mut state = self.state();
        if state.socket.is_none() || faults::is_cut_off() {
            return false;
        }
        if !state.write(frames) && state.left.len() + frames.len() <= LEFT_BYTES_MAX {
            state.left.extend_from_slice(frames);
        }
        !state.left.is_empty() || state.is_task_writing
    }

    /// Sends whole frames if that can begin at once. False: nothing was taken.
    #[must_use]
    pub fn send_now(&self, frames: &[u8]) -> bool {
        self.state().write(frames)
    }

    /// Whether the journal's thread left something to write.
    pub fn has_left(&self) -> bool {
        !self.state().left.is_empty()
    }

    /// What the link's task writes next: what was left to it, or else its own next piece. Nobody else writes until [`Shortcut::written`].
    pub fn next(&self, own: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let mut state = self.state();
        let left = state.left.split();
        let piece = if left.is_empty() { own() } else { Some(left.freeze()) };
        state.is_task_writing = piece.is_some();
        piece
    }

    /// The link's task has written its piece.
    pub fn written(&self) {
        self.state().is_task_writing = false;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read;

    fn link() -> (Shortcut, TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let shortcut = Shortcut::default();
        shortcut.open_with(socket);
        (shortcut, listener.accept().unwrap().0)
    }

    /// Reads until `count` bytes have come.
    fn read(peer: &mut TcpStream, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        peer.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_frame_goes_straight_to_the_peer() {
        let (shortcut, mut peer) = link();
        assert!(!shortcut.send(b"frame"));
        assert_eq!(read(&mut peer, 5), b"frame");
        shortcut.close();
        assert!(!shortcut.send(b"lost"), "a link that is down takes nothing");
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn what_can_begin_at_once_is_taken_and_nothing_else() {
        let (shortcut, mut peer) = link();
        assert!(shortcut.send_now(b"one"));
        assert_eq!(shortcut.next(|| Some(Bytes::from_static(b"piece"))).unwrap(), "piece");
        assert!(!shortcut.send_now(b"torn"), "the task is in the middle of a piece");
        assert!(shortcut.send(b"left"));
        shortcut.written();
        assert!(!shortcut.send_now(b"overtakes"), "what was left comes first");
        assert_eq!(shortcut.next(|| None).unwrap(), "left");
        shortcut.written();
        assert!(shortcut.send_now(b"two"));
        assert_eq!(read(&mut peer, 6), b"onetwo");
        shortcut.close();
        assert!(!shortcut.send_now(b"lost"), "a link that is down takes nothing");
    }

    #[test]
    fn nothing_is_written_into_the_middle_of_the_tasks_piece() {
        let (shortcut, mut peer) = link();
        assert_eq!(shortcut.next(|| Some(Bytes::from_static(b"piece"))).unwrap(), "piece");
        assert!(shortcut.send(b"one") && shortcut.send(b"two"), "the task must be woken for them");
        shortcut.written();
        assert!(shortcut.has_left());
        assert!(shortcut.send(b"three"), "what was left comes first");
        assert_eq!(shortcut.next(|| panic!("what was left comes first")).unwrap(), "onetwothree");
        shortcut.written();
        assert_eq!(shortcut.next(|| None), None);
        assert!(!shortcut.send(b"four"));
        assert_eq!(read(&mut peer, 4), b"four");
    }

    #[test]
    fn what_the_socket_does_not_take_is_left_to_the_task_from_the_very_byte_on() {
        let (shortcut, mut peer) = link();
        let frame: Vec<u8> =
            (0..32 << 20).map(|index: u32| index.to_le_bytes()[0] ^ index.to_le_bytes()[2]).collect();
        assert!(shortcut.send(&frame), "32 MiB do not fit into the socket's buffer");
        let left = shortcut.next(|| panic!("the rest comes first")).unwrap();
        let taken = frame.len() - left.len();
        assert!(taken > 0);
        assert_eq!(left, frame[taken..]);
        assert_eq!(read(&mut peer, taken), frame[..taken]);
        let (shortcut, _peer) = link();
        assert!(shortcut.send_now(&frame), "it has begun");
        assert!(shortcut.has_left());
    }
}
