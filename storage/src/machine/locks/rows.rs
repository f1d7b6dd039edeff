//! What the rows of locks hold: the lock itself, and how its last hold ended.

use super::super::events::Caller;
use super::super::layout::{self, ENDS};
use crate::planted::{self, Bug};
use crate::row::{RowKeyRef, RowValue, SmallBytes};
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
    pub owner: SmallBytes,
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
    pub address: SmallBytes,
    /// What the owner said about it.
    pub data: SmallBytes,
    /// Its time passed, and that was told; only its delay goes on.
    pub is_over: bool,
}

fn is_held(is_over: bool, deadline_ms: Option<u64>, now_ms: u64) -> bool {
    let early_ms = if planted::has(Bug::CutShort) { 40 } else { 0 };
    !is_over && deadline_ms.is_none_or(|deadline_ms| now_ms + early_ms <= deadline_ms)
}

impl Hold {
    /// Whether its time is not over.
    #[must_use]
    pub fn is_held(&self, now_ms: u64) -> bool {
        is_held(self.is_over, self.deadline_ms, now_ms)
    }

    pub(super) fn closed_until_ms(&self) -> Option<u64> {
        let delay_ms = if planted::has(Bug::DelayIgnored) { 0 } else { self.delay_ms };
        self.deadline_ms.map(|deadline_ms| deadline_ms.saturating_add(delay_ms))
    }
}

/// A hold as its row says it, without a copy.
#[derive(Clone, Copy)]
pub(super) struct HoldRef<'r> {
    pub(super) token: u64,
    pub(super) count: u64,
    pub(super) session: u64,
    pub(super) owner: &'r [u8],
    since_ms: u64,
    deadline_ms: Option<u64>,
    delay_ms: u64,
    caller: Caller,
    client: u64,
    address: &'r [u8],
    data: &'r [u8],
    is_over: bool,
}

/// Room for the numbers of a hold: at most 13, and the flags.
const NUMBERS_MAX: usize = 1 + 13 * varint::BYTES_MAX;
/// Rows up to this length are put together where nothing must be allocated.
const ROOM: usize = 384;

impl Hold {
    /// What most holds do not have takes no room: it is said here what is there.
    fn flags(&self) -> u8 {
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        flag(self.is_over, IS_OVER)
            | flag(self.count != 1, HAS_COUNT)
            | flag(self.deadline_ms.is_some(), HAS_DEADLINE)
            | flag(self.delay_ms != 0, HAS_DELAY)
            | flag(self.session != 0, HAS_SESSION)
            | flag(!self.data.is_empty(), HAS_DATA)
    }

    /// Writes the numbers from `at` on; gives where they end.
    fn write_numbers(&self, out: &mut [u8], at: usize) -> usize {
        let Caller { node, incarnation, seq } = self.caller;
        let flags = self.flags();
        out[at] = flags;
        let mut at = at + 1;
        let mut put = |number: u64| at = varint::write_at(out, at, number);
        for number in [self.token, self.since_ms, node, incarnation, seq, self.client] {
            put(number);
        }
        if flags & HAS_COUNT != 0 {
            put(self.count);
        }
        if let Some(deadline_ms) = self.deadline_ms {
            // Mostly it is later, and not much: few bytes.
            put(deadline_ms.wrapping_sub(self.since_ms));
        }
        if flags & HAS_DELAY != 0 {
            put(self.delay_ms);
        }
        if flags & HAS_SESSION != 0 {
            put(self.session);
        }
        put(self.owner.len() as u64);
        put(self.address.len() as u64);
        if flags & HAS_DATA != 0 {
            put(self.data.len() as u64);
        }
        at
    }

    fn texts(&self) -> [&[u8]; 3] {
        [&self.owner, &self.address, &self.data]
    }
}

