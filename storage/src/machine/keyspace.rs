//! Keys inside a transaction: finding, writing, removing them with everything that belongs to them.
//!
//! Invariants, for every key row that is written or removed:
//! * D1: a key with a deadline has exactly one row among the deadlines, with that deadline; a lock has one among the locks, also without,
//!   or stands on a page (T4).
//! * D2: a database's numbers say how many key rows its generation has, and how many of them have a deadline.
//! * D3: members of an object without a key are remembered as garbage.
//! * D4: a removal leaves the key's version behind (a lock's, with how its last hold ended).
//! * D5: a key that belongs to a session has a row among the bound ones, and no other.

use super::layout::{self, Garbage, Header, Kind, Timed};
use super::meta::{DATABASES, Database};
use super::notify::Class;
use super::txn::Txn;
use crate::row::RowValue;
use crate::varint;
use bytes::Bytes;
use std::borrow::Cow;

/// A key that exists.
pub struct Found<'a> {
    value: Cow<'a, RowValue>,
    /// What its row says about it.
    pub header: Header,
}

impl<'a> Found<'a> {
    /// What a row of the keys holds.
    #[inline]
    pub(crate) fn parse(value: Cow<'a, RowValue>) -> Option<Found<'a>> {
        let header = Header::parse(&value)?;
        Some(Found { value, header })
    }

    /// A string's bytes, or what the type keeps in the key's row.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.value[self.header.body_at..]
    }

    /// The body as bytes of their own; a long one is shared, not copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.value.bytes_from(self.header.body_at)
    }
}

/// Where a key is (or would be), and what was there. Valid until the key is written.
#[derive(Clone, Copy)]
pub struct Place<'k> {
    pub(super) db: u8,
    pub(super) key: &'k [u8],
    pub(super) hash: u64,
    /// The key's header, if it exists and its time is not over.
    pub old: Option<Header>,
}

impl Place<'_> {
    /// When the key's time is over, if it has a deadline.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.old.and_then(|old| old.deadline_ms)
    }
}

