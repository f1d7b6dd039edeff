//! The request parser.
//!
//! It leaves a request's bytes in the read buffer until the request is complete, and remembers how far it has
//! understood them, so that no byte is looked at twice however the input arrives (a header line of at most 64
//! bytes excepted). Then the arguments are taken out in one piece.

use bytes::{Buf, Bytes, BytesMut};

use super::error::ProtocolError;
use super::inline::split_line;
use super::limits::{HEADER_BYTES_MAX, INLINE_BYTES_MAX, Limits};
use super::number::parse_integer;
use super::request::{Request, Spans};

/// From this size on a request keeps the buffer it was read into; below, copying it out is cheaper than pinning
/// a read buffer with, perhaps, many other requests in it.
const KEEP_BUFFER_BYTES_MIN: usize = 32 * 1024;

/// The usual room for a read. Large enough that a pipeline of small commands needs few system calls.
const READ_BYTES: usize = 16 * 1024;

/// An incremental parser of one connection's requests.
///
/// ```
/// # use bytes::BytesMut;
/// # use warlock_server::resp::{Limits, Parser};
/// let mut parser = Parser::new(Limits::default(), true);
/// let mut input = BytesMut::from(&b"*2\r\n$3\r\nGET\r\n$1\r"[..]);
/// assert!(parser.next(&mut input)?.is_none());
/// input.extend_from_slice(b"\nk\r\nPING\r\n");
/// let get = parser.next(&mut input)?.ok_or("incomplete")?;
/// assert_eq!((get.name(), get.arg(1)), (&b"GET"[..], Some(&b"k"[..])));
/// let ping = parser.next(&mut input)?.ok_or("incomplete")?;
/// assert_eq!((ping.name(), ping.len()), (&b"PING"[..], 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    authenticated: bool,
    state: State,
    /// Bytes at the start of the buffer that are understood. They belong to the unfinished request.
    position: usize,
    /// The finished arguments of the unfinished request.
    spans: Spans,
}

/// What comes next in the buffer, at `position`.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The first byte of a request.
    Start,
    /// The rest of a line of text; up to `position` there is no line end in it.
    Inline,
    /// The line with the number of arguments.
    ArrayHeader,
    /// The line with the length of the next argument; this many are missing, that one included.
    BulkHeader { missing: usize },
    /// The bytes of an argument and CR LF.
    Bulk { missing: usize, length: usize },
    /// The stream is broken for good.
    Failed(ProtocolError),
}

impl Parser {
    /// A parser for a new connection. `authenticated` says whether the client needs no AUTH (any more).
    pub fn new(limits: Limits, authenticated: bool) -> Self {
        // Spans count bytes in 32 bits.
        let request_bytes_max = limits.request_bytes_max.min(u32::MAX as usize);
        let limits = Limits { request_bytes_max, ..limits };
        Parser { limits, authenticated, state: State::Start, position: 0, spans: Spans::default() }
    }

