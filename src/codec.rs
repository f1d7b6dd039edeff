//! Bytes of peer messages and journal records: the only place that knows them.
//!
//! A frame on a peer link is `length u32 (of what follows) | version u8 | kind u8 | body`; a journal record is `version u8 | body`. Bodies
//! are postcard. Neither format evolves by itself, hence the version: a node refuses what it does not know instead of
//! guessing.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use consensus::{Address, Message, Record, RoleId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of peer frames.
pub const WIRE_VERSION: u8 = 3;
/// The version of journal records.
const RECORD_VERSION: u8 = 1;
/// Longer frames are refused before anything is allocated for them.
pub const FRAME_BYTES_MAX: usize = 256 << 20;
const KIND_MESSAGE: u8 = 1;
const HEADER: usize = 4;

/// Why bytes make no sense.
#[derive(Debug)]
pub enum CodecError {
    /// A frame is longer than any honest one.
    TooLong(usize),
    /// Another version of the format.
    Version(u8),
    /// An unknown kind of frame.
    Kind(u8),
    /// The body is damaged.
    Body(postcard::Error),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::TooLong(bytes) => write!(f, "a frame of {bytes} bytes is longer than any honest one"),
            CodecError::Version(version) => {
                write!(f, "format version {version} is not {WIRE_VERSION}: the nodes run different releases")
            }
            CodecError::Kind(kind) => write!(f, "unknown kind of frame {kind}"),
            CodecError::Body(error) => write!(f, "damaged frame: {error}"),
        }
    }
}

impl std::error::Error for CodecError {}

#[derive(Serialize)]
struct LetterRef<'a> {
    from: Address,
    role: RoleId,
    message: &'a Message,
}

/// A message as it arrives.
#[derive(Debug, Deserialize)]
pub struct Letter {
    /// Who says it. The link's handshake has proved the node; the role is as the peer says.
    pub from: Address,
    /// For which role.
    pub role: RoleId,
    /// What is said.
    pub message: Message,
}

/// Appends a frame.
pub fn put_frame(from: Address, role: RoleId, message: &Message, out: &mut BytesMut) {
    let start = out.len();
    out.put_u32(0);
    out.put_u8(WIRE_VERSION);
    out.put_u8(KIND_MESSAGE);
    put_postcard(&LetterRef { from, role, message }, out);
    let length = u32::try_from(out.len() - start - HEADER).unwrap_or(u32::MAX);
    out[start..start + HEADER].copy_from_slice(&length.to_be_bytes());
}

/// Takes the next whole frame off the front of `input`.
///
/// # Errors
/// When the bytes are no frame of this version; the link is of no use then.
pub fn take_frame(input: &mut BytesMut) -> Result<Option<Letter>, CodecError> {
    if input.len() < HEADER {
        return Ok(None);
    }
    let length = u32::from_be_bytes([input[0], input[1], input[2], input[3]]) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(CodecError::TooLong(length));
    }
    if input.len() < HEADER + length {
        input.reserve(HEADER + length - input.len());
        return Ok(None);
    }
    input.advance(HEADER);
    let frame = input.split_to(length).freeze();
    match frame.as_ref() {
        [WIRE_VERSION, KIND_MESSAGE, body @ ..] => {
            postcard::from_bytes(body).map(Some).map_err(CodecError::Body)
        }
        [WIRE_VERSION, kind, ..] => Err(CodecError::Kind(*kind)),
        [version, ..] => Err(CodecError::Version(*version)),
        [] => Err(CodecError::Version(0)),
    }
}

/// A journal record's bytes.
#[must_use]
pub fn record_to_bytes(record: &Record) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    out.put_u8(RECORD_VERSION);
    put_postcard(record, &mut out);
    out.freeze()
}

/// Reads a journal record.
///
/// # Errors
/// When another release wrote it, or it is damaged (which the journal's checksum makes unlikely).
pub fn record_from_bytes(bytes: &[u8]) -> Result<Record, CodecError> {
    match bytes {
        [RECORD_VERSION, body @ ..] => postcard::from_bytes(body).map_err(CodecError::Body),
        [version, ..] => Err(CodecError::Version(*version)),
        [] => Err(CodecError::Version(0)),
    }
}

/// Any serde value as bytes, for what is kept in snapshots.
#[must_use]
pub fn to_bytes<T: Serialize>(value: &T) -> Bytes {
    let mut out = BytesMut::new();
    put_postcard(value, &mut out);
    out.freeze()
}

/// The other way round.
///
/// # Errors
/// When the bytes are damaged.
pub fn from_bytes<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, CodecError> {
    postcard::from_bytes(bytes).map_err(CodecError::Body)
}

struct Sink<'a>(&'a mut BytesMut);

impl postcard::ser_flavors::Flavor for Sink<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.put_u8(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn put_postcard<T: Serialize>(value: &T, out: &mut BytesMut) {
    let written = postcard::serialize_with_flavor(value, Sink(out));
    assert!(written.is_ok(), "codec: a value of ours cannot be encoded: {written:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::{Ballot, NodeId};

    fn frame() -> BytesMut {
        let ballot = Ballot { view: 1, round: 2, leader: NodeId(3) };
        let from = Address { node: NodeId(3), role: RoleId::Leader };
        let mut out = BytesMut::new();
        put_frame(from, RoleId::Acceptor, &Message::Probe { ballot }, &mut out);
        out
    }

    #[test]
    fn a_frame_comes_back_whole_however_it_is_cut() {
        let bytes = frame();
        let mut input = BytesMut::new();
        for (index, byte) in bytes.iter().enumerate() {
            assert!(matches!(take_frame(&mut input), Ok(None)), "after {index} bytes");
            input.put_u8(*byte);
        }
        let letter = take_frame(&mut input);
        assert!(matches!(letter, Ok(Some(Letter { role: RoleId::Acceptor, .. }))), "{letter:?}");
        assert!(input.is_empty());
    }

    #[test]
    fn nonsense_is_refused_before_it_is_buffered() {
        let mut long = BytesMut::from(&[0xff, 0xff, 0xff, 0xff, 1][..]);
        assert!(matches!(take_frame(&mut long), Err(CodecError::TooLong(_))));
        let mut other = frame();
        other[4] = 99;
        assert!(matches!(take_frame(&mut other), Err(CodecError::Version(99))));
        for at in 6..frame().len() {
            let mut damaged = frame();
            damaged[at] ^= 0x80;
            let _ = take_frame(&mut damaged); // an error or another message, never a panic
        }
        assert!(record_from_bytes(&[]).is_err());
    }
}
