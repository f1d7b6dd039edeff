//! RESP, the wire protocol of Redis: requests in, replies out. No sockets here.
//!
//! * [`Parser`] turns a growing buffer into [`Request`]s. It keeps its place between reads, checks every
//!   announced length against [`Limits`] before anything is buffered for it, and gives Redis 7's error texts.
//! * [`Encoder`] appends replies to one buffer, in RESP2 or RESP3.
//!
//! What holds, whatever a client sends:
//!
//! * No input panics or recurses. A request is one array of bulk strings, or one line.
//! * How the input is cut into reads does not change the outcome: the same requests, then the same error.
//! * Memory follows the bytes that arrived, not the lengths that were announced.
//! * After an error the parser stays failed; the connection sends the error and closes.
//!
//! Differences from Redis 7, each of them stricter or kinder to a mistaken client:
//!
//! * A bulk string that does not end in CR LF is an error (Redis skips any two bytes and executes a command
//!   that the client did not mean), and so is a bare CR inside a header line.
//! * A header line may have 64 bytes, not 64 KiB, and an array 1 Mi arguments, not 2 Gi.
//! * The sum of a request's bytes is limited, with an error in place of Redis's silent close.
//! * A NUL byte in an inline command is an ordinary byte (Redis waits for more input until the line is too big).
//!
//! The crate `redis-protocol` is the oracle of our tests only. As a server's parser it can be crashed by nested
//! arrays, has no limits, and starts again after each read.

mod encode;
mod error;
mod inline;
mod limits;
mod number;
mod parse;
mod request;

pub use encode::{Encoder, Protocol};
pub use error::ProtocolError;
pub use limits::{HEADER_BYTES_MAX, INLINE_BYTES_MAX, Limits};
pub use parse::Parser;
pub use request::{Arguments, Request};
