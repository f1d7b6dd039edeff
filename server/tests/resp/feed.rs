//! Feeds a parser as a connection does, in pieces, and notes what comes out.

use bytes::BytesMut;
use warlock_server::resp::{Limits, Parser, ProtocolError};

/// One request as plain arguments.
pub type Command = Vec<Vec<u8>>;

/// Everything a parser makes of a stream.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub commands: Vec<Command>,
    pub error: Option<ProtocolError>,
}

/// What the buffer may hold beyond four times the bytes that are in it: a few reads.
const ROOM_BYTES_MAX: usize = 64 * 1024;

/// Feeds `stream` in pieces of the given sizes (repeated as needed), each read into the room the parser made.
/// Asserts that memory follows the bytes that arrived, and that an error is final.
pub fn feed(stream: &[u8], piece_sizes: &[usize], limits: Limits, authenticated: bool) -> Outcome {
    let mut parser = Parser::new(limits, authenticated);
    let mut input = BytesMut::new();
    let mut commands = Vec::new();
    let mut buffered_max = 0;
    let mut rest = stream;
    let mut sizes = piece_sizes.iter().copied().cycle();
    while !rest.is_empty() {
        parser.make_room(&mut input);
        let room = input.capacity() - input.len();
        let (read, after) = rest.split_at(sizes.next().unwrap_or(usize::MAX).clamp(1, room.min(rest.len())));
        input.extend_from_slice(read);
        rest = after;
        buffered_max = buffered_max.max(input.len());
        assert!(input.capacity() <= 4 * buffered_max + ROOM_BYTES_MAX, "capacity {}", input.capacity());
        loop {
            match parser.next(&mut input) {
                Ok(None) => break,
                Ok(Some(request)) => {
                    assert_eq!(request.len(), request.iter().count());
                    assert_eq!(Some(request.name()), request.iter().next());
                    commands.push(request.iter().map(<[u8]>::to_vec).collect());
                }
                Err(error) => {
                    assert_eq!(parser.next(&mut input).unwrap_err(), error);
                    return Outcome { commands, error: Some(error) };
                }
            }
        }
    }
    Outcome { commands, error: None }
}

/// As `feed`, for an authenticated client with the default limits.
pub fn feed_default(stream: &[u8], piece_sizes: &[usize]) -> Outcome {
    feed(stream, piece_sizes, Limits::default(), true)
}
