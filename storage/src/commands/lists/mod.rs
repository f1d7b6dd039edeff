//! Lists: a row for every item, at positions without a gap; the key's row says how many there are and where the first is.
//!
//! So both ends and every index are found in O(log n). What inserts or removes in the middle moves the items of the shorter side.

mod blocking;
mod ends;
mod inside;
mod looks;

pub(super) use blocking::COMMANDS as BLOCKING;
pub(super) use ends::COMMANDS;
pub(super) use inside::COMMANDS as INSIDE;
pub(super) use looks::COMMANDS as LOOKS;

use super::args::is;
use super::{bulk, errors, typed};
use crate::machine::{Class, Found, Kind, Place, Txn, View, layout};
use crate::reply::Reply;
use crate::row::RowValue;
use crate::store::Order;
use crate::varint;
use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

/// The position of a new list's first item: there is room for 2⁶³ on both sides.
const MIDDLE: u64 = 1 << 63;

/// A list with no more items is emptied item by item, so that nothing is left for the reaper.
const FEW: u64 = 64;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    /// LEFT or RIGHT.
    fn parse(arg: &[u8]) -> Result<End, Reply> {
        if is(arg, "LEFT") {
            Ok(End::Left)
        } else if is(arg, "RIGHT") {
            Ok(End::Right)
        } else {
            Err(errors::SYNTAX)
        }
    }
}

impl End {
    /// What is told when items come to it.
    fn pushed(self) -> &'static str {
        if self == End::Left { "lpush" } else { "rpush" }
    }

    /// What is told when items are taken from it.
    fn popped(self) -> &'static str {
        if self == End::Left { "lpop" } else { "rpop" }
    }
}

/// Where a list's items are.
#[derive(Clone, Copy)]
struct Items {
    object: u64,
    first: u64,
    count: u64,
}

impl Items {
    fn of(found: &Found<'_>) -> Option<Items> {
        let mut rest = found.body().get(size_of::<u64>()..)?;
        let count = varint::take(&mut rest)?;
        Some(Items { object: found.header.object?, count, first: varint::take(&mut rest)? })
    }

    /// An index as clients give it: negative ones count from the end. Nothing if there is no such item.
    fn index(&self, index: i64) -> Option<u64> {
        let at = if index < 0 { self.count.checked_sub(index.unsigned_abs())? } else { index.unsigned_abs() };
        (at < self.count).then_some(at)
    }

    /// The indexes from `start` to `end`, both included, as clients give them.
    fn range(&self, start: i64, end: i64) -> Range<u64> {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        let from_end = |at: i64| if at < 0 { count.saturating_add(at) } else { at };
        let (start, end) = (from_end(start).max(0), from_end(end).min(count - 1));
        if start > end { 0..0 } else { start.unsigned_abs()..end.unsigned_abs() + 1 }
    }

    fn rows(&self, indexes: &Range<u64>) -> crate::row::RowRange {
        layout::items(self.object, &(self.first + indexes.start..self.first + indexes.end))
    }
}

/// A list to look at.
struct Seen<'a, 'v> {
    view: &'a View<'v>,
    items: Items,
}

impl<'a, 'v> Seen<'a, 'v> {
    /// A list, if there is one.
    fn find(view: &'a View<'v>, db: u8, key: &[u8]) -> Result<Option<Seen<'a, 'v>>, Reply> {
        let found = typed::read(view, db, key, Kind::List)?;
        Ok(found.and_then(|found| Items::of(&found)).map(|items| Seen { view, items }))
    }

    /// The item at an index.
    fn get(&self, index: u64) -> Option<Cow<'v, RowValue>> {
        self.view.row(layout::item_row(self.items.object, self.items.first + index))
    }

    /// Shows items to `visit` (index, item) until it breaks.
    fn each(
        &self,
        indexes: &Range<u64>,
        order: Order,
        mut visit: impl FnMut(u64, &RowValue) -> ControlFlow<()>,
    ) {
        self.view.each_row(&self.items.rows(indexes), order, &mut |row, item| {
            visit(row.second() - self.items.first, item)
        });
    }
}

/// All items of a list, or nothing if there is none.
pub(super) fn all(view: &View<'_>, found: &Found<'_>) -> Vec<RowValue> {
    let mut values = Vec::new();
    if let Some(items) = Items::of(found) {
        Seen { view, items }.each(&(0..items.count), Order::Ascending, |_, item| {
            values.push(item.clone());
            ControlFlow::Continue(())
        });
    }
    values
}

/// A list to change. What is changed counts when it is saved.
struct Changing<'k> {
    place: Place<'k>,
    items: Items,
}