impl<'r> HoldRef<'r> {
    fn take(rest: &mut &'r [u8]) -> Option<HoldRef<'r>> {
        let (flags, after) = rest.split_first()?;
        *rest = after;
        let has = |flag: u8| flags & flag != 0;
        let mut number = || varint::take(rest);
        let (token, since_ms) = (number()?, number()?);
        let caller = Caller { node: number()?, incarnation: number()?, seq: number()? };
        let client = number()?;
        let count = if has(HAS_COUNT) { number()? } else { 1 };
        let deadline_ms = if has(HAS_DEADLINE) { Some(number()?.wrapping_add(since_ms)) } else { None };
        let delay_ms = if has(HAS_DELAY) { number()? } else { 0 };
        let session = if has(HAS_SESSION) { number()? } else { 0 };
        let (owner, address) = (number()?, number()?);
        let data = if has(HAS_DATA) { number()? } else { 0 };
        let mut text = |length: u64| {
            let (text, left) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            *rest = left;
            Some(text)
        };
        let (owner, address, data) = (text(owner)?, text(address)?, text(data)?);
        let is_over = has(IS_OVER);
        Some(HoldRef {
            token,
            count,
            session,
            owner,
            since_ms,
            deadline_ms,
            delay_ms,
            caller,
            client,
            address,
            data,
            is_over,
        })
    }

    /// Whether its time is not over.
    pub(super) fn is_held(&self, now_ms: u64) -> bool {
        is_held(self.is_over, self.deadline_ms, now_ms)
    }

    pub(super) fn to_owned(self) -> Hold {
        Hold {
            token: self.token,
            owner: SmallBytes::new(self.owner),
            count: self.count,
            since_ms: self.since_ms,
            deadline_ms: self.deadline_ms,
            delay_ms: self.delay_ms,
            session: self.session,
            caller: self.caller,
            client: self.client,
            address: SmallBytes::new(self.address),
            data: SmallBytes::new(self.data),
            is_over: self.is_over,
        }
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
const HAS_COUNT: u8 = 1 << 1;
const HAS_DEADLINE: u8 = 1 << 2;
const HAS_DELAY: u8 = 1 << 3;
const HAS_SESSION: u8 = 1 << 4;
const HAS_DATA: u8 = 1 << 5;

impl Lock {
    /// The value of the key's row.
    pub(super) fn value(&self, version: u64, is_young: bool) -> RowValue {
        match &self.holds[..] {
            [hold] => Lock::value_of(hold, self.is_shared, version, is_young),
            holds => {
                let head = layout::lock_head(version, self.free_at_ms(), is_young);
                let mut out = head.to_vec();
                out.push(if self.is_shared { SHARED } else { 0 });
                for hold in holds {
                    let mut numbers = [0; NUMBERS_MAX];
                    let length = hold.write_numbers(&mut numbers, 0);
                    out.extend_from_slice(&numbers[..length]);
                    hold.texts().into_iter().for_each(|text| out.extend_from_slice(text));
                }
                RowValue::new(&out)
            }
        }
    }

    /// The value of the row of a lock with one hold: behind what all keys say, `mode¹ · (flags¹ · token · since · node · incarnation · command ·
    /// connection, and if the flags say so count · deadline, counted from since · delay · session; then the lengths of owner and address, and of data if
    /// the flags say so; then these)…`.
    pub(super) fn value_of(hold: &Hold, is_shared: bool, version: u64, is_young: bool) -> RowValue {
        let head = layout::lock_head(version, hold.closed_until_ms(), is_young);
        let mut out = [0; ROOM];
        out[..head.len()].copy_from_slice(&head);
        out[head.len()] = if is_shared { SHARED } else { 0 };
        let mut at = hold.write_numbers(&mut out, head.len() + 1);
        if at + hold.texts().map(<[u8]>::len).iter().sum::<usize>() > ROOM {
            return RowValue::concat(&[&out[..at], &hold.owner, &hold.address, &hold.data]);
        }
        for text in hold.texts() {
            out[at..at + text.len()].copy_from_slice(text);
            at += text.len();
        }
        RowValue::new(&out[..at])
    }

    pub(crate) fn parse(body: &[u8]) -> Option<Lock> {
        let (mode, mut rest) = body.split_first()?;
        let mut lock = Lock { is_shared: *mode == SHARED, holds: Vec::with_capacity(1) };
        while !rest.is_empty() {
            lock.holds.push(HoldRef::take(&mut rest)?.to_owned());
        }
        Some(lock)
    }

    /// The hold of a lock that has one, and one only.
    pub(super) fn only(body: &[u8]) -> Option<HoldRef<'_>> {
        let (_, mut rest) = body.split_first()?;
        let hold = HoldRef::take(&mut rest)?;
        rest.is_empty().then_some(hold)
    }

    /// Those whose time is not over.
    pub fn held(&self, now_ms: u64) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(move |hold| hold.is_held(now_ms))
    }

    /// The position of a token's hold.
    pub(crate) fn position(&self, token: u64, now_ms: u64) -> Option<usize> {
        self.holds.iter().position(|hold| is_token(hold.token, token) && hold.is_held(now_ms))
    }

    /// When nobody holds it any more and no delay keeps it closed, if nothing happens.
    pub(super) fn free_at_ms(&self) -> Option<u64> {
        self.holds.iter().try_fold(0, |latest, hold| Some(hold.closed_until_ms()?.max(latest)))
    }

    /// When the next hold's time is over, or its delay.
    pub(super) fn next_end_ms(&self) -> Option<u64> {
        let end_ms = |hold: &Hold| if hold.is_over { hold.closed_until_ms() } else { hold.deadline_ms };
        self.holds.iter().filter_map(end_ms).min()
    }

    /// Whether somebody's delay keeps it closed.
    pub(crate) fn is_delayed(&self) -> bool {
        self.holds.iter().any(|hold| hold.is_over)
    }
}

/// Whether a hold with the token `held` is the one that `said` names.
pub(super) fn is_token(held: u64, said: u64) -> bool {
    held == said || planted::has(Bug::AnyTokenReleases)
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
    pub owner: SmallBytes,
}

/// How many ends are remembered. A key shares its place with others, which can only cost an explanation.
const ENDS_BUCKETS: u64 = 16_384;

pub(in super::super) const fn ended_row(hash: u64) -> RowKeyRef<'static> {
    RowKeyRef::from_parts(layout::first(ENDS, 0), hash % ENDS_BUCKETS, &[])
}

