//! Locks: what a lock's row holds, and what happens when a hold ends.
//!
//! A lock that somebody holds is a key of its own type; a lock that nobody holds is no key. The key's deadline is the time at which nobody holds it any
//! more if nothing happens, lock-delays included: then the key goes like any other whose time is over, and the next in line is served.
//!
//! Invariants:
//! * T1: a token is given out once, and later grants have larger ones, whatever the key.
//! * T2: of the holds of one lock that are not over, either one is exclusive and there is no other, or all are shared.
//! * T3: a hold ends once, and how it ended is told once: released, expired, revoked, or with its session. FLUSHDB, FLUSHALL and SWAPDB revoke, too.
//! * T4: a lock's key has one row in the table of locks, by the generation of its database, and there are no others: so that a whole database's
//!   locks are found without looking at its other keys.

use super::events::{Caller, Event};
use super::keyspace::Place;
use super::layout::{self, ENDS, Kind, LOCKS};
use super::txn::Txn;
use super::view::View;
use super::waits::Timer;
use crate::planted::{self, Bug};
use crate::reply::Reply;
use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::varint;

/// How a hold ended. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// Its holder gave it back.
    Released = 1,
    /// Its time passed.
    Expired = 2,
    /// Somebody else took it away: LOCK.REVOKE, DEL.
    Revoked = 3,
    /// Its session ended.
    Session = 4,
}

impl End {
    fn from_number(number: u8) -> Option<End> {
        [End::Released, End::Expired, End::Revoked, End::Session].into_iter().find(|end| *end as u8 == number)
    }

    /// As it is told to clients.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            End::Released => "released",
            End::Expired => "expired",
            End::Revoked => "revoked",
            End::Session => "session",
        }
    }
}

/// One hold of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The fencing token.
    pub token: u64,
    /// Whose.
    pub owner: Vec<u8>,
    /// How often its owner took it and has not released it.
    pub count: u64,
    /// Since when.
    pub since_ms: u64,
    /// Until when. Nothing: as long as its session.
    pub deadline_ms: Option<u64>,
    /// How long the lock stays closed if that time passes.
    pub delay_ms: u64,
    /// The session that it ends with; 0: none.
    pub session: u64,
    /// Which node's client took it, in which of the node's lives, with which command.
    pub caller: Caller,
    /// The connection's number on that node.
    pub client: u64,
    /// The connection's address.
    pub address: Vec<u8>,
    /// What the owner said about it.
    pub data: Vec<u8>,
    /// Its time passed, and that was told; only its delay goes on.
    pub is_over: bool,
}

impl Hold {
    /// Whether its time is not over.
    #[must_use]
    pub fn is_held(&self, now_ms: u64) -> bool {
        let early_ms = if planted::has(Bug::CutShort) { 40 } else { 0 };
        !self.is_over && self.deadline_ms.is_none_or(|deadline_ms| now_ms + early_ms <= deadline_ms)
    }

    fn closed_until_ms(&self) -> Option<u64> {
        let delay_ms = if planted::has(Bug::DelayIgnored) { 0 } else { self.delay_ms };
        self.deadline_ms.map(|deadline_ms| deadline_ms.saturating_add(delay_ms))
    }
}

/// A lock that somebody holds, or that its last holder's delay keeps closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Whether its holders share it.
    pub is_shared: bool,
    /// In the order in which they came.
    pub holds: Vec<Hold>,
}

const SHARED: u8 = 1;
const IS_OVER: u8 = 1;

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(varint::take(rest)?).ok()?;
    let (bytes, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(bytes.to_vec())
}

impl Lock {
    /// What the key's row holds: `mode¹ · (flags¹ · token · count · since · deadline + 1 or 0 · delay · session · node · incarnation · command ·
    /// connection · owner · address · data)…`.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 + self.holds.len() * 80);
        out.push(if self.is_shared { SHARED } else { 0 });
        for hold in &self.holds {
            out.push(if hold.is_over { IS_OVER } else { 0 });
            for number in [
                hold.token,
                hold.count,
                hold.since_ms,
                hold.deadline_ms.map_or(0, |ms| ms.saturating_add(1)),
                hold.delay_ms,
                hold.session,
                hold.caller.node,
                hold.caller.incarnation,
                hold.caller.seq,
                hold.client,
            ] {
                varint::put(&mut out, number);
            }
            for bytes in [&hold.owner, &hold.address, &hold.data] {
                put_bytes(&mut out, bytes);
            }
        }
        out
    }

    pub(crate) fn parse(body: &[u8]) -> Option<Lock> {
        let (mode, mut rest) = body.split_first()?;
        let mut lock = Lock { is_shared: *mode == SHARED, holds: Vec::new() };
        while let Some((flags, after)) = rest.split_first() {
            rest = after;
            let mut number = || varint::take(&mut rest);
            let (token, count, since_ms) = (number()?, number()?, number()?);
            let deadline_ms = number()?.checked_sub(1);
            let (delay_ms, session) = (number()?, number()?);
            let caller = Caller { node: number()?, incarnation: number()?, seq: number()? };
            let client = number()?;
            let (owner, address, data) =
                (take_bytes(&mut rest)?, take_bytes(&mut rest)?, take_bytes(&mut rest)?);
            let is_over = *flags == IS_OVER;
            lock.holds.push(Hold {
                token,
                owner,
                count,
                since_ms,
                deadline_ms,
                delay_ms,
                session,
                caller,
                client,
                address,
                data,
                is_over,
            });
        }
        Some(lock)
    }

    /// Those whose time is not over.
    pub fn held(&self, now_ms: u64) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(move |hold| hold.is_held(now_ms))
    }

    /// The position of a token's hold.
    pub(crate) fn position(&self, token: u64, now_ms: u64) -> Option<usize> {
        let is_it = |hold: &Hold| hold.token == token || planted::has(Bug::AnyTokenReleases);
        self.holds.iter().position(|hold| is_it(hold) && hold.is_held(now_ms))
    }

    /// When nobody holds it any more and no delay keeps it closed, if nothing happens.
    fn free_at_ms(&self) -> Option<u64> {
        self.holds.iter().try_fold(0, |latest, hold| Some(hold.closed_until_ms()?.max(latest)))
    }

    /// When the next hold's time is over.
    fn next_end_ms(&self) -> Option<u64> {
        self.holds.iter().filter(|hold| !hold.is_over).filter_map(|hold| hold.deadline_ms).min()
    }
}

