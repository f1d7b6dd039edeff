//! Strings.

mod conditional;
mod lcs;
mod numbers;
mod plain;
mod ranges;
mod set;

pub(super) use conditional::COMMANDS as CONDITIONAL;
pub(super) use lcs::COMMANDS as LCS;
pub(super) use numbers::COMMANDS as NUMBERS;
pub(super) use plain::COMMANDS;
pub(super) use ranges::COMMANDS as RANGES;

use super::{reply, typed};
use crate::machine::{Found, Kind, Place, Txn};
use crate::reply::Reply;

/// The longest string, as in Redis.
const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A key that must be a string, if it is there.
fn string<'k>(
    txn: &mut Txn<'_>,
    db: u8,
    key: &'k [u8],
) -> Result<(Place<'k>, Option<Found<'static>>), Reply> {
    typed::write(txn, db, key, Kind::String)
}

/// A string as a reply.
fn bulk_or_null(found: Option<&Found<'_>>) -> Reply {
    found.map_or(Reply::Null, |found| Reply::Bulk(found.to_bytes()))
}
