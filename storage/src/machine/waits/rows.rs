//! The rows of waits. See the table in `layout`; it never changes in place.
//!
//! A wait is one row with everything about it, and one row for each way to find it: its place in the line of each key, who waits, when its time is
//! over, and for a lock whose it is and which session it goes with.

use super::super::events::Caller;
use super::super::layout::{self, CALLERS, LINES, OWNERS, TIMERS, WAITING_SESSIONS, WAITS};
use super::WaitFor;
use crate::reply::Reply;
use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::varint;

/// A command that waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WaitRow {
    /// Its place among all waits.
    pub(crate) number: u64,
    /// Since when, in cluster time.
    pub(crate) since_ms: u64,
    /// When its time is over.
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) caller: Caller,
    pub(crate) waits_for: WaitFor,
    pub(crate) db: u8,
    pub(crate) keys: Vec<Vec<u8>>,
    /// What it answers when its time is over.
    pub(crate) on_timeout: Reply,
    /// The command, as it came through the log.
    pub(crate) payload: Vec<u8>,
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint::take(rest)?).ok()?;
    let (bytes, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(bytes)
}

impl WaitRow {
    pub(crate) fn value(&self) -> RowValue {
        let mut out = vec![self.waits_for as u8, self.db];
        for number in [
            self.since_ms,
            self.deadline_ms.map_or(0, |ms| ms.saturating_add(1)),
            self.caller.node,
            self.caller.incarnation,
            self.caller.seq,
            self.keys.len() as u64,
        ] {
            varint::put(&mut out, number);
        }
        self.keys.iter().for_each(|key| put_bytes(&mut out, key));
        put_bytes(&mut out, &self.on_timeout.to_bytes());
        out.extend_from_slice(&self.payload);
        RowValue::new(&out)
    }

    pub(crate) fn parse(number: u64, value: &[u8]) -> Option<WaitRow> {
        let (&[waits_for, db], mut rest) = value.split_first_chunk()?;
        let waits_for = WaitFor::from_number(waits_for)?;
        let since_ms = varint::take(&mut rest)?;
        let deadline_ms = varint::take(&mut rest)?.checked_sub(1);
        let caller = Caller {
            node: varint::take(&mut rest)?,
            incarnation: varint::take(&mut rest)?,
            seq: varint::take(&mut rest)?,
        };
        let count = varint::take(&mut rest)?;
        let keys =
            (0..count).map(|_| take_bytes(&mut rest).map(<[u8]>::to_vec)).collect::<Option<Vec<_>>>()?;
        let on_timeout = Reply::decode(take_bytes(&mut rest)?).ok()?;
        let payload = rest.to_vec();
        Some(WaitRow { number, since_ms, deadline_ms, caller, waits_for, db, keys, on_timeout, payload })
    }
}

/// The row of a wait.
pub(crate) const fn wait_row(number: u64) -> RowKeyRef<'static> {
    RowKeyRef::from_parts(layout::first(WAITS, 0), number, &[])
}

/// A wait's place in the line of a key.
pub(crate) fn line_row(db: u8, key: &[u8], number: u64) -> RowKey {
    let parts: [&[u8]; 2] = [key, &number.to_be_bytes()];
    RowKey::concat(layout::first(LINES, u64::from(db)), layout::key_hash(key), &parts)
}

/// The line of a key, from the wait `number` on. (And, in theory, of others with the same hash: see [`parse_line`].)
pub(crate) fn line_from(db: u8, key: &[u8], number: u64) -> RowRange {
    let first = layout::first(LINES, u64::from(db));
    let hash = layout::key_hash(key);
    let to = hash
        .checked_add(1)
        .map_or(RowKey::concat(first + 1, 0, &[]), |next| RowKey::concat(first, next, &[]));
    RowRange { from: line_row(db, key, number), to: Some(to) }
}

/// All lines of a database.
pub(crate) fn lines_of(db: u8) -> RowRange {
    RowRange::prefix(&layout::first(LINES, u64::from(db)).to_be_bytes())
}

/// The key and the wait that a row of the lines is about.
pub(crate) fn parse_line(row: RowKeyRef<'_>) -> Option<(&[u8], u64)> {
    let (key, number) = row.tail.split_last_chunk()?;
    Some((key, u64::from_be_bytes(*number)))
}

/// The row that finds a wait by who waits.
pub(crate) fn caller_row(caller: Caller) -> RowKey {
    RowKey::concat(layout::first(CALLERS, caller.node), caller.incarnation, &[&caller.seq.to_be_bytes()])
}

/// The waits of a node's lives before `incarnation`.
pub(crate) fn callers_before(node: u64, incarnation: u64) -> RowRange {
    RowRange {
        from: RowKey::concat(layout::first(CALLERS, node), 0, &[]),
        to: Some(RowKey::concat(layout::first(CALLERS, node), incarnation, &[])),
    }
}

/// All waits by who waits.
pub(crate) fn callers() -> RowRange {
    RowRange::prefix(&[CALLERS])
}

/// Who waits, as a row says.
pub(crate) fn parse_caller(row: RowKeyRef<'_>) -> Option<Caller> {
    let seq = u64::from_be_bytes(*row.tail.first_chunk()?);
    Some(Caller { node: row.first() & layout::ID_MAX, incarnation: row.second(), seq })
}

/// The row that finds a wait for a lock by its owner.
pub(crate) fn owner_row(db: u8, key: &[u8], owner: &[u8], number: u64) -> RowKey {
    let hash = layout::key_hash(key).rotate_left(1) ^ layout::key_hash(owner);
    let length = (key.len() as u64).to_be_bytes();
    let parts: [&[u8]; 4] = [&length, key, owner, &number.to_be_bytes()];
    RowKey::concat(layout::first(OWNERS, u64::from(db)), hash, &parts)
}

