//! Hashes: a row for every field, and their number in the key's row.

mod fields;
mod looks;
mod random;

pub(super) use fields::COMMANDS;
pub(super) use looks::COMMANDS as LOOKS;

use super::typed;
use crate::machine::{Class, Found, Kind, Place, Txn, View, layout};
use crate::reply::Reply;
use crate::row::RowValue;
use crate::store::Order;
use crate::varint;
use std::ops::ControlFlow;

/// How many fields a hash has.
fn field_count(found: &Found<'_>) -> u64 {
    let mut rest = found.body().get(size_of::<u64>()..).unwrap_or_default();
    varint::take(&mut rest).unwrap_or(0)
}

/// The value of a hash's field.
pub(super) fn value_of(view: &View<'_>, found: &Found<'_>, field: &[u8]) -> Option<RowValue> {
    Seen { view, object: found.header.object?, count: field_count(found) }.get(field)
}

/// A hash to look at.
#[derive(Clone, Copy)]
struct Seen<'a, 'v> {
    view: &'a View<'v>,
    object: u64,
    count: u64,
}

impl<'a, 'v> Seen<'a, 'v> {
    /// A hash, if there is one.
    fn find(view: &'a View<'v>, db: u8, key: &[u8]) -> Result<Option<Seen<'a, 'v>>, Reply> {
        let found = typed::read(view, db, key, Kind::Hash)?;
        Ok(found
            .and_then(|found| Some(Seen { view, object: found.header.object?, count: field_count(&found) })))
    }

    /// A field's value.
    fn get(&self, field: &[u8]) -> Option<RowValue> {
        self.view.row(layout::field_row(self.object, field)).map(std::borrow::Cow::into_owned)
    }

    /// Shows fields to `visit` (hash, field, value), in the order of their hashes, from `hash` on, until it breaks.
    fn each(&self, hash: u64, mut visit: impl FnMut(u64, &[u8], &RowValue) -> ControlFlow<()>) {
        let range = layout::fields_from(self.object, hash);
        self.view
            .each_row(&range, Order::Ascending, &mut |row, value| visit(row.second(), row.tail(), value));
    }
}

/// A hash to change. What is changed counts when it is saved.
struct Changing<'k> {
    place: Place<'k>,
    object: u64,
    count: u64,
}

impl<'k> Changing<'k> {
    /// A hash, if there is one.
    fn find(txn: &mut Txn<'_>, db: u8, key: &'k [u8]) -> Result<Option<Changing<'k>>, Reply> {
        let (place, found) = typed::write(txn, db, key, Kind::Hash)?;
        Ok(found.and_then(|found| {
            Some(Changing { place, object: found.header.object?, count: field_count(&found) })
        }))
    }

    /// A hash, or a new one.
    fn find_or_new(txn: &mut Txn<'_>, db: u8, key: &'k [u8]) -> Result<Changing<'k>, Reply> {
        match Changing::find(txn, db, key)? {
            Some(hash) => Ok(hash),
            None => Ok(Changing { place: txn.place(db, key), object: txn.next_object(), count: 0 }),
        }
    }

    /// A field's value.
    fn get(&self, txn: &Txn<'_>, field: &[u8]) -> Option<RowValue> {
        txn.row(layout::field_row(self.object, field)).map(std::borrow::Cow::into_owned)
    }

    /// Writes a field; says whether it is new.
    fn set(&mut self, txn: &mut Txn<'_>, field: &[u8], value: &[u8]) -> bool {
        let row = layout::field_row(self.object, field);
        let is_new = txn.row(row).is_none();
        self.count += u64::from(is_new);
        txn.put_row(row.to_owned(), RowValue::new(value));
        is_new
    }

    /// Removes a field; says whether it was there.
    fn remove(&mut self, txn: &mut Txn<'_>, field: &[u8]) -> bool {
        let row = layout::field_row(self.object, field);
        let is_there = txn.row(row).is_some();
        if is_there {
            self.count = self.count.saturating_sub(1);
            txn.remove_row(row.to_owned());
        }
        is_there
    }

    /// Writes the key's row, and tells what happened. A hash without fields is no hash.
    fn save(self, txn: &mut Txn<'_>, event: &'static str) {
        if self.count == 0 {
            // Its rows are gone already, so nothing is left to be reaped.
            txn.detach(&self.place);
            return txn.notify_left(Class::Hash, event, &self.place, true);
        }
        let mut number = [0; varint::BYTES_MAX];
        let length = varint::write(&mut number, self.count);
        let body = [&self.object.to_be_bytes()[..], &number[..length]];
        txn.put(&self.place, Kind::Hash, self.place.deadline_ms(), &body);
        txn.notify(Class::Hash, event, &self.place);
    }
}
