//! Strings as sequences of bits; the highest bit of the first byte is bit 0.

mod count;
mod field;
mod single;

pub(super) use count::COMMANDS as COUNTS;
pub(super) use field::COMMANDS as FIELDS;
pub(super) use single::COMMANDS;

use super::number::parse_integer;
use super::typed;
use crate::machine::{Found, Kind, Txn, View};
use crate::reply::Reply;

/// The longest string has so many bytes, as in Redis.
const STRING_BYTES_MAX: i64 = 512 * 1024 * 1024;

const OFFSET: Reply = Reply::error("ERR bit offset is not an integer or out of range");

/// Where a bit is. `#n` is the n-th number of `width` bits, where that makes sense.
fn offset(arg: &[u8], width: Option<u32>) -> Result<u64, Reply> {
    let (digits, factor) = match (arg, width) {
        ([b'#', digits @ ..], Some(width)) => (digits, i64::from(width)),
        _ => (arg, 1),
    };
    let offset = parse_integer(digits).ok_or(OFFSET)?.wrapping_mul(factor);
    if offset < 0 || offset >> 3 >= STRING_BYTES_MAX { Err(OFFSET) } else { Ok(offset.unsigned_abs()) }
}

/// A string to look at.
fn string<'v>(view: &View<'v>, db: u8, key: &[u8]) -> Result<Option<Found<'v>>, Reply> {
    typed::read(view, db, key, Kind::String)
}

/// The string with room for the bit at `last`. A script that has no work left gets none.
fn grown(txn: &Txn<'_>, found: Option<&Found<'_>>, last: u64) -> Result<Vec<u8>, Reply> {
    let mut bytes = found.map_or(Vec::new(), |found| found.body().to_vec());
    // The cast is exact: offsets are below 2^32.
    let length = (last >> 3) as usize + 1;
    // Before there is room for it: it may be the largest string there is.
    txn.work.copy(2 * length.max(bytes.len()));
    if txn.work.is_over() {
        return Err(Reply::Null);
    }
    if bytes.len() < length {
        bytes.resize(length, 0);
    }
    Ok(bytes)
}

fn bit_at(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset >> 3).ok().and_then(|at| bytes.get(at)).copied().unwrap_or(0);
    byte >> (7 - (offset & 7)) & 1 == 1
}

fn set_bit(bytes: &mut [u8], offset: u64, on: bool) {
    if let Some(byte) = usize::try_from(offset >> 3).ok().and_then(|at| bytes.get_mut(at)) {
        let mask = 1 << (7 - (offset & 7));
        *byte = if on { *byte | mask } else { *byte & !mask };
    }
}