/// How a hold of a key ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub how: End,
    /// Which.
    pub token: u64,
    /// When.
    pub at_ms: u64,
    /// Whose.
    pub owner: Vec<u8>,
}

/// How many ends are remembered. A key shares its place with others, which can only cost an explanation.
const ENDS_BUCKETS: u64 = 16_384;

fn index_row(generation: u64, hash: u64, key: &[u8]) -> RowKey {
    RowKeyRef::from_parts(layout::first(LOCKS, generation), hash, key).to_owned()
}

const fn ended_row(hash: u64) -> RowKeyRef<'static> {
    RowKeyRef::from_parts(layout::first(ENDS, 0), hash % ENDS_BUCKETS, &[])
}

impl Ended {
    fn value(&self, db: u8, hash: u64) -> RowValue {
        let mut out = hash.to_be_bytes().to_vec();
        out.extend([db, self.how as u8]);
        varint::put(&mut out, self.token);
        varint::put(&mut out, self.at_ms);
        out.extend_from_slice(&self.owner);
        RowValue::new(&out)
    }

    fn parse(value: &[u8], db: u8, hash: u64) -> Option<Ended> {
        let (of, rest) = value.split_first_chunk()?;
        let (&[of_db, how], mut rest) = rest.split_first_chunk()?;
        if u64::from_be_bytes(*of) != hash || of_db != db {
            return None;
        }
        let (token, at_ms) = (varint::take(&mut rest)?, varint::take(&mut rest)?);
        Some(Ended { how: End::from_number(how)?, token, at_ms, owner: rest.to_vec() })
    }
}

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
    pub owner: Vec<u8>,
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
        let (place, found) = self.find(db, key);
        let Some(found) = found else { return Ok((place, None)) };
        if found.header.kind != Kind::Lock {
            return Err(WRONG_TYPE);
        }
        let mut lock = Lock::parse(found.body()).unwrap_or_default();
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
            // The key goes, and with it what its row says of the hold: `lock_removed` tells how.
            lock.holds.clear();
            self.run.ending = Some(how);
            self.remove(place);
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
            self.remove(place);
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
        if place.old.is_none() {
            self.put_row(index_row(self.generation(place.db), place.hash, place.key), RowValue::EMPTY);
        }
        self.put(place, Kind::Lock, free_at_ms, &[&lock.body()]);
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
        let ended = Ended { how, token: hold.token, at_ms, owner: hold.owner.clone() };
        self.put_row(ended_row(place.hash).to_owned(), ended.value(place.db, place.hash));
        self.tell_lock(place.db, place.key, hold, Some(how));
    }

    /// Tells that a hold began or ended.
    pub(crate) fn tell_lock(&mut self, db: u8, key: &[u8], hold: &Hold, end: Option<End>) {
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

    /// A lock's key is about to go: its holds end.
    pub(super) fn lock_removed(&mut self, place: &Place<'_>) {
        self.remove_row(index_row(self.generation(place.db), place.hash, place.key));
        let row = layout::key_row(self.generation(place.db), place.hash, place.key);
        let lock = self.row(row).and_then(|value| {
            let header = layout::Header::parse(&value)?;
            Lock::parse(&value[header.body_at..])
        });
        let is_expired = place.old.is_some_and(|old| old.is_expired(self.stamp.at_ms));
        let how = self.run.ending.take().unwrap_or(if is_expired { End::Expired } else { End::Revoked });
        for hold in lock.iter().flat_map(|lock| &lock.holds) {
            if !hold.is_over {
                self.hold_ended(place, hold, how);
            }
            self.unbind(hold.session, place);
        }
    }

    /// Takes all locks of a database away, and tells their holders: the database is about to be emptied, or to be another one.
    pub(super) fn revoke_all(&mut self, db: u8) {
        let locks = RowRange::prefix(&layout::first(LOCKS, self.generation(db)).to_be_bytes());
        for (row, _) in self.rows(&locks, usize::MAX) {
            let place = self.place(db, row.borrow().tail);
            self.remove(&place);
        }
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