/// The waits of an owner for a lock behind the wait `number`. (And, in theory, of others: see [`parse_owner`].)
pub(crate) fn owned_behind(db: u8, key: &[u8], owner: &[u8], number: u64) -> RowRange {
    RowRange {
        from: owner_row(db, key, owner, number.saturating_add(1)),
        to: Some(owner_row(db, key, owner, u64::MAX)),
    }
}

/// The wait that a row is about, if it is of this owner for this lock.
pub(crate) fn parse_owner(row: RowKeyRef<'_>, db: u8, key: &[u8], owner: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(*row.tail.last_chunk()?);
    (owner_row(db, key, owner, number).borrow() == row).then_some(number)
}

/// The row that finds a wait by the session that it goes with.
pub(crate) fn session_row(session: u64, number: u64) -> RowKey {
    RowKey::concat(layout::first(WAITING_SESSIONS, session), number, &[])
}

/// The waits that go with a session.
pub(crate) fn of_session(session: u64) -> RowRange {
    RowRange::prefix(&layout::first(WAITING_SESSIONS, session).to_be_bytes())
}

/// Something that is due at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A wait's time is over.
    Wait(u64),
    /// A hold of a lock may be over.
    Lock {
        /// The database.
        db: u8,
        /// The key.
        key: Vec<u8>,
    },
    /// A session may be over.
    Session(u64),
}

const TIMER_WAIT: u8 = 1;
const TIMER_LOCK: u8 = 2;
const TIMER_SESSION: u8 = 3;

impl Timer {
    /// The row for a time.
    pub(crate) fn row(&self, at_ms: u64) -> RowKey {
        let key = |kind: u8, rest: &[u8]| {
            RowKey::concat(layout::first(TIMERS, at_ms >> 8), at_ms << layout::ID_BITS, &[&[kind], rest])
        };
        match self {
            Timer::Wait(number) => key(TIMER_WAIT, &number.to_be_bytes()),
            Timer::Session(id) => key(TIMER_SESSION, &id.to_be_bytes()),
            Timer::Lock { db, key: name } => key(TIMER_LOCK, &[&[*db], &name[..]].concat()),
        }
    }

    /// All of them, in the order of time.
    pub(crate) fn rows() -> RowRange {
        RowRange::prefix(&[TIMERS])
    }

    /// When something is due, as a row says.
    pub(crate) fn at_ms(row: RowKeyRef<'_>) -> u64 {
        row.first() << 8 | row.second() >> layout::ID_BITS
    }

    /// What is due.
    pub(crate) fn parse(row: RowKeyRef<'_>) -> Option<Timer> {
        match row.tail.split_first()? {
            (&TIMER_WAIT, rest) => Some(Timer::Wait(u64::from_be_bytes(rest.try_into().ok()?))),
            (&TIMER_SESSION, rest) => Some(Timer::Session(u64::from_be_bytes(rest.try_into().ok()?))),
            (&TIMER_LOCK, [db, key @ ..]) => Some(Timer::Lock { db: *db, key: key.to_vec() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_says_what_was_put_in() {
        for deadline_ms in [None, Some(0), Some(1_700_000_000_000)] {
            let wait = WaitRow {
                number: 7,
                since_ms: 5,
                deadline_ms,
                caller: Caller { node: 3, incarnation: 9, seq: 1 << 40 },
                waits_for: WaitFor::Lock,
                db: 15,
                keys: vec![b"a".to_vec(), Vec::new()],
                on_timeout: Reply::NullArray,
                payload: b"rest".to_vec(),
            };
            assert_eq!(WaitRow::parse(7, &wait.value()), Some(wait));
        }
        assert_eq!(WaitRow::parse(7, &[1, 0, 1]), None);
    }

    #[test]
    fn rows_say_what_they_are_about_and_lie_in_order() {
        let line = line_row(3, b"key", 9);
        assert_eq!(parse_line(line.borrow()), Some((&b"key"[..], 9)));
        assert!(line_from(3, b"key", 9).contains(line.borrow()) && lines_of(3).contains(line.borrow()));
        assert!(!line_from(3, b"key", 10).contains(line.borrow()));
        let caller = Caller { node: 2, incarnation: 5, seq: 77 };
        assert_eq!(parse_caller(caller_row(caller).borrow()), Some(caller));
        assert!(callers_before(2, 6).contains(caller_row(caller).borrow()));
        assert!(!callers_before(2, 5).contains(caller_row(caller).borrow()));
        let owned = owner_row(3, b"key", b"owner", 9);
        assert_eq!(parse_owner(owned.borrow(), 3, b"key", b"owner"), Some(9));
        assert_eq!(parse_owner(owned.borrow(), 3, b"keyo", b"wner"), None);
        assert!(owned_behind(3, b"key", b"owner", 8).contains(owned.borrow()));
        assert!(!owned_behind(3, b"key", b"owner", 9).contains(owned.borrow()));
        assert!(of_session(7).contains(session_row(7, 9).borrow()));
        assert!(!of_session(8).contains(session_row(7, 9).borrow()));
        for at_ms in [0, 255, 256, 1_700_000_000_123, u64::MAX >> 1] {
            let row = Timer::Wait(4).row(at_ms);
            assert_eq!(
                (Timer::at_ms(row.borrow()), Timer::parse(row.borrow())),
                (at_ms, Some(Timer::Wait(4)))
            );
        }
        assert!(Timer::Wait(9).row(255) < Timer::Wait(1).row(256));
    }
}