impl Txn<'_> {
    pub(super) fn generation(&self, db: u8) -> u64 {
        self.meta().databases[usize::from(db) % DATABASES].generation
    }

    fn database(&mut self, db: u8) -> &mut Database {
        &mut self.meta_mut().databases[usize::from(db) % DATABASES]
    }

    /// Finds a key. If its time is over, it is removed first.
    pub fn place<'k>(&mut self, db: u8, key: &'k [u8]) -> Place<'k> {
        let mut place = Place { db, key, hash: layout::key_hash(key), old: None };
        let row = layout::key_row(self.generation(db), place.hash, key);
        place.old = self.row(row).and_then(|value| Header::parse(&value));
        self.remove_if_expired(&mut place);
        place
    }

    /// Finds a key and what it holds. If its time is over, it is removed first.
    pub fn find<'k>(&mut self, db: u8, key: &'k [u8]) -> (Place<'k>, Option<Found<'static>>) {
        let mut place = Place { db, key, hash: layout::key_hash(key), old: None };
        let row = layout::key_row(self.generation(db), place.hash, key);
        let found = self.row(row).and_then(|value| Found::parse(Cow::Owned(value.into_owned())));
        place.old = found.as_ref().map(|found| found.header);
        if self.remove_if_expired(&mut place) { (place, None) } else { (place, found) }
    }

    pub(super) fn remove_if_expired(&mut self, place: &mut Place<'_>) -> bool {
        let is_expired = place.old.is_some_and(|old| old.is_expired(self.stamp.at_ms));
        if is_expired {
            self.take_away(place);
            self.notify(Class::Expired, "expired", place);
            place.old = None;
        }
        is_expired
    }

    /// Writes a key: its type, deadline and body. `body` of a type with members begins with the object id. A key of the same type stays
    /// bound to its session.
    pub fn put(&mut self, place: &Place<'_>, kind: Kind, deadline_ms: Option<u64>, body: &[&[u8]]) {
        let session = place.old.filter(|old| old.kind == kind).map_or(0, |old| old.session);
        self.put_bound(place, kind, deadline_ms, session, body);
    }

    /// The same, bound to a session; 0: to none.
    pub fn put_bound(
        &mut self,
        place: &Place<'_>,
        kind: Kind,
        deadline_ms: Option<u64>,
        session: u64,
        body: &[&[u8]],
    ) {
        if self.refuses(place, kind) {
            return;
        }
        let value = layout::key_value(kind, self.stamp.slot, deadline_ms, session, body);
        let object = Header::parse(&value).and_then(|header| header.object);
        if let Some(old) = place.old.and_then(|old| old.object)
            && Some(old) != object
        {
            self.leave(Garbage::Object(old));
        }
        self.move_binding(place, session);
        let timed = Timed { is_lock: kind == Kind::Lock, deadline_ms, is_young: false };
        self.put_value(place, timed, value);
    }

    /// Writes a key's row, and what follows from it but for members and sessions.
    pub(super) fn put_value(&mut self, place: &Place<'_>, timed: Timed, value: RowValue) {
        let generation = self.generation(place.db);
        if place.old.is_none() {
            self.database(place.db).keys += 1;
        }
        self.move_deadline(place, generation, Some(timed));
        self.put_row(layout::key_row(generation, place.hash, place.key).to_owned(), value);
        self.changed(place);
        if place.old.is_none() {
            self.notify(Class::New, "new", place);
        }
    }

    /// Writes a string anew: whatever was there, it belongs to no session.
    pub fn put_string(&mut self, place: &Place<'_>, deadline_ms: Option<u64>, bytes: &[u8]) {
        self.put_bound(place, Kind::String, deadline_ms, 0, &[bytes]);
    }

    /// Gives a key another deadline, or none. A deadline that is over removes the key.
    pub fn set_deadline(&mut self, place: &Place<'_>, deadline_ms: Option<u64>) {
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.stamp.at_ms) {
            if self.remove(place) {
                self.notify(Class::Generic, "del", place);
            }
            return;
        }
        if place.old.is_some_and(|old| old.kind == Kind::Lock) {
            self.refuse_lock();
            return;
        }
        let generation = self.generation(place.db);
        let row = self.row(layout::key_row(generation, place.hash, place.key)).map(Cow::into_owned);
        if let (Some(row), Some(old)) = (row, place.old) {
            self.put(place, old.kind, deadline_ms, &[&row[old.body_at..]]);
            let event = if deadline_ms.is_some() { "expire" } else { "persist" };
            self.notify(Class::Generic, event, place);
        }
    }

    /// Removes a key with everything that belongs to it, because a command has nothing to put there; says whether it was there. Not a lock: then the
    /// command fails (T6).
    pub fn remove(&mut self, place: &Place<'_>) -> bool {
        if place.old.is_some_and(|old| old.kind == Kind::Lock) {
            self.refuse_lock();
            return false;
        }
        self.take_away(place)
    }

    /// The same, also of a lock: its time is over, or somebody wants just that.
    pub fn take_away(&mut self, place: &Place<'_>) -> bool {
        if let Some(object) = place.old.and_then(|old| old.object) {
            self.leave(Garbage::Object(object));
        }
        self.detach(place)
    }

    /// Removes a key, but not its members: they go elsewhere with their object id.
    pub(crate) fn detach(&mut self, place: &Place<'_>) -> bool {
        let Some(old) = place.old else { return false };
        let is_remembered = old.kind == Kind::Lock && self.lock_removed(place, &old);
        self.move_binding(place, 0);
        self.remove_value(place, is_remembered);
        true
    }

    /// Removes a key's row, and what follows from it but for members and sessions. `is_remembered`: its version is already left behind.
    pub(super) fn remove_value(&mut self, place: &Place<'_>, is_remembered: bool) {
        let database = self.database(place.db);
        let generation = database.generation;
        database.keys = database.keys.saturating_sub(1);
        self.move_deadline(place, generation, None);
        self.remove_row(layout::key_row(generation, place.hash, place.key).to_owned());
        if !is_remembered {
            self.remember_deletion(generation, place.hash);
        }
        self.changed(place);
    }

    fn remember_deletion(&mut self, generation: u64, hash: u64) {
        let mut number = [0; varint::BYTES_MAX];
        let length = varint::write(&mut number, self.stamp.slot);
        self.put_row(layout::deleted_row(generation, hash).to_owned(), RowValue::new(&number[..length]));
    }

    /// D1, D2: a key is of this type and has this deadline now, or is no more.
    fn move_deadline(&mut self, place: &Place<'_>, generation: u64, now: Option<Timed>) {
        // A key without a deadline is as good as none here.
        let has_time = |timed: &Timed| timed.is_lock || timed.deadline_ms.is_some();
        let before = place.old.map(|old| old.timed()).filter(has_time);
        let now = now.filter(has_time);
        if before == now {
            return;
        }
        let has_deadline =
            |key: Option<Timed>| u64::from(key.is_some_and(|timed| timed.deadline_ms.is_some()));
        let database = self.database(place.db);
        database.expiring = (database.expiring + has_deadline(now)).saturating_sub(has_deadline(before));
        let row = |timed: Timed| timed.row(generation, place.hash, place.key);
        if let Some(row) = before.and_then(row) {
            self.remove_row(row);
        }
        if let Some(row) = now.and_then(row) {
            self.put_row(row, RowValue::EMPTY);
        }
    }

    fn leave(&mut self, garbage: Garbage) {
        self.put_row(garbage.row().to_owned(), RowValue::EMPTY);
    }

    /// Empties a database at once; its rows become garbage.
    pub fn flush(&mut self, db: u8) {
        self.revoke_all(db);
        let slot = self.stamp.slot;
        let meta = self.meta_mut();
        meta.generations += 1;
        let generation = meta.generations;
        let database = self.database(db);
        let old =
            std::mem::replace(database, Database { generation, keys: 0, expiring: 0, changed_at: slot });
        if old.keys > 0 {
            self.leave(Garbage::Generation(old.generation));
        }
        self.database_changed(db);
    }

    /// Exchanges two databases.
    pub fn swap(&mut self, a: u8, b: u8) {
        // Their holders asked for a lock of that name in that database: in the other one it is nobody's.
        if a != b {
            self.revoke_all(a);
            self.revoke_all(b);
        }
        let slot = self.stamp.slot;
        self.meta_mut().databases.swap(usize::from(a) % DATABASES, usize::from(b) % DATABASES);
        self.database(a).changed_at = slot;
        self.database(b).changed_at = slot;
        self.database_changed(a);
        self.database_changed(b);
    }

    /// The id under which the members of a new value are.
    pub(crate) fn next_object(&mut self) -> u64 {
        let meta = self.meta_mut();
        meta.objects += 1;
        meta.objects
    }

    /// Puts what is at `from` to `to` as well: the same type, body and deadline. Members are copied.
    pub fn copy(&mut self, from: &Found<'_>, to: &Place<'_>) {
        if from.header.kind == Kind::Lock {
            return self.refuse_lock();
        }
        let Some(object) = from.header.object else {
            self.put_bound(to, from.header.kind, from.header.deadline_ms, 0, &[from.body()]);
            return self.notify_replaced(to);
        };
        let new = self.next_object();
        for (row, value) in self.rows(&layout::members(object), usize::MAX) {
            self.put_row(layout::member_of(new, row.borrow()), value);
        }
        let rest = from.body().get(new.to_be_bytes().len()..).unwrap_or_default();
        self.put_bound(to, from.header.kind, from.header.deadline_ms, 0, &[&new.to_be_bytes(), rest]);
        self.notify_replaced(to);
    }

    /// To Redis a key over which another one was put whole is a new one.
    fn notify_replaced(&mut self, place: &Place<'_>) {
        if place.old.is_some() {
            self.notify(Class::New, "new", place);
        }
    }

    /// Moves a key, members and deadline included, over whatever is at `to`.
    pub fn relocate(&mut self, from: &Place<'_>, found: &Found<'_>, to: &Place<'_>) {
        if found.header.kind == Kind::Lock {
            return self.refuse_lock();
        }
        self.detach(from);
        let Header { kind, deadline_ms, session, .. } = found.header;
        self.put_bound(to, kind, deadline_ms, session, &[found.body()]);
        self.notify_replaced(to);
    }
}
