//! Keys that must be of a certain type, if they are there.

use super::errors;
use crate::machine::{Found, Kind, Place, Txn, View};
use crate::reply::Reply;

/// A key to look at.
pub(crate) fn read<'v>(view: &View<'v>, db: u8, key: &[u8], kind: Kind) -> Result<Option<Found<'v>>, Reply> {
    match view.find(db, key) {
        Some(found) if found.header.kind != kind => Err(errors::WRONG_TYPE),
        found => Ok(found),
    }
}

/// A key to change.
pub(crate) fn write<'k>(
    txn: &mut Txn<'_>,
    db: u8,
    key: &'k [u8],
    kind: Kind,
) -> Result<(Place<'k>, Option<Found<'static>>), Reply> {
    let (place, found) = txn.find(db, key);
    if found.as_ref().is_some_and(|found| found.header.kind != kind) {
        return Err(errors::WRONG_TYPE);
    }
    Ok((place, found))
}
