//! A command as it is replicated: `01 · database¹ · count · (length · bytes)…`, numbers as varints; or, with the connection that sent it, for commands
//! that remember it, `02 · database¹ · connection · length · address · count · …`.
//!
//! Decoding copies nothing, allocates nothing for usual commands, and takes any bytes without a panic: a log entry that is wrong is
//! an error *reply*, the same on every node.

use crate::machine::DATABASES;
use crate::machine::waits::Client;
use crate::row::SmallBytes;
use crate::varint;
use arrayvec::ArrayVec;
use bytes::Bytes;

/// Of the format and of the meaning of the commands in it.
const VERSION: u8 = 1;
/// The same, with the connection.
const VERSION_OF_CLIENT: u8 = 2;

/// With no more arguments than this, decoding does not allocate.
const INLINE_ARGS: usize = 8;

/// The name and arguments of a command for database `db`, as bytes to replicate.
#[must_use]
pub fn encode_command<A: AsRef<[u8]>>(db: u8, args: &[A]) -> Bytes {
    encode(db, None, args)
}

/// The same, with the connection that sent it: its number and its address.
#[must_use]
pub fn encode_command_of<A: AsRef<[u8]>>(db: u8, id: u64, address: &[u8], args: &[A]) -> Bytes {
    encode(db, Some((id, address)), args)
}

fn encode<A: AsRef<[u8]>>(db: u8, client: Option<(u64, &[u8])>, args: &[A]) -> Bytes {
    // Exactly as much as is needed: bytes with room left over cost a second allocation when they become shared.
    let with_length = |length: usize| varint::length(length as u64) + length;
    let head = client.map_or(0, |(id, address)| varint::length(id) + with_length(address.len()));
    let words: usize = args.iter().map(|arg| with_length(arg.as_ref().len())).sum();
    let mut out = Vec::with_capacity(2 + head + varint::length(args.len() as u64) + words);
    match client {
        None => out.extend([VERSION, db]),
        Some((id, address)) => {
            out.extend([VERSION_OF_CLIENT, db]);
            varint::put(&mut out, id);
            varint::put(&mut out, address.len() as u64);
            out.extend_from_slice(address);
        }
    }
    varint::put(&mut out, args.len() as u64);
    for arg in args {
        varint::put(&mut out, arg.as_ref().len() as u64);
        out.extend_from_slice(arg.as_ref());
    }
    out.into()
}

/// A decoded command: slices of its payload.
pub(crate) struct Decoded<'p> {
    pub(crate) db: u8,
    client: Option<(u64, &'p [u8])>,
    few: ArrayVec<&'p [u8], INLINE_ARGS>,
    many: Vec<&'p [u8]>,
}

impl<'p> Decoded<'p> {
    /// The connection that sent it, if it is told.
    pub(crate) fn client(&self) -> Client {
        self.client
            .map_or_else(Client::default, |(id, address)| Client { id, address: SmallBytes::new(address) })
    }

    /// The name and the arguments.
    pub(crate) fn args(&self) -> &[&'p [u8]] {
        if self.many.is_empty() { &self.few } else { &self.many }
    }
}

/// The command in `payload`; nothing if there is none.
pub(crate) fn decode_command(payload: &[u8]) -> Option<Decoded<'_>> {
    let (&[version, db], mut rest) = payload.split_first_chunk()?;
    let client = match version {
        VERSION => None,
        VERSION_OF_CLIENT => {
            let id = varint::take(&mut rest)?;
            let length = usize::try_from(varint::take(&mut rest)?).ok()?;
            let (address, left) = rest.split_at_checked(length)?;
            rest = left;
            Some((id, address))
        }
        _ => return None,
    };
    let count = usize::try_from(varint::take(&mut rest)?).ok()?;
    // Each argument takes at least the byte of its length, so a false count allocates nothing.
    if usize::from(db) >= DATABASES || count == 0 || count > rest.len() {
        return None;
    }
    let mut command = Decoded { db, client, few: ArrayVec::new(), many: Vec::new() };
    if count > INLINE_ARGS {
        command.many.reserve_exact(count);
    }
    for _ in 0..count {
        let length = usize::try_from(varint::take(&mut rest)?).ok()?;
        let (arg, left) = rest.split_at_checked(length)?;
        rest = left;
        if count > INLINE_ARGS { command.many.push(arg) } else { command.few.push(arg) }
    }
    rest.is_empty().then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn survives(
            db in 0..DATABASES as u8,
            args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
        ) {
            let payload = if db % 2 == 0 { encode_command(db, &args) } else { encode_command_of(db, 7, b"1.2.3.4:5", &args) };
            let decoded = decode_command(&payload).unwrap();
            prop_assert_eq!(decoded.db, db);
            prop_assert_eq!(decoded.args(), &args[..]);
            for end in 0..payload.len() {
                prop_assert!(decode_command(&payload[..end]).is_none());
            }
            prop_assert!(decode_command(&[&payload[..], b"x"].concat()).is_none());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(decoded) = decode_command(&bytes) {
                prop_assert_eq!(&encode(decoded.db, decoded.client, decoded.args())[..], &bytes[..]);
            }
        }
    }
}
