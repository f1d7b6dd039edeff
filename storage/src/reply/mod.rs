//! What a command answers: a value, not bytes. The server writes it as RESP2 or RESP3.

mod codec;

pub use codec::{DEPTH_MAX, ReplyError, ReplyRoom, waiting_until};

use bytes::Bytes;
use std::borrow::Cow;

/// A reply.
///
/// Types that only RESP3 has are kept here and become what Redis gives RESP2 clients when they are written: a
/// map becomes a flat array, a double a bulk string, a boolean an integer, and so on.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `OK`, the most frequent one.
    Ok,
    /// A simple string. Any bytes: some commands repeat what the client said; whoever writes it takes care of line ends.
    Simple(Bytes),
    /// An error with its prefix: `ERR syntax error`. Any bytes, too.
    Error(Bytes),
    /// An integer.
    Integer(i64),
    /// Any bytes.
    Bulk(Bytes),
    /// Nothing: a null bulk string in RESP2.
    Null,
    /// Nothing where an array was asked for: a null array in RESP2, the same null in RESP3.
    NullArray,
    /// A sequence.
    Array(Vec<Reply>),
    /// Fields and values.
    Map(Vec<(Reply, Reply)>),
    /// Pairs: a flat array in RESP2, an array of arrays of two in RESP3.
    Pairs(Vec<(Reply, Reply)>),
    /// Members without an order.
    Set(Vec<Reply>),
    /// An out-of-band message.
    Push(Vec<Reply>),
    /// A floating-point number.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// An integer that may be larger than 64 bits, in decimal.
    BigNumber(Cow<'static, str>),
    /// Text with a format of three letters: `txt`, `mkd`.
    Verbatim([u8; 3], Bytes),
    /// A hold of a lock: `[token, ms left]` in RESP2, a map in RESP3.
    Granted(Granted),
    /// None yet: the command waits, until this time if it has one (cluster time, milliseconds). Never sent to a client.
    Waiting(Option<u64>),
}

/// What is told about a hold of a lock that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token.
    pub token: u64,
    /// Milliseconds that are left; nothing: as long as its session.
    pub left_ms: Option<u64>,
    /// Whether others may hold it, too.
    pub is_shared: bool,
    /// How often its owner has it.
    pub count: u64,
}

impl Granted {
    /// As an integer of a reply.
    #[must_use]
    pub fn number(number: u64) -> i64 {
        i64::try_from(number).unwrap_or(i64::MAX)
    }

    /// What RESP2 clients get: the token, and the time that is left or -1.
    #[must_use]
    pub fn pair(&self) -> [i64; 2] {
        [Granted::number(self.token), self.left_ms.map_or(-1, Granted::number)]
    }

    /// `exclusive` or `shared`.
    #[must_use]
    pub const fn mode(&self) -> &'static str {
        if self.is_shared { "shared" } else { "exclusive" }
    }

    /// What RESP3 clients get.
    #[must_use]
    pub fn map(&self) -> Reply {
        let [token, left] = self.pair().map(Reply::Integer);
        let text = Reply::simple_bulk;
        Reply::Map(vec![
            (text("token"), token),
            (text("ttl"), left),
            (text("mode"), text(self.mode())),
            (text("count"), Reply::Integer(Granted::number(self.count))),
        ])
    }
}

impl Reply {
    /// An error with a constant text.
    #[must_use]
    pub const fn error(text: &'static str) -> Reply {
        Reply::Error(Bytes::from_static(text.as_bytes()))
    }

    /// A simple string with a constant text.
    #[must_use]
    pub const fn simple(text: &'static str) -> Reply {
        Reply::Simple(Bytes::from_static(text.as_bytes()))
    }

    /// A bulk string with a constant text.
    #[must_use]
    pub const fn simple_bulk(text: &'static str) -> Reply {
        Reply::Bulk(Bytes::from_static(text.as_bytes()))
    }

    /// A bulk string copied from `bytes`.
    #[must_use]
    pub fn bulk(bytes: &[u8]) -> Reply {
        Reply::Bulk(Bytes::copy_from_slice(bytes))
    }

    /// An integer from a count.
    #[must_use]
    pub fn count(count: usize) -> Reply {
        Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// 1 for yes, 0 for no.
    #[must_use]
    pub const fn flag(yes: bool) -> Reply {
        Reply::Integer(yes as i64)
    }

    /// How many bytes it takes on the wire or in the ledger, at most, whatever the protocol.
    #[must_use]
    pub fn bytes_at_most(&self) -> usize {
        // A tag or a header line with a number, and the line end behind the content.
        const FRAME: usize = 32;
        let all = |items: &[Reply]| items.iter().map(Reply::bytes_at_most).sum::<usize>();
        FRAME
            + match self {
                Reply::Simple(bytes)
                | Reply::Error(bytes)
                | Reply::Bulk(bytes)
                | Reply::Verbatim(_, bytes) => bytes.len(),
                Reply::BigNumber(digits) => digits.len(),
                Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => all(items),
                Reply::Map(pairs) | Reply::Pairs(pairs) => {
                    pairs.iter().map(|(field, value)| field.bytes_at_most() + value.bytes_at_most()).sum()
                }
                Reply::Double(_) => 320,
                // Two or eight parts, of which the words are known.
                Reply::Granted(_) => 8 * FRAME,
                Reply::Ok
                | Reply::Integer(_)
                | Reply::Null
                | Reply::NullArray
                | Reply::Boolean(_)
                | Reply::Waiting(_) => 0,
            }
    }

    /// Whether the command failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}