    /// Lifts the tighter limits after AUTH, or puts them back after RESET.
    ///
    /// They are applied when a length is read. So while a client is not authenticated, execute each request
    /// before asking for the next: an AUTH may lead a pipeline of larger commands.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// Takes the next complete request out of `input`, or `None` until more bytes have arrived.
    ///
    /// Always pass the same buffer, and only append to it. Empty requests (`*0`, `*-1`, blank lines) are skipped,
    /// as Redis does. Once there was an error, the same error is returned for ever.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        let outcome = self.step_until_request(input);
        if let Err(error) = outcome {
            self.state = State::Failed(error);
        }
        outcome
    }

    /// Makes room in `input` for the next read.
    ///
    /// A large argument gets room for all of its missing bytes, but never for more than have arrived already: a
    /// client that announces 64 MB and sends nothing costs nothing, and the buffer still grows in few steps. The
    /// capacity stays below four times the bytes in it, or a few reads.
    pub fn make_room(&self, input: &mut BytesMut) {
        if input.capacity() - input.len() >= READ_BYTES / 4 {
            // Enough for a good read. Asking for more each time would double the buffer again and again.
            return;
        }
        let missing = match self.state {
            State::Bulk { length, .. } => (self.position + length + 2).saturating_sub(input.len()),
            _ => 0,
        };
        input.reserve(missing.min(input.len()).max(READ_BYTES));
    }

    fn step_until_request(&mut self, input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        loop {
            match self.state {
                State::Start => match input.first() {
                    None => return Ok(None),
                    Some(b'*') => self.state = State::ArrayHeader,
                    Some(_) => self.state = State::Inline,
                },
                State::Inline => match self.read_inline(input)? {
                    Line::Incomplete => return Ok(None),
                    Line::Blank => {}
                    Line::Request(request) => return Ok(Some(request)),
                },
                State::ArrayHeader => {
                    if !self.read_array_header(input)? {
                        return Ok(None);
                    }
                }
                State::BulkHeader { missing: 0 } => return Ok(Some(self.take_request(input))),
                State::BulkHeader { missing } => {
                    if !self.read_bulk_header(input, missing)? {
                        return Ok(None);
                    }
                }
                State::Bulk { missing, length } => {
                    if !self.read_bulk(input, missing, length)? {
                        return Ok(None);
                    }
                }
                State::Failed(error) => return Err(error),
            }
        }
    }

    /// Reads `*<count>`; false if it is incomplete.
    #[inline]
    fn read_array_header(&mut self, input: &mut BytesMut) -> Result<bool, ProtocolError> {
        let (number, bytes) = match read_header(input) {
            Header::Incomplete => return Ok(false),
            Header::TooBig => return Err(ProtocolError::TooBigMultibulkHeader),
            Header::Line { number, bytes } => (number, bytes),
        };
        let count = number.ok_or(ProtocolError::InvalidMultibulkLength)?;
        let Ok(count) = usize::try_from(count) else {
            self.skip(input, bytes);
            return Ok(true);
        };
        if count > self.limits.arguments_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if !self.authenticated && count > self.limits.unauthenticated_arguments_max {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        if count == 0 {
            self.skip(input, bytes);
        } else {
            self.position = bytes;
            self.state = State::BulkHeader { missing: count };
        }
        Ok(true)
    }

    /// Reads `$<length>`; false if it is incomplete.
    #[inline]
    fn read_bulk_header(&mut self, input: &BytesMut, missing: usize) -> Result<bool, ProtocolError> {
        let line = input.get(self.position..).unwrap_or_default();
        let header = read_header(line);
        if matches!(header, Header::Incomplete) {
            return Ok(false);
        }
        if let Some(first) = line.first().filter(|first| **first != b'$') {
            return Err(ProtocolError::ExpectedBulk(*first));
        }
        let Header::Line { number, bytes } = header else {
            return Err(ProtocolError::TooBigBulkHeader);
        };
        let length = number.and_then(|number| usize::try_from(number).ok());
        let length = length.ok_or(ProtocolError::InvalidBulkLength)?;
        if length > self.limits.bulk_bytes_max {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if !self.authenticated && length > self.limits.unauthenticated_bulk_bytes_max {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        self.position += bytes;
        // Every position below is thereby below 4 GiB, and no sum of them overflows.
        let end = length.saturating_add(self.position + 2);
        if end > self.limits.request_bytes_max {
            return Err(ProtocolError::TooBigRequest);
        }
        self.state = State::Bulk { missing, length };
        Ok(true)
    }

    /// Reads an argument's bytes and its CR LF; false if they are incomplete.
    #[inline]
    fn read_bulk(&mut self, input: &BytesMut, missing: usize, length: usize) -> Result<bool, ProtocolError> {
        let end = self.position + length;
        let Some(terminator) = input.get(end..end + 2) else {
            return Ok(false);
        };
        if terminator != b"\r\n" {
            return Err(ProtocolError::UnterminatedBulk);
        }
        self.spans.push(self.position, length);
        self.position = end + 2;
        self.state = State::BulkHeader { missing: missing - 1 };
        Ok(true)
    }

    /// Takes the finished request out of the buffer.
    fn take_request(&mut self, input: &mut BytesMut) -> Request {
        let bytes = self.position;
        // A buffer much larger than the request would be pinned by it, so then copy as well.
        let keep_buffer = bytes >= KEEP_BUFFER_BYTES_MIN && bytes >= input.capacity() / 2;
        let block = if keep_buffer {
            input.split_to(bytes).freeze()
        } else {
            let block = Bytes::copy_from_slice(&input[..bytes]);
            input.advance(bytes);
            block
        };
        if bytes >= KEEP_BUFFER_BYTES_MIN && input.len() < KEEP_BUFFER_BYTES_MIN {
            // Let go of the large buffer, or an idle connection would hold it for its next read.
            *input = BytesMut::from(&input[..]);
        }
        self.position = 0;
        self.state = State::Start;
        Request::new(block, std::mem::take(&mut self.spans))
    }

    fn read_inline(&mut self, input: &mut BytesMut) -> Result<Line, ProtocolError> {
        let unseen = input.get(self.position..).unwrap_or_default();
        let window = unseen.get(..INLINE_BYTES_MAX + 1 - self.position).unwrap_or(unseen);
        let Some(offset) = window.iter().position(|byte| *byte == b'\n') else {
            self.position += window.len();
            if self.position > INLINE_BYTES_MAX {
                return Err(ProtocolError::TooBigInline);
            }
            return Ok(Line::Incomplete);
        };
        let end = self.position + offset;
        let line = input.get(..end).unwrap_or_default();
        let request = split_line(line.strip_suffix(b"\r").unwrap_or(line))?;
        self.skip(input, end + 1);
        Ok(request.map_or(Line::Blank, Line::Request))
    }

    /// Drops the first `bytes` of the buffer and starts anew behind them.
    fn skip(&mut self, input: &mut BytesMut, bytes: usize) {
        input.advance(bytes);
        self.position = 0;
        self.state = State::Start;
    }
}

/// What an attempt to read an inline command gave.
enum Line {
    Incomplete,
    Blank,
    Request(Request),
}

/// What an attempt to read a header line gave. `bytes` is the line's length with its end; `number` is absent if
/// what follows the first byte is none.
enum Header {
    Incomplete,
    TooBig,
    Line { number: Option<i64>, bytes: usize },
}

#[inline]
fn read_header(line: &[u8]) -> Header {
    // Nearly all headers have one or two digits.
    match line {
        [_, digit @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Header::Line { number: Some(i64::from(digit - b'0')), bytes: 4 };
        }
        [_, tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Header::Line {
                number: Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0')),
                bytes: 5,
            };
        }
        _ => {}
    }
    read_long_header(line)
}

fn read_long_header(line: &[u8]) -> Header {
    // One byte more than the line may have, so that the CR behind the longest line is seen.
    let window = line.get(..HEADER_BYTES_MAX + 1).unwrap_or(line);
    let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
        return if line.len() > HEADER_BYTES_MAX { Header::TooBig } else { Header::Incomplete };
    };
    match line.get(end + 1) {
        None => Header::Incomplete,
        Some(b'\n') => Header::Line { number: line.get(1..end).and_then(parse_integer), bytes: end + 2 },
        Some(_) => Header::Line { number: None, bytes: end + 2 },
    }
}
