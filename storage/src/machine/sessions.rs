//! Sessions: one heartbeat that many keys and locks live by.
//!
//! A session ends once, through the log: closed, or because its time passed. Until then it lives, and with it what is bound to it; a command that
//! meets a session whose time is over ends it first.
//!
//! What is bound has a row under its session, by the generation of its database, so that SWAPDB and FLUSHDB need not care. The row may be stale (the
//! database was flushed, a lock was given back): the end of the session looks at what is there.

use super::keyspace::Place;
use super::layout::{self, BOUND, Kind, SESSIONS};
use super::locks::End;
use super::notify::Class;
use super::txn::Txn;
use super::waits::Timer;
use crate::commands::no_session;
use crate::planted::{self, Bug};
use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::varint;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) ttl_ms: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) name: Vec<u8>,
}

const fn session_row(id: u64) -> RowKeyRef<'static> {
    RowKeyRef::from_parts(layout::first(SESSIONS, 0), id, &[])
}

fn bound_row(session: u64, generation: u64, key: &[u8]) -> RowKey {
    RowKey::concat(layout::first(BOUND, session), generation, &[key])
}

fn bound_to(session: u64) -> RowRange {
    RowRange::prefix(&layout::first(BOUND, session).to_be_bytes())
}

impl Session {
    fn value(&self) -> RowValue {
        let mut out = Vec::new();
        varint::put(&mut out, self.ttl_ms);
        varint::put(&mut out, self.deadline_ms);
        out.extend_from_slice(&self.name);
        RowValue::new(&out)
    }

    fn parse(mut value: &[u8]) -> Option<Session> {
        let (ttl_ms, deadline_ms) = (varint::take(&mut value)?, varint::take(&mut value)?);
        Some(Session { ttl_ms, deadline_ms, name: value.to_vec() })
    }
}

impl Txn<'_> {
    /// A session that lives. One whose time is over ends here.
    pub(crate) fn session(&mut self, id: u64) -> Option<Session> {
        let session = self.row(session_row(id)).and_then(|value| Session::parse(&value))?;
        if session.deadline_ms < self.stamp.at_ms && !planted::has(Bug::SessionRevived) {
            self.end_session(id, &session, true);
            return None;
        }
        Some(session)
    }

    /// Begins a session, or lets one live on from now.
    pub(crate) fn put_session(&mut self, id: u64, session: &Session) {
        if let Some(before) = self.row(session_row(id)).and_then(|value| Session::parse(&value)) {
            self.remove_row(Timer::Session(id).row(before.deadline_ms.saturating_add(1)));
        }
        self.put_row(Timer::Session(id).row(session.deadline_ms.saturating_add(1)), RowValue::EMPTY);
        self.put_row(session_row(id).to_owned(), session.value());
    }

    /// Ends a session, and all that is bound to it, waits included. `is_expired`: a lock's delay counts, as if its own time had passed.
    pub(crate) fn end_session(&mut self, id: u64, session: &Session, is_expired: bool) {
        self.remove_row(session_row(id).to_owned());
        self.remove_row(Timer::Session(id).row(session.deadline_ms.saturating_add(1)));
        for (row, _) in self.rows(&bound_to(id), usize::MAX) {
            self.remove_row(row.clone());
            let (generation, key) = (row.borrow().second(), row.borrow().tail);
            let databases = &self.meta().databases;
            if let Some(db) = databases.iter().position(|database| database.generation == generation) {
                self.end_bound(id, db as u8, key, is_expired);
            }
        }
        self.end_waits_of(id, &no_session(id));
    }

    fn end_bound(&mut self, id: u64, db: u8, key: &[u8], is_expired: bool) {
        let place = self.place(db, key);
        match place.old {
            Some(old) if old.kind == Kind::Lock && planted::has(Bug::SessionKeepsLock) => {}
            Some(old) if old.kind == Kind::Lock => self.end_holds_of(id, db, key, is_expired),
            Some(old) if old.session == id => {
                self.remove(&place);
                let (class, event) =
                    if is_expired { (Class::Expired, "expired") } else { (Class::Generic, "del") };
                self.notify(class, event, &place);
            }
            _ => {}
        }
    }

    fn end_holds_of(&mut self, id: u64, db: u8, key: &[u8], is_expired: bool) {
        let now_ms = self.stamp.at_ms;
        while let Ok((place, Some(mut lock))) = self.lock(db, key) {
            let Some(index) = lock.holds.iter().position(|hold| hold.session == id && hold.is_held(now_ms))
            else {
                return;
            };
            if is_expired && lock.holds[index].delay_ms > 0 {
                let hold = &mut lock.holds[index];
                (hold.is_over, hold.deadline_ms, hold.session) = (true, Some(now_ms), 0);
                let hold = hold.clone();
                self.hold_ended(&place, &hold, End::Session);
                self.put_lock(&place, &lock);
            } else {
                self.end_hold(&place, &mut lock, index, End::Session);
            }
        }
    }

    /// A lock at `place` is held by a session.
    pub(crate) fn bind(&mut self, session: u64, place: &Place<'_>) {
        if session != 0 {
            self.put_row(bound_row(session, self.generation(place.db), place.key), RowValue::EMPTY);
        }
    }

    /// It is not any more.
    pub(crate) fn unbind(&mut self, session: u64, place: &Place<'_>) {
        if session != 0 {
            self.remove_row(bound_row(session, self.generation(place.db), place.key));
        }
    }

    /// D5: the key at `place` belongs to `session` now; 0: to none.
    pub(super) fn move_binding(&mut self, place: &Place<'_>, session: u64) {
        let before = place.old.map_or(0, |old| old.session);
        if before != session {
            self.unbind(before, place);
        }
        if session != 0 {
            self.bind(session, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_what_was_put_in() {
        let session = Session { ttl_ms: 1 << 20, deadline_ms: 1 << 40, name: b"n".to_vec() };
        assert_eq!(Session::parse(&session.value()), Some(session));
        assert!(bound_to(7).contains(bound_row(7, 3, b"key").borrow()));
        assert!(!bound_to(8).contains(bound_row(7, 3, b"key").borrow()));
    }
}