impl Ended {
    /// The row's value. In front of all is the slot: the version that a lock which is no more leaves behind.
    pub(super) fn value(
        slot: u64,
        (db, hash): (u8, u64),
        end: (End, u64),
        token: u64,
        owner: &[u8],
    ) -> RowValue {
        let (how, at_ms) = end;
        let mut out = [0; 3 * varint::BYTES_MAX + 10];
        let mut at = varint::write_at(&mut out, 0, slot);
        out[at..at + 8].copy_from_slice(&hash.to_be_bytes());
        out[at + 8..at + 10].copy_from_slice(&[db, how as u8]);
        at = varint::write_at(&mut out, at + 10, token);
        at = varint::write_at(&mut out, at, at_ms);
        RowValue::concat(&[&out[..at], owner])
    }

    pub(super) fn parse(mut value: &[u8], db: u8, hash: u64) -> Option<Ended> {
        varint::take(&mut value)?;
        let (of, rest) = value.split_first_chunk()?;
        let (&[of_db, how], mut rest) = rest.split_first_chunk()?;
        if u64::from_be_bytes(*of) != hash || of_db != db {
            return None;
        }
        let (token, at_ms) = (varint::take(&mut rest)?, varint::take(&mut rest)?);
        Some(Ended { how: End::from_number(how)?, token, at_ms, owner: SmallBytes::new(rest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::layout::Header;

    #[test]
    fn rows_say_what_was_put_in() {
        let hold = |token: u64, owner: &[u8], deadline_ms| Hold {
            token,
            owner: SmallBytes::new(owner),
            count: token,
            since_ms: 1 << 40,
            deadline_ms,
            delay_ms: 127 * (token % 2),
            session: 128 * (token % 3),
            caller: Caller { node: 1, incarnation: 1 << 14, seq: u64::MAX },
            client: 0,
            address: SmallBytes::new(b"127.0.0.1:1"),
            data: SmallBytes::new(&[0xA5; 300][..100 * (token as usize % 4)]),
            is_over: token == 2,
        };
        for holds in
            [vec![], vec![hold(1, b"a", None)], vec![hold(2, &[7; 40], Some(1 << 41)), hold(3, b"", Some(0))]]
        {
            let lock = Lock { is_shared: holds.len() > 1, holds };
            let value = lock.value(77, lock.is_shared);
            let header = Header::parse(&value).unwrap();
            assert_eq!((header.version, header.deadline_ms), (77, lock.free_at_ms()));
            assert_eq!(header.is_young, lock.is_shared);
            assert_eq!(layout::grown(&value), lock.value(77, false));
            let only = Lock::only(&value[header.body_at..]).map(HoldRef::to_owned);
            assert_eq!(only.as_ref(), lock.holds.first().filter(|_| lock.holds.len() == 1));
            assert_eq!(Lock::parse(&value[header.body_at..]), Some(lock));
        }
        let ended = Ended { how: End::Session, token: 300, at_ms: 1 << 41, owner: SmallBytes::new(b"o") };
        let value = Ended::value(1 << 20, (3, 9), (End::Session, 1 << 41), 300, b"o");
        assert_eq!(Ended::parse(&value, 3, 9), Some(ended));
        assert_eq!((Ended::parse(&value, 2, 9), Ended::parse(&value, 3, 8)), (None, None));
    }

    #[test]
    fn the_bytes_of_a_number_are_counted() {
        for bits in 0..64 {
            for number in [(1_u64 << bits) - 1, 1 << bits, u64::MAX] {
                let mut out = Vec::new();
                varint::put(&mut out, number);
                assert_eq!(varint::length(number), out.len(), "{number}");
            }
        }
    }
}