impl<'k> Changing<'k> {
    /// A list, if there is one.
    fn find(txn: &mut Txn<'_>, db: u8, key: &'k [u8]) -> Result<Option<Changing<'k>>, Reply> {
        let (place, found) = typed::write(txn, db, key, Kind::List)?;
        Ok(found.and_then(|found| Items::of(&found)).map(|items| Changing { place, items }))
    }

    /// An empty list over whatever is at `place`.
    fn new(txn: &mut Txn<'_>, place: Place<'k>) -> Changing<'k> {
        Changing { place, items: Items { object: txn.next_object(), first: MIDDLE, count: 0 } }
    }

    /// A list, or a new one.
    fn find_or_new(txn: &mut Txn<'_>, db: u8, key: &'k [u8]) -> Result<Changing<'k>, Reply> {
        match Changing::find(txn, db, key)? {
            Some(list) => Ok(list),
            None => {
                let place = txn.place(db, key);
                Ok(Changing::new(txn, place))
            }
        }
    }

    fn put(&self, txn: &mut Txn<'_>, index: u64, item: RowValue) {
        txn.put_row(layout::item_row(self.items.object, self.items.first + index).to_owned(), item);
    }

    fn forget(&self, txn: &mut Txn<'_>, indexes: Range<u64>) {
        for index in indexes {
            txn.remove_row(layout::item_row(self.items.object, self.items.first + index).to_owned());
        }
    }

    /// The items at some indexes.
    fn values(&self, txn: &Txn<'_>, indexes: &Range<u64>) -> Vec<RowValue> {
        txn.rows(&self.items.rows(indexes), usize::MAX).into_iter().map(|(_, item)| item).collect()
    }

    fn push(&mut self, txn: &mut Txn<'_>, end: End, item: RowValue) {
        self.items.count += 1;
        match end {
            End::Left => {
                self.items.first -= 1;
                self.put(txn, 0, item);
            }
            End::Right => self.put(txn, self.items.count - 1, item),
        }
    }

    /// Takes up to `count` items from an end, that end's first.
    fn pop(&mut self, txn: &mut Txn<'_>, end: End, count: u64) -> Vec<RowValue> {
        let (length, count) = (self.items.count, count.min(self.items.count));
        let indexes = if end == End::Left { 0..count } else { length - count..length };
        let mut values = self.values(txn, &indexes);
        if end == End::Right {
            values.reverse();
        }
        let kept = if end == End::Left { count..length } else { 0..length - count };
        self.keep(txn, kept);
        values
    }

    /// Drops all items but those at `kept`.
    fn keep(&mut self, txn: &mut Txn<'_>, kept: Range<u64>) {
        let (count, dropped) = (kept.end - kept.start, self.items.count - (kept.end - kept.start));
        if dropped <= FEW || (count > 0 && dropped <= count) {
            self.forget(txn, 0..kept.start);
            self.forget(txn, kept.end..self.items.count);
            self.items.first += kept.start;
        } else {
            // Cheaper to take what is kept along; the rest is left to the reaper when the key is written.
            let values = self.values(txn, &kept);
            self.items = Items { object: txn.next_object(), first: MIDDLE, count };
            (0..).zip(values).for_each(|(index, item)| self.put(txn, index, item));
        }
        self.items.count = count;
    }

    /// Writes the key's row, with the deadline it has, and tells what happened. A list without items is no list.
    fn save(self, txn: &mut Txn<'_>, event: &'static str) {
        let (place, is_gone) = self.save_quietly(txn);
        txn.notify_left(Class::List, event, &place, is_gone);
    }

    /// The same without telling; says where it was, and whether it is no more.
    fn save_quietly(self, txn: &mut Txn<'_>) -> (Place<'k>, bool) {
        let (place, is_gone) = (self.place, self.items.count == 0);
        self.save_with(txn, place.deadline_ms());
        (place, is_gone)
    }

    fn save_with(self, txn: &mut Txn<'_>, deadline_ms: Option<u64>) {
        let Items { object, first, count } = self.items;
        if count == 0 {
            if self.place.old.and_then(|old| old.object) == Some(object) {
                // Its rows are gone already, so nothing is left to be reaped.
                txn.detach(&self.place);
            } else {
                txn.remove(&self.place);
            }
            return;
        }
        let mut body = object.to_be_bytes().to_vec();
        varint::put(&mut body, count);
        varint::put(&mut body, first);
        txn.put(&self.place, Kind::List, deadline_ms, &[&body]);
    }
}

/// Puts a list of `values` at a place, over whatever is there; without values, nothing.
pub(super) fn store(txn: &mut Txn<'_>, place: Place<'_>, values: Vec<RowValue>) {
    let mut list = Changing::new(txn, place);
    values.into_iter().for_each(|item| list.push(txn, End::Right, item));
    list.save_with(txn, None);
}

/// Items as a reply.
fn array(values: &[RowValue]) -> Reply {
    Reply::Array(values.iter().map(bulk).collect())
}
