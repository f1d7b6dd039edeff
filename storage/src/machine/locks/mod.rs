//! Locks: what happens when a hold begins and ends. What their rows hold is in `rows`.
//!
//! A lock that somebody holds is a key of its own type; a lock that nobody holds is no key. The key's deadline is the time at which nobody holds it any
//! more if nothing happens, lock-delays included: then the key goes like any other whose time is over, and the next in line is served.
//!
//! Invariants:
//! * T1: a token is given out once, and later grants have larger ones, whatever the key.
//! * T2: of the holds of one lock that are not over, either one is exclusive and there is no other, or all are shared.
//! * T3: a hold ends once, and how it ended is told once: released, expired, revoked, or with its session. FLUSHDB, FLUSHALL and SWAPDB revoke, too.
//! * T4: a lock's key has one row in the table of locks, by the generation of its database and the key's deadline, and there are no others: so that a
//!   whole database's locks are found without looking at its other keys. It takes the place of the row that other keys have among the deadlines. A *young*
//!   lock has none; it stands on a page (`young`, T5).
//! * T6: only DEL, UNLINK, FLUSHDB, FLUSHALL, SWAPDB and LOCK.REVOKE take a lock away before its time. Every other command that would write or remove its
//!   key fails.

mod rows;
mod young;

pub(super) use rows::ended_row;
pub use rows::{End, Ended, Hold, Lock};
use rows::{HoldRef, is_token};
#[cfg(test)]
pub(super) use young::names;
pub(super) use young::{Taken, TakenBefore, page};

use super::Stamp;
use super::events::{Caller, Event};
use super::keyspace::Place;
use super::layout::{self, Header, Kind, Timed};
use super::txn::Txn;
use super::view::View;
use super::waits::Timer;
use crate::reply::Reply;
use crate::row::{RowValue, SmallBytes};

/// Something that happened to a lock, for its holder and for who listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEvent {
    /// The database.
    pub db: u8,
    /// The key.
    pub key: Vec<u8>,
    /// The hold's token.
    pub token: u64,
    /// The hold's owner.
    pub owner: SmallBytes,
    /// How it ended; nothing: it began.
    pub end: Option<End>,
    /// Whose client holds or held it.
    pub caller: Caller,
    /// The connection on that node.
    pub client: u64,
}

impl LockEvent {
    /// As it is told: `acquired`, `released`, `expired`, `revoked`, `session`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.end.map_or("acquired", End::name)
    }
}

const WRONG_TYPE: Reply = Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");

