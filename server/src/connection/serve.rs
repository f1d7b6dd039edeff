//! The bytes of one connection, in and out.
//!
//! A client that does not read its replies is not read from either, and nothing is buffered for it beyond a limit.
//!
//! The replies of a turn are sent by the turn itself ([`Connection::send_replies`]) when the connection's task only rests and waits for the next request: the
//! task need not be woken for them.

use super::{BLOCKED_INPUT_BYTES_MAX, Connection, State};
use bytes::Buf;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Serves one client until either side has enough.
pub async fn serve(stream: TcpStream, connection: &Connection) {
    // Without it small replies wait for the client's acknowledgement; a socket that refuses is as good as closed.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let writer = Rc::new(writer);
    // The socket is the task's, and is closed with it, however it ends.
    *connection.writer.borrow_mut() = Rc::downgrade(&writer);
    // How it ended is the client's business.
    let _ = serve_until_end(reader, &writer, connection).await;
}

impl Connection {
    /// Sends the replies that a turn has made. False: the connection's task has to be woken, because something else is to be done.
    pub(crate) fn send_replies(&self) -> bool {
        if !self.is_resting.get() || self.is_killed.get() || self.has_pushed() {
            return false;
        }
        let (Ok(mut state), Some(writer)) = (self.state.try_borrow_mut(), self.writer.borrow().upgrade())
        else {
            return false;
        };
        // An error is the task's to notice, when it tries the same.
        let is_sent = self.write_output(&mut state, &writer).is_ok() && state.places.output.is_empty();
        is_sent && !state.places.has_allowed()
    }

    /// Writes what the socket takes at once.
    fn write_output(&self, state: &mut State, writer: &OwnedWriteHalf) -> io::Result<()> {
        let output = &mut state.places.output;
        while !output.is_empty() {
            match writer.try_write(output) {
                Ok(written) => {
                    output.advance(written);
                    self.face.stats.borrow_mut().bytes_out += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

async fn serve_until_end(
    mut reader: OwnedReadHalf,
    writer: &OwnedWriteHalf,
    connection: &Connection,
) -> io::Result<()> {
    loop {
        connection.is_resting.set(false);
        if connection.is_killed.get() {
            return Ok(());
        }
        // An error is already in the output.
        let _ = connection.process();
        let (wants_write, wants_read, is_over, goes_on) = {
            let mut state = connection.state.borrow_mut();
            let was_full = state.is_full(connection);
            connection.write_output(&mut state, writer)?;
            let is_over = state.is_closing && state.places.output.is_empty() && state.places.is_empty();
            // While a command waits, its client is listened to: a wait ends when its client is gone.
            let listens = state.is_blocked && state.input.len() < BLOCKED_INPUT_BYTES_MAX;
            let is_full = state.is_full(connection);
            // Whoever stands in line for the node's next turn is called.
            let wants_read = !state.is_closing && !state.is_out_of_breath && (listens || !is_full);
            let reads_on = state.next_read(connection).is_some();
            let goes_on = (was_full && !is_full) || reads_on;
            let wants_write = !state.places.output.is_empty();
            let goes_on = goes_on || (!wants_write && connection.can_push(&state));
            connection.is_resting.set(wants_read && !is_full && !wants_write && !goes_on);
            (wants_write, wants_read, is_over, goes_on)
        };
        if is_over {
            return Ok(());
        }
        if goes_on {
            // Something waits here, and nothing would wake this task for it. Never without a pause: everybody shares one thread.
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            biased;
            () = connection.wake.notified() => {}
            ready = writer.writable(), if wants_write => ready?,
            ready = reader.readable(), if wants_read => {
                ready?;
                // Polled once, never waited for. Unlike `try_read_buf` it knows that a read which did not fill the buffer emptied the
                // socket, and so saves the read that would only say so.
                let read = poll_fn(|context| {
                    let mut state = connection.state.borrow_mut();
                    let State { parser, input, .. } = &mut *state;
                    parser.make_room(input);
                    Poll::Ready(pin!(reader.read_buf(input)).poll(context))
                });
                match read.await {
                    Poll::Ready(Ok(0)) => return Ok(()),
                    Poll::Ready(Ok(read)) => connection.face.stats.borrow_mut().bytes_in += read as u64,
                    Poll::Pending => {}
                    Poll::Ready(Err(error)) => return Err(error),
                }
            }
        }
    }
}
