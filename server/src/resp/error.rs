//! Protocol errors: the request stream cannot be understood any further.

use std::fmt;

use bytes::BytesMut;

use super::encode::{Encoder, Protocol};

/// Why a request stream is malformed. The texts are those of Redis 7, because client libraries and their tests
/// compare them; the last two variants have no counterpart there (see the module's list of differences).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// An inline command without a line end within the limit.
    TooBigInline,
    /// A quote that is not closed, or is followed by something else than a space.
    UnbalancedQuotes,
    /// The array header has no line end within the limit.
    TooBigMultibulkHeader,
    /// The array header is not a number, or asks for too many arguments.
    InvalidMultibulkLength,
    /// Too many arguments for a client that has not authenticated.
    UnauthenticatedMultibulkLength,
    /// A bulk header has no line end within the limit.
    TooBigBulkHeader,
    /// An argument that starts with this byte: not a bulk string.
    ExpectedBulk(u8),
    /// The bulk header is not a number, is negative, or too large.
    InvalidBulkLength,
    /// Too large an argument for a client that has not authenticated.
    UnauthenticatedBulkLength,
    /// The announced number of bytes is not followed by CR LF.
    UnterminatedBulk,
    /// The request as a whole is too large.
    TooBigRequest,
}

impl ProtocolError {
    /// Appends the error reply, after which the connection closes.
    pub fn put(self, out: &mut BytesMut) {
        let mut encoder = Encoder::new(out, Protocol::Resp2);
        match self {
            // Redis sends the byte as it came, which need not be UTF-8, so `Display` cannot be used.
            ProtocolError::ExpectedBulk(got) => {
                let mut text = *b"ERR Protocol error: expected '$', got '?'";
                let at = text.len() - 2;
                text[at] = got;
                encoder.put_error(&text);
            }
            _ => encoder.put_error(format!("ERR {self}").as_bytes()),
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match self {
            ProtocolError::TooBigInline => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::TooBigMultibulkHeader => "too big mbulk count string",
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::TooBigBulkHeader => "too big bulk count string",
            ProtocolError::ExpectedBulk(got) => {
                return write!(f, "expected '$', got '{}'", got.escape_ascii());
            }
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::UnterminatedBulk => "bulk string without CRLF at its end",
            ProtocolError::TooBigRequest => "too big request",
        })
    }
}

impl std::error::Error for ProtocolError {}