impl Txn<'_> {
    /// A lock, after what time has done to it. WRONGTYPE if the key is something else.
    pub(crate) fn lock<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<(Place<'k>, Option<Lock>), Reply> {
        let mut place = Place { db, key, hash: layout::key_hash(key), old: None };
        let row = self.row(layout::key_row(self.generation(db), place.hash, key));
        let Some((header, value)) = row.and_then(|value| Some((Header::parse(&value)?, value))) else {
            return Ok((place, None));
        };
        let lock = (header.kind == Kind::Lock).then(|| Lock::parse(&value[header.body_at..]));
        place.old = Some(header);
        if self.remove_if_expired(&mut place) {
            return Ok((place, None));
        }
        let mut lock = lock.ok_or(WRONG_TYPE)?.unwrap_or_default();
        if !self.settle(&place, &mut lock) {
            return Ok((place, Some(lock)));
        }
        self.put_lock(&place, &lock);
        let place = self.place(db, key);
        let lock = place.old.map(|_| lock);
        Ok((place, lock))
    }

    /// Ends the holds whose time is over; takes those away that no delay keeps. Says whether anything changed.
    fn settle(&mut self, place: &Place<'_>, lock: &mut Lock) -> bool {
        let now_ms = self.stamp.at_ms;
        let is_settled = |hold: &Hold| {
            if hold.is_over {
                hold.closed_until_ms().is_some_and(|until| now_ms <= until)
            } else {
                hold.is_held(now_ms)
            }
        };
        if lock.holds.iter().all(is_settled) {
            return false;
        }
        for hold in &mut lock.holds {
            if !hold.is_over && !hold.is_held(now_ms) {
                hold.is_over = true;
                self.hold_ended(place, hold, End::Expired);
            }
        }
        lock.holds
            .retain(|hold| !hold.is_over || hold.closed_until_ms().is_some_and(|until| now_ms <= until));
        true
    }

    /// Ends one hold.
    pub(crate) fn end_hold(&mut self, place: &Place<'_>, lock: &mut Lock, index: usize, how: End) {
        if lock.holds.len() == 1 {
            let is_remembered = self.holds_ended(place, lock, how);
            lock.holds.clear();
            self.remove_value(place, is_remembered);
        } else {
            let hold = lock.holds.remove(index);
            self.hold_ended(place, &hold, how);
            if !lock.holds.iter().any(|other| other.session == hold.session) {
                self.unbind(hold.session, place);
            }
            self.put_lock(place, lock);
        }
    }

    /// Writes a lock, or takes its key away if there is nothing left of it.
    pub(crate) fn put_lock(&mut self, place: &Place<'_>, lock: &Lock) {
        if lock.holds.is_empty() {
            self.take_away(place);
            return;
        }
        let free_at_ms = lock.free_at_ms();
        // The key's own deadline tells when it is free. What happens earlier needs a timer.
        if let Some(next_ms) = lock.next_end_ms()
            && Some(next_ms) != free_at_ms
        {
            let timer = Timer::Lock { db: place.db, key: place.key.to_vec() };
            self.put_row(timer.row(next_ms.saturating_add(1)), RowValue::EMPTY);
        }
        let value = lock.value(self.stamp.slot, false);
        self.put_value(place, Timed { is_lock: true, deadline_ms: free_at_ms, is_young: false }, value);
    }

    /// Writes a lock that nobody held until now.
    pub(crate) fn put_first(&mut self, place: &Place<'_>, is_shared: bool, hold: &Hold) {
        let deadline_ms = hold.closed_until_ms();
        // Without a delay, the key's own deadline tells when the hold's time is over.
        if let Some(next_ms) = hold.deadline_ms.filter(|next_ms| Some(*next_ms) != deadline_ms) {
            let timer = Timer::Lock { db: place.db, key: place.key.to_vec() };
            self.put_row(timer.row(next_ms.saturating_add(1)), RowValue::EMPTY);
        }
        // T5: by then its page has been turned.
        let young_until_ms = self.stamp.at_ms.saturating_add(young::YOUNG_MS);
        let is_young = place.old.is_none() && deadline_ms.is_none_or(|ms| ms > young_until_ms);
        if is_young {
            self.note_taken(place.db, place.key);
        }
        let value = Lock::value_of(hold, is_shared, self.stamp.slot, is_young);
        self.put_value(place, Timed { is_lock: true, deadline_ms, is_young }, value);
    }

    /// Gives a lock back that has one hold, not taken twice, if it is this token's and its time is not over. False: nothing was done.
    pub(crate) fn release_only(&mut self, db: u8, key: &[u8], token: u64) -> bool {
        let hash = layout::key_hash(key);
        let row = layout::key_row(self.generation(db), hash, key);
        let Stamp { slot, at_ms, .. } = self.stamp;
        let Some(value) = self.row(row) else { return false };
        let Some(old) = Header::parse(&value).filter(|old| old.kind == Kind::Lock && !old.is_expired(at_ms))
        else {
            return false;
        };
        let is_it =
            |hold: &HoldRef<'_>| is_token(hold.token, token) && hold.count == 1 && hold.is_held(at_ms);
        let Some(hold) = Lock::only(&value[old.body_at..]).filter(is_it) else { return false };
        let ended = Ended::value(slot, (db, hash), (End::Released, at_ms), hold.token, hold.owner);
        let session = hold.session;
        let told = self.interest.locks.then(|| hold.to_owned());
        let place = Place { db, key, hash, old: Some(old) };
        self.put_row(ended_row(hash).to_owned(), ended);
        if let Some(hold) = told {
            self.tell_lock(db, key, &hold, Some(End::Released));
        }
        self.unbind(session, &place);
        self.remove_value(&place, true);
        true
    }

    /// A timer says that some hold's time may be over.
    pub(crate) fn settle_lock(&mut self, db: u8, key: &[u8]) {
        // A key that is no lock any more has nothing to settle.
        let _ = self.lock(db, key);
    }

    /// T3: remembers how a hold ended, and tells it.
    pub(crate) fn hold_ended(&mut self, place: &Place<'_>, hold: &Hold, how: End) {
        let at_ms = match how {
            End::Expired => hold.deadline_ms.unwrap_or(self.stamp.at_ms).min(self.stamp.at_ms),
            _ => self.stamp.at_ms,
        };
        let value =
            Ended::value(self.stamp.slot, (place.db, place.hash), (how, at_ms), hold.token, &hold.owner);
        self.put_row(ended_row(place.hash).to_owned(), value);
        self.tell_lock(place.db, place.key, hold, Some(how));
    }

    /// Tells that a hold began or ended, if somebody on this node wants to know: its own holders want to know what they did not do themselves.
    pub(crate) fn tell_lock(&mut self, db: u8, key: &[u8], hold: &Hold, end: Option<End>) {
        let is_loss = end.is_some_and(|end| end != End::Released);
        if self.interest.locks || is_loss && self.interest.is_mine(hold.caller) {
            self.run.events.push(Event::Lock(LockEvent {
                db,
                key: key.to_vec(),
                token: hold.token,
                owner: hold.owner.clone(),
                end,
                caller: hold.caller,
                client: hold.client,
            }));
        }
    }

    /// All holds of a lock end with its key. Says whether the key's version was left behind with one of them.
    fn holds_ended(&mut self, place: &Place<'_>, lock: &Lock, how: End) -> bool {
        let mut is_remembered = false;
        for hold in &lock.holds {
            if !hold.is_over {
                self.hold_ended(place, hold, how);
                is_remembered = true;
            }
            self.unbind(hold.session, place);
        }
        is_remembered
    }

    /// A lock's key is about to go, not by what its holders did: its holds end. Says what [`Txn::holds_ended`] does.
    pub(super) fn lock_removed(&mut self, place: &Place<'_>, old: &Header) -> bool {
        let row = layout::key_row(self.generation(place.db), place.hash, place.key);
        let lock = self.row(row).and_then(|value| Lock::parse(value.get(old.body_at..)?));
        let how = if old.is_expired(self.stamp.at_ms) { End::Expired } else { End::Revoked };
        lock.is_some_and(|lock| self.holds_ended(place, &lock, how))
    }

    /// Takes all locks of a database away, and tells their holders: the database is about to be emptied, or to be another one.
    pub(super) fn revoke_all(&mut self, db: u8) {
        for (row, _) in self.rows(&layout::locks(self.generation(db)), usize::MAX) {
            let place = self.place(db, row.borrow().tail);
            self.take_away(&place);
        }
        self.revoke_young(db);
    }

    /// Whether this write would put something else in a lock's place. Then the command fails.
    pub(super) fn refuses(&mut self, place: &Place<'_>, kind: Kind) -> bool {
        let is_refused = kind != Kind::Lock && place.old.is_some_and(|old| old.kind == Kind::Lock);
        if is_refused {
            self.refuse_lock();
        }
        is_refused
    }

    /// The command does what must not be done to a lock: it fails, whatever it replies.
    pub(super) fn refuse_lock(&mut self) {
        self.run.refusal = Some(WRONG_TYPE);
    }

    /// How the last hold of a key ended, if that is still known.
    pub(crate) fn last_end(&self, db: u8, key: &[u8]) -> Option<Ended> {
        let hash = layout::key_hash(key);
        Ended::parse(&self.row(ended_row(hash))?, db, hash)
    }
}

impl View<'_> {
    /// A lock that somebody holds. WRONGTYPE if the key is something else.
    pub(crate) fn lock(&self, db: u8, key: &[u8]) -> Result<Option<Lock>, Reply> {
        match self.find(db, key) {
            None => Ok(None),
            Some(found) if found.header.kind != Kind::Lock => Err(WRONG_TYPE),
            Some(found) => Ok(Lock::parse(found.body())),
        }
    }

    /// How the last hold of a key ended, if that is still known.
    pub(crate) fn last_end(&self, db: u8, key: &[u8]) -> Option<Ended> {
        let hash = layout::key_hash(key);
        Ended::parse(&self.row(ended_row(hash))?, db, hash)
    }
}
