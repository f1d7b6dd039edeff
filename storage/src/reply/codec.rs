//! Replies as bytes, compact and the same for ever: they are remembered for clients that ask again, and travel in snapshots.
//!
//! A reply is a tag byte and its content; lengths and integers are varints (integers zigzag). `OK` is one byte. Decoding is strict: one
//! encoding per value, nothing left over, no allocation larger than the input justifies, and at most [`DEPTH_MAX`] levels.

use super::{Granted, Reply};
use crate::varint;
use bytes::{Bytes, BytesMut};
use std::fmt;

/// How deeply replies may be nested. Nothing of ours goes beyond five; scripts can.
pub const DEPTH_MAX: usize = 64;

const OK: u8 = 0;
const SIMPLE: u8 = 1;
const ERROR: u8 = 2;
const INTEGER: u8 = 3;
const BULK: u8 = 4;
const NULL: u8 = 5;
const NULL_ARRAY: u8 = 6;
const ARRAY: u8 = 7;
const MAP: u8 = 8;
const SET: u8 = 9;
const PUSH: u8 = 10;
const DOUBLE: u8 = 11;
const FALSE: u8 = 12;
const TRUE: u8 = 13;
const BIG_NUMBER: u8 = 14;
const VERBATIM: u8 = 15;
/// Small integers, the second most frequent reply, are one byte: `SMALL + n`.
const SMALL: u8 = 16;
const SMALL_MAX: i64 = 111;
const PAIRS: u8 = 128;
const WAITING: u8 = 129;
const GRANTED: u8 = 130;

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// They end too early, or a length is larger than what follows.
    Truncated,
    /// A tag, number or text that no encoder writes.
    Malformed,
    /// Nested more deeply than [`DEPTH_MAX`].
    TooDeep,
    /// Bytes after the reply.
    Trailing,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyError::Truncated => "the reply ends too early",
            ReplyError::Malformed => "the reply has an unknown or irregular part",
            ReplyError::TooDeep => "the reply is nested too deeply",
            ReplyError::Trailing => "there are bytes after the reply",
        })
    }
}

impl std::error::Error for ReplyError {}

/// Whether `bytes` are [`Reply::Waiting`], and until when.
#[must_use]
pub fn waiting_until(bytes: &[u8]) -> Option<Option<u64>> {
    match bytes {
        [WAITING, until @ ..] => Some(varint::take(&mut &*until)?.checked_sub(1)),
        _ => None,
    }
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Replies that are longer have bytes of their own.
const SHORT_BYTES_MAX: usize = 64;
/// What is allocated for many short ones. A reply keeps all of it, so it is not large.
const ROOM_BYTES: usize = 2_048;

/// Room for short replies; see [`Reply::to_bytes_in`].
#[derive(Debug, Default)]
pub struct ReplyRoom {
    scratch: Vec<u8>,
    rest: BytesMut,
}

impl Granted {
    fn numbers(&self) -> [u64; 3] {
        [self.token, self.left_ms.map_or(0, |ms| ms.saturating_add(1)), self.count]
    }
}

impl Reply {
    /// Appends the reply. What is nested more deeply than [`DEPTH_MAX`] becomes an error in its place.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_at(out, DEPTH_MAX);
    }

    fn encode_at(&self, out: &mut Vec<u8>, depth_left: usize) {
        let Some(below) = depth_left.checked_sub(1) else {
            return put_bytes(out, ERROR, b"ERR reply is nested too deeply");
        };
        let put_list = |out: &mut Vec<u8>, tag, items: &[Reply]| {
            out.push(tag);
            varint::put(out, items.len() as u64);
            items.iter().for_each(|item| item.encode_at(out, below));
        };
        match self {
            Reply::Ok => out.push(OK),
            Reply::Simple(text) => put_bytes(out, SIMPLE, text),
            Reply::Error(text) => put_bytes(out, ERROR, text),
            // The cast is exact: the number is at most 111.
            Reply::Integer(n @ 0..=SMALL_MAX) => out.push(SMALL + *n as u8),
            Reply::Integer(n) => {
                out.push(INTEGER);
                varint::put(out, varint::zigzag(*n));
            }
            Reply::Bulk(bytes) => put_bytes(out, BULK, bytes),
            Reply::Null => out.push(NULL),
            Reply::NullArray => out.push(NULL_ARRAY),
            Reply::Array(items) => put_list(out, ARRAY, items),
            Reply::Set(items) => put_list(out, SET, items),
            Reply::Push(items) => put_list(out, PUSH, items),
            Reply::Map(pairs) | Reply::Pairs(pairs) => {
                out.push(if matches!(self, Reply::Map(_)) { MAP } else { PAIRS });
                varint::put(out, pairs.len() as u64);
                for (field, value) in pairs {
                    field.encode_at(out, below);
                    value.encode_at(out, below);
                }
            }
            Reply::Granted(granted) => {
                out.extend([GRANTED, u8::from(granted.is_shared)]);
                granted.numbers().into_iter().for_each(|number| varint::put(out, number));
            }
            Reply::Waiting(until_ms) => {
                out.push(WAITING);
                varint::put(out, until_ms.map_or(0, |ms| ms.saturating_add(1)));
            }
            Reply::Double(number) => {
                out.push(DOUBLE);
                out.extend_from_slice(&number.to_bits().to_be_bytes());
            }
            Reply::Boolean(yes) => out.push(if *yes { TRUE } else { FALSE }),
            Reply::BigNumber(digits) => put_bytes(out, BIG_NUMBER, digits.as_bytes()),
            Reply::Verbatim(format, text) => {
                out.push(VERBATIM);
                out.extend_from_slice(format);
                varint::put(out, text.len() as u64);
                out.extend_from_slice(text);
            }
        }
    }

    /// The answers of almost every write, which cost no allocation.
    fn known(&self) -> Option<Bytes> {
        match self {
            Reply::Ok => Some(Bytes::from_static(&[OK])),
            Reply::Null => Some(Bytes::from_static(&[NULL])),
            Reply::Integer(0) => Some(Bytes::from_static(&[SMALL])),
            Reply::Integer(1) => Some(Bytes::from_static(&[SMALL + 1])),
            _ => None,
        }
    }

    /// The reply as bytes of its own.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.known().unwrap_or_else(|| {
            let mut out = Vec::new();
            self.encode(&mut out);
            out.into()
        })
    }

    /// The same, in `room` if it is short: replies that come and go together share what is allocated.
    #[must_use]
    pub fn to_bytes_in(&self, room: &mut ReplyRoom) -> Bytes {
        self.known().unwrap_or_else(|| {
            room.scratch.clear();
            self.encode(&mut room.scratch);
            if room.scratch.len() > SHORT_BYTES_MAX {
                return std::mem::take(&mut room.scratch).into();
            }
            if room.rest.capacity() < room.scratch.len() {
                room.rest = BytesMut::with_capacity(ROOM_BYTES);
            }
            room.rest.extend_from_slice(&room.scratch);
            room.rest.split().freeze()
        })
    }

    /// The reply that `bytes` are.
    pub fn decode(bytes: &[u8]) -> Result<Reply, ReplyError> {
        let mut rest = bytes;
        let reply = decode_at(&mut rest, DEPTH_MAX)?;
        if rest.is_empty() { Ok(reply) } else { Err(ReplyError::Trailing) }
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], ReplyError> {
    let (taken, left) = rest.split_at_checked(count).ok_or(ReplyError::Truncated)?;
    *rest = left;
    Ok(taken)
}

