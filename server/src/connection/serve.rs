//! The bytes of one connection, in and out.
//!
//! A client that does not read its replies is not read from either, and nothing is buffered for it beyond a limit.

use super::{BLOCKED_INPUT_BYTES_MAX, Connection, State};
use bytes::Buf;
use std::io;
use tokio::net::TcpStream;

/// Serves one client until either side has enough.
pub async fn serve(stream: TcpStream, connection: &Connection) {
    // Without it small replies wait for the client's acknowledgement; a socket that refuses is as good as closed.
    let _ = stream.set_nodelay(true);
    // How it ended is the client's business.
    let _ = serve_until_end(&stream, connection).await;
}

async fn serve_until_end(stream: &TcpStream, connection: &Connection) -> io::Result<()> {
    loop {
        if connection.is_killed.get() {
            return Ok(());
        }
        // An error is already in the output.
        let _ = connection.process();
        let (wants_write, wants_read, is_over) = {
            let mut state = connection.state.borrow_mut();
            let output = &mut state.places.output;
            while !output.is_empty() {
                match stream.try_write(output) {
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
            let wants_read = !state.is_closing && (listens || !state.is_full(connection));
            (!state.places.output.is_empty(), wants_read, is_over)
        };
        if is_over {
            return Ok(());
        }
        if !wants_write && !connection.pushed.borrow().is_empty() {
            continue;
        }
        tokio::select! {
            biased;
            () = connection.wake.notified() => {}
            ready = stream.writable(), if wants_write => ready?,
            ready = stream.readable(), if wants_read => {
                ready?;
                let mut state = connection.state.borrow_mut();
                let State { parser, input, .. } = &mut *state;
                parser.make_room(input);
                match stream.try_read_buf(input) {
                    Ok(0) => return Ok(()),
                    Ok(read) => connection.face.stats.borrow_mut().bytes_in += read as u64,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
