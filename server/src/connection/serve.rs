//! The bytes of one connection, in and out.
//!
//! A client that does not read its replies is not read from either, and nothing is buffered for it beyond a limit.

use super::{BLOCKED_INPUT_BYTES_MAX, Connection, State};
use bytes::Buf;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Serves one client until either side has enough.
pub async fn serve(mut stream: TcpStream, connection: &Connection) {
    // Without it small replies wait for the client's acknowledgement; a socket that refuses is as good as closed.
    let _ = stream.set_nodelay(true);
    // How it ended is the client's business.
    let _ = serve_until_end(&mut stream, connection).await;
}

async fn serve_until_end(stream: &mut TcpStream, connection: &Connection) -> io::Result<()> {
    let (mut reader, writer) = stream.split();
    loop {
        if connection.is_killed.get() {
            return Ok(());
        }
        // An error is already in the output.
        let _ = connection.process();
        let (wants_write, wants_read, is_over, goes_on) = {
            let mut state = connection.state.borrow_mut();
            let was_full = state.is_full(connection);
            let output = &mut state.places.output;
            while !output.is_empty() {
                match writer.try_write(output) {
                    Ok(written) => {
                        output.advance(written);
                        connection.face.stats.borrow_mut().bytes_out += written as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            let is_over = state.is_closing && state.places.output.is_empty() && state.places.is_empty();
            // While a command waits, its client is listened to: a wait ends when its client is gone.
            let listens = state.is_blocked && state.input.len() < BLOCKED_INPUT_BYTES_MAX;
            let is_full = state.is_full(connection);
            let wants_read = !state.is_closing && (listens || !is_full);
            let goes_on = (was_full && !is_full) || (state.is_out_of_breath && !state.is_closing);
            (!state.places.output.is_empty(), wants_read, is_over, goes_on)
        };
        if is_over {
            return Ok(());
        }
        if goes_on {
            // Requests may wait in the input, and nothing would wake this task for them.
            tokio::task::yield_now().await;
            continue;
        }
        if !wants_write && connection.has_pushed() {
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