fn take_number(rest: &mut &[u8]) -> Result<u64, ReplyError> {
    varint::take(rest).ok_or(ReplyError::Malformed)
}

/// A length that what follows can still hold: nothing is allocated for a lie.
fn take_length(rest: &mut &[u8]) -> Result<usize, ReplyError> {
    let length = usize::try_from(take_number(rest)?).map_err(|_| ReplyError::Truncated)?;
    if length <= rest.len() { Ok(length) } else { Err(ReplyError::Truncated) }
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ReplyError> {
    let length = take_length(rest)?;
    take(rest, length)
}

fn take_text(rest: &mut &[u8]) -> Result<std::borrow::Cow<'static, str>, ReplyError> {
    let text = std::str::from_utf8(take_bytes(rest)?).map_err(|_| ReplyError::Malformed)?;
    Ok(text.to_owned().into())
}

fn take_list(rest: &mut &[u8], depth_left: usize) -> Result<Vec<Reply>, ReplyError> {
    let count = take_length(rest)?;
    (0..count).map(|_| decode_at(rest, depth_left)).collect()
}

fn decode_at(rest: &mut &[u8], depth_left: usize) -> Result<Reply, ReplyError> {
    let below = depth_left.checked_sub(1);
    let tag = take(rest, 1)?[0];
    Ok(match tag {
        OK => Reply::Ok,
        SIMPLE => Reply::Simple(Bytes::copy_from_slice(take_bytes(rest)?)),
        ERROR => Reply::Error(Bytes::copy_from_slice(take_bytes(rest)?)),
        INTEGER => match varint::unzigzag(take_number(rest)?) {
            0..=SMALL_MAX => return Err(ReplyError::Malformed),
            n => Reply::Integer(n),
        },
        BULK => Reply::bulk(take_bytes(rest)?),
        NULL => Reply::Null,
        NULL_ARRAY => Reply::NullArray,
        ARRAY => Reply::Array(take_list(rest, below.ok_or(ReplyError::TooDeep)?)?),
        SET => Reply::Set(take_list(rest, below.ok_or(ReplyError::TooDeep)?)?),
        PUSH => Reply::Push(take_list(rest, below.ok_or(ReplyError::TooDeep)?)?),
        MAP | PAIRS => {
            let below = below.ok_or(ReplyError::TooDeep)?;
            let count = take_length(rest)?;
            let pair = |_| Ok((decode_at(rest, below)?, decode_at(rest, below)?));
            let pairs = (0..count).map(pair).collect::<Result<_, ReplyError>>()?;
            if tag == MAP { Reply::Map(pairs) } else { Reply::Pairs(pairs) }
        }
        GRANTED => {
            let is_shared = match take(rest, 1)?[0] {
                0 => false,
                1 => true,
                _ => return Err(ReplyError::Malformed),
            };
            let (token, left) = (take_number(rest)?, take_number(rest)?);
            Reply::Granted(Granted {
                token,
                left_ms: left.checked_sub(1),
                is_shared,
                count: take_number(rest)?,
            })
        }
        WAITING => Reply::Waiting(take_number(rest)?.checked_sub(1)),
        DOUBLE => {
            let bits = take(rest, 8)?.try_into().map_err(|_| ReplyError::Truncated)?;
            Reply::Double(f64::from_bits(u64::from_be_bytes(bits)))
        }
        FALSE => Reply::Boolean(false),
        TRUE => Reply::Boolean(true),
        BIG_NUMBER => Reply::BigNumber(take_text(rest)?),
        VERBATIM => {
            let format = take(rest, 3)?.try_into().map_err(|_| ReplyError::Truncated)?;
            Reply::Verbatim(format, Bytes::copy_from_slice(take_bytes(rest)?))
        }
        small if (SMALL..=SMALL + SMALL_MAX as u8).contains(&small) => {
            Reply::Integer(i64::from(small - SMALL))
        }
        _ => return Err(ReplyError::Malformed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            Just(Reply::Ok),
            Just(Reply::Null),
            Just(Reply::NullArray),
            ".{0,20}".prop_map(|text| Reply::Simple(text.into())),
            ".{0,20}".prop_map(|text| Reply::Error(text.into())),
            any::<i64>().prop_map(Reply::Integer),
            (-5..120_i64).prop_map(Reply::Integer),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Reply::bulk(&bytes)),
            any::<bool>().prop_map(Reply::Boolean),
            prop::option::of(0..u64::MAX).prop_map(Reply::Waiting),
            (-1e9..1e9).prop_map(Reply::Double),
            "-?[0-9]{1,30}".prop_map(|digits| Reply::BigNumber(digits.into())),
            ".{0,9}".prop_map(|text| Reply::Verbatim(*b"txt", text.into())),
            (any::<u64>(), prop::option::of(0..u64::MAX), any::<bool>(), 1..300_u64).prop_map(
                |(token, left_ms, is_shared, count)| Reply::Granted(Granted {
                    token,
                    left_ms,
                    is_shared,
                    count
                })
            ),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Reply::Array),
                prop::collection::vec(inner.clone(), 0..8).prop_map(Reply::Set),
                prop::collection::vec(inner.clone(), 0..8).prop_map(Reply::Push),
                prop::collection::vec((inner.clone(), inner.clone()), 0..8).prop_map(Reply::Map),
                prop::collection::vec((inner.clone(), inner.clone()), 0..8).prop_map(Reply::Pairs),
            ]
        })
    }

    proptest! {
        #[test]
        fn survives(reply in reply()) {
            let bytes = reply.to_bytes();
            // Of the same room, before and behind others.
            let mut room = ReplyRoom::default();
            let before = Reply::Integer(112).to_bytes_in(&mut room);
            let many: Vec<Bytes> = (0..300).map(|_| reply.to_bytes_in(&mut room)).collect();
            prop_assert!(many.iter().all(|one| *one == bytes) && before == Reply::Integer(112).to_bytes());
            prop_assert_eq!(Reply::decode(&bytes), Ok(reply));
            for end in 0..bytes.len() {
                prop_assert!(Reply::decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(reply) = Reply::decode(&bytes) {
                // One encoding per value. (A NaN is not equal to itself, so the bytes are compared.)
                prop_assert_eq!(&reply.to_bytes()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn frequent_replies_are_one_byte() {
        assert_eq!(Reply::Ok.to_bytes(), &[0][..]);
        assert_eq!(Reply::Null.to_bytes(), &[5][..]);
        assert_eq!(Reply::Integer(0).to_bytes(), &[16][..]);
        assert_eq!(Reply::Integer(111).to_bytes(), &[127][..]);
        assert_eq!(Reply::Integer(112).to_bytes(), &[3, 0xE0, 1][..]);
    }

    #[test]
    fn depth_is_limited_on_both_sides() {
        let nest = |levels| (0..levels).fold(Reply::Ok, |inner, _| Reply::Array(vec![inner]));
        let fits = nest(DEPTH_MAX - 1);
        assert_eq!(Reply::decode(&fits.to_bytes()), Ok(fits));
        assert!(Reply::decode(&nest(10_000).to_bytes()).is_ok());
        assert_eq!(Reply::decode(&[ARRAY, 1].repeat(100_000)), Err(ReplyError::TooDeep));
        assert_eq!(Reply::decode(&[ARRAY, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]), Err(ReplyError::Truncated));
    }
}
