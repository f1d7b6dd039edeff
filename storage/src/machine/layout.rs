//! Where everything is: the tables, their keys and what a key's row holds. This is the format of snapshots and of the disk store,
//! and two nodes compare their checksums over it: it never changes in place.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | meta `01` | `01` 0⁷ · number⁸ | a varint or, for a database, varints (see `meta`) |
//! | keys `10` | `10` generation⁷ · hash⁸ · key | tag¹ · version (varint) · deadline (varint, if tagged) · session (varint, if tagged) · body |
//! | deadlines `11`, of keys that are no locks | `11` deadline⁸ generation⁷ · hash⁸ · key | nothing |
//! | members `12`: a hash | `12` object⁷ · hash of the field⁸ · field | the value |
//! | members `12`: a list | `12` object⁷ · position⁸ | the item |
//! | garbage `13` | `13` kind⁷ · number⁸ | nothing |
//! | deleted `14` | `14` 0⁷ · bucket⁸ | version (varint) |
//! | waits `15` | `15` 0⁷ · number⁸ | what for¹ · database¹ · since · deadline + 1 or 0 · node · incarnation · command (varints) · keys · reply on time-out · command |
//! | lines `16` | `16` database⁷ · hash⁸ · key · number⁸ of a wait | what for¹ |
//! | callers `17` | `17` node⁷ · incarnation⁸ · command⁸ | number⁸ of a wait |
//! | ends of holds `19` | `19` 0⁷ · bucket⁸ | version (varint) · hash⁸ of a key · database¹ · how¹ · token · time (varints) · owner |
//! | sessions `1A` | `1A` 0⁷ · id⁸ | time to live · deadline (varints) · name |
//! | bound `1B` | `1B` session⁷ · generation⁸ · key | nothing |
//! | locks `1C` that are not young | `1C` generation⁷ · deadline⁸, or the end of time · key | nothing |
//! | pages `1D` of locks taken in one slot | `1D` time⁸ 0⁷ · slot⁸ | generation (varint) · length · key, … |
//! | owners `1E` of waits for locks | `1E` database⁷ · hash⁸ of key and owner · length⁸ of the key · key · owner · number⁸ of a wait | nothing |
//! | sessions `1F` of waits for locks | `1F` session⁷ · number⁸ of a wait | nothing |
//! | scripts `30` | `30` 0⁷ · SHA-1²⁰ | 1 if it was loaded, 0 if only evaluated¹ · text |
//! | evaluated `31` | `31` 0⁷ · number⁸ | SHA-1²⁰ of a script |
//! | timers `18` | `18` time⁸ 0⁷ · kind¹ · what the kind wants | nothing |
//!
//! Numbers in keys are big-endian, so that their order is the order of rows. A database is a *generation*: FLUSHDB gives it a
//! new one, SWAPDB exchanges two, and what belongs to a dead generation is garbage, removed little by little. A key with members
//! (a hash, a list …) has an *object* id under which their rows are: DEL and RENAME touch the key's row only. Its body is the object id⁸ and
//! what the type wants: a hash its number of fields, a list its number of items and the position of the first, as varints.

use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::varint;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const META: u8 = 0x01;
const KEYS: u8 = 0x10;
const DEADLINES: u8 = 0x11;
const MEMBERS: u8 = 0x12;
const GARBAGE: u8 = 0x13;
const DELETED: u8 = 0x14;
pub(super) const WAITS: u8 = 0x15;
pub(super) const LINES: u8 = 0x16;
pub(super) const CALLERS: u8 = 0x17;
pub(super) const TIMERS: u8 = 0x18;
pub(super) const ENDS: u8 = 0x19;
pub(super) const SESSIONS: u8 = 0x1A;
pub(super) const BOUND: u8 = 0x1B;
pub(super) const LOCKS: u8 = 0x1C;
const PAGES: u8 = 0x1D;
pub(super) const OWNERS: u8 = 0x1E;
pub(super) const WAITING_SESSIONS: u8 = 0x1F;
pub(super) const SCRIPTS: u8 = 0x30;
pub(super) const EVALUATED: u8 = 0x31;

/// Generations and object ids have this many bits.
pub(super) const ID_BITS: u32 = 56;
pub(super) const ID_MAX: u64 = (1 << ID_BITS) - 1;

/// Of the hash of keys. Chosen once; it orders rows and cursors, so it stays for ever.
const HASH_SEED: u64 = 0x5761_726C_6F63_6B21;

/// How many versions of deleted keys are remembered. A key shares its place with others, which can only make a WATCH
/// fail that need not.
const DELETED_BUCKETS: u64 = 4096;

/// The hash of a key: XXH3, 64 bits, with a constant seed.
#[inline]
#[must_use]
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, HASH_SEED)
}

#[inline]
pub(super) const fn first(table: u8, id: u64) -> u64 {
    (table as u64) << ID_BITS | (id & ID_MAX)
}

/// The row of a machine-wide number.
pub(crate) const fn meta_row(number: u64) -> RowKeyRef<'static> {
    RowKeyRef::from_parts(first(META, 0), number, &[])
}

/// The row of a key.
#[inline]
pub(crate) const fn key_row(generation: u64, hash: u64, key: &[u8]) -> RowKeyRef<'_> {
    RowKeyRef::from_parts(first(KEYS, generation), hash, key)
}

/// The rows of a generation's keys whose hashes are at least `hash`.
pub(crate) fn keys_from(generation: u64, hash: u64) -> RowRange {
    RowRange {
        from: RowKey::concat(first(KEYS, generation), hash, &[]),
        to: Some(RowKey::concat(first(KEYS, generation) + 1, 0, &[])),
    }
}

/// The row that says when a key's time is over.
pub(crate) fn deadline_row(deadline_ms: u64, generation: u64, hash: u64, key: &[u8]) -> RowKey {
    RowKey::concat(
        u64::from(DEADLINES) << 56 | deadline_ms >> 8,
        deadline_ms << ID_BITS | (generation & ID_MAX),
        &[&hash.to_be_bytes(), key],
    )
}

/// The row that says when a lock is free by itself. A lock that lasts as long as a session has one, too, at the end of time.
pub(crate) fn lock_row(deadline_ms: Option<u64>, generation: u64, key: &[u8]) -> RowKey {
    RowKeyRef::from_parts(first(LOCKS, generation), deadline_ms.unwrap_or(u64::MAX), key).to_owned()
}

/// The locks of a generation, those that are free first at the front.
pub(crate) fn locks(generation: u64) -> RowRange {
    RowRange::prefix(&first(LOCKS, generation).to_be_bytes())
}

/// The page of the locks that were taken in a slot and were young until some time.
pub(crate) fn page_row(due_ms: u64, slot: u64) -> RowKey {
    RowKey::concat(first(PAGES, due_ms >> 8), due_ms << ID_BITS, &[&slot.to_be_bytes()])
}

/// All pages, in the order of their times.
pub(crate) fn pages() -> RowRange {
    RowRange::prefix(&[PAGES])
}

/// Those whose time has come.
pub(crate) fn pages_until(now_ms: u64) -> RowRange {
    RowRange { to: Some(page_row(now_ms.saturating_add(1), 0)), ..pages() }
}

/// Until when the locks of a page were young, and the slot in which they were taken.
pub(crate) fn parse_page(row: RowKeyRef<'_>) -> Option<(u64, u64)> {
    let slot = u64::from_be_bytes(row.tail().try_into().ok()?);
    Some((row.first() << 8 | row.second() >> ID_BITS, slot))
}

/// How a key is found when its time is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) is_lock: bool,
    pub(crate) deadline_ms: Option<u64>,
    /// A lock that stands on a page instead of having a row.
    pub(crate) is_young: bool,
}

impl Timed {
    /// The row that says when the key's time is over, if it has one.
    pub(crate) fn row(self, generation: u64, hash: u64, key: &[u8]) -> Option<RowKey> {
        match self.deadline_ms {
            _ if self.is_young => None,
            deadline_ms if self.is_lock => Some(lock_row(deadline_ms, generation, key)),
            deadline_ms => deadline_ms.map(|deadline_ms| deadline_row(deadline_ms, generation, hash, key)),
        }
    }
}

/// All deadlines of keys that are no locks.
pub(crate) fn deadlines() -> RowRange {
    RowRange::prefix(&[DEADLINES])
}

/// What a row of the deadlines says: when, which generation, which hash, which key.
pub(crate) fn parse_deadline(row: RowKeyRef<'_>) -> Option<(u64, u64, u64, &[u8])> {
    let (hash, key) = row.tail().split_first_chunk()?;
    let deadline_ms = row.first() << 8 | row.second() >> ID_BITS;
    Some((deadline_ms, row.second() & ID_MAX, u64::from_be_bytes(*hash), key))
}

/// The rows of an object's members.
pub(crate) fn members(object: u64) -> RowRange {
    RowRange::prefix(&first(MEMBERS, object).to_be_bytes())
}

/// The row of a hash's field. Fields lie in the order of their hashes, so that a cursor is a piece of a hash, as for keys.
pub(crate) fn field_row(object: u64, field: &[u8]) -> RowKeyRef<'_> {
    RowKeyRef::from_parts(first(MEMBERS, object), key_hash(field), field)
}

/// The rows of a hash's fields whose hashes are at least `hash`.
pub(crate) fn fields_from(object: u64, hash: u64) -> RowRange {
    RowRange {
        from: RowKey::concat(first(MEMBERS, object), hash, &[]),
        to: Some(RowKey::concat(first(MEMBERS, object) + 1, 0, &[])),
    }
}

/// The row of a list's item at a position.
pub(crate) const fn item_row(object: u64, position: u64) -> RowKeyRef<'static> {
    RowKeyRef::from_parts(first(MEMBERS, object), position, &[])
}

/// The rows of a list's items at some positions.
pub(crate) fn items(object: u64, positions: &std::ops::Range<u64>) -> RowRange {
    let row = |position| RowKey::concat(first(MEMBERS, object), position, &[]);
    RowRange { from: row(positions.start), to: Some(row(positions.end)) }
}

/// A member's row, moved to another object.
pub(crate) fn member_of(object: u64, row: RowKeyRef<'_>) -> RowKey {
    let mut bytes = Vec::with_capacity(row.byte_count());
    row.write_to(&mut bytes);
    let head = first(MEMBERS, object).to_be_bytes();
    bytes.iter_mut().zip(head).for_each(|(byte, new)| *byte = new);
    RowKey::new(&bytes)
}

/// What is left behind and waits to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// All keys of a generation.
    Generation(u64),
    /// All members of an object.
    Object(u64),
}

impl Garbage {
    /// The row that remembers it.
    pub(crate) const fn row(self) -> RowKeyRef<'static> {
        match self {
            Garbage::Generation(id) => RowKeyRef::from_parts(first(GARBAGE, 1), id, &[]),
            Garbage::Object(id) => RowKeyRef::from_parts(first(GARBAGE, 2), id, &[]),
        }
    }

    /// All that is remembered.
    pub(crate) fn rows() -> RowRange {
        RowRange::prefix(&[GARBAGE])
    }

    /// What a row remembers.
    pub(crate) fn parse(row: RowKeyRef<'_>) -> Option<Garbage> {
        match row.first() & ID_MAX {
            1 => Some(Garbage::Generation(row.second())),
            2 => Some(Garbage::Object(row.second())),
            _ => None,
        }
    }
}

/// The row that remembers when a key with this hash was last deleted in the database with this generation. Others may share it: a WATCH
/// that fails without need is safe.
pub(crate) const fn deleted_row(generation: u64, hash: u64) -> RowKeyRef<'static> {
    let bucket = hash.wrapping_add(generation.wrapping_mul(0x9E37_79B9_7F4A_7C15)) % DELETED_BUCKETS;
    RowKeyRef::from_parts(first(DELETED, 0), bucket, &[])
}

/// The types a key can have. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes.
    String = 0,
    /// A list.
    List = 1,
    /// A set.
    Set = 2,
    /// A sorted set.
    SortedSet = 3,
    /// A hash.
    Hash = 4,
    /// A stream.
    Stream = 5,
    /// A lock.
    Lock = 6,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::String, Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream, Kind::Lock];

    fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// What TYPE says.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
            Kind::Lock => "lock",
        }
    }

    /// Whether its values are rows of their own, under an object id that the body begins with.
    #[must_use]
    pub const fn has_members(self) -> bool {
        !matches!(self, Kind::String | Kind::Lock)
    }
}

const TAG_KIND: u8 = 0x1F;
const TAG_HAS_DEADLINE: u8 = 0x20;
const TAG_HAS_SESSION: u8 = 0x40;
/// Of a lock: it stands on a page.
const TAG_IS_YOUNG: u8 = 0x80;

/// How many bytes of a body with members are the object id.
const OBJECT_BYTES: usize = 8;

/// What a key's row says before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type.
    pub kind: Kind,
    /// The slot of the last write.
    pub version: u64,
    /// When the key's time is over, in cluster time. The key still lives in that millisecond, as in Redis.
    pub deadline_ms: Option<u64>,
    /// The session that the key goes with; 0: none.
    pub session: u64,
    /// Where the members are, for a type that has them.
    pub object: Option<u64>,
    /// Of a lock: it stands on a page of those taken in the slot that is its version.
    pub(crate) is_young: bool,
    /// Where the body begins in the row's value.
    pub(crate) body_at: usize,
}

impl Header {
    /// The header of a stored value. Nothing if no version of ours wrote it.
    #[inline]
    pub(crate) fn parse(value: &[u8]) -> Option<Header> {
        let (tag, mut rest) = value.split_first()?;
        let kind = Kind::from_number(tag & TAG_KIND)?;
        let version = varint::take(&mut rest)?;
        let deadline_ms = if tag & TAG_HAS_DEADLINE == 0 { None } else { Some(varint::take(&mut rest)?) };
        let session = if tag & TAG_HAS_SESSION == 0 { 0 } else { varint::take(&mut rest)? };
        let object = if kind.has_members() {
            Some(u64::from_be_bytes(*rest.first_chunk::<OBJECT_BYTES>()?))
        } else {
            None
        };
        let is_young = tag & TAG_IS_YOUNG != 0;
        let body_at = value.len() - rest.len();
        Some(Header { kind, version, deadline_ms, session, object, is_young, body_at })
    }

    /// How the key is found when its time is over.
    pub(crate) fn timed(&self) -> Timed {
        let Header { kind, deadline_ms, is_young, .. } = *self;
        Timed { is_lock: kind == Kind::Lock, deadline_ms, is_young }
    }

    /// Whether the key's time is over.
    #[inline]
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_some_and(|deadline_ms| now_ms > deadline_ms)
    }
}

/// What a key's row says before the body, as bytes.
pub(crate) type Head = arrayvec::ArrayVec<u8, { 1 + 3 * varint::BYTES_MAX }>;

fn head(kind: Kind, version: u64, deadline_ms: Option<u64>, session: u64) -> Head {
    let mut number = [0; varint::BYTES_MAX];
    let mut head = Head::new();
    let session = Some(session).filter(|session| *session != 0);
    let tag = |is_there: bool, tag: u8| if is_there { tag } else { 0 };
    head.push(
        kind as u8 | tag(deadline_ms.is_some(), TAG_HAS_DEADLINE) | tag(session.is_some(), TAG_HAS_SESSION),
    );
    for part in [Some(version), deadline_ms, session].into_iter().flatten() {
        let length = varint::write(&mut number, part);
        head.extend(number[..length].iter().copied());
    }
    head
}

/// The value of a key's row.
pub(crate) fn key_value(
    kind: Kind,
    version: u64,
    deadline_ms: Option<u64>,
    session: u64,
    body: &[&[u8]],
) -> RowValue {
    let head = head(kind, version, deadline_ms, session);
    match body {
        [one] => RowValue::concat(&[&head, one]),
        [one, two] => RowValue::concat(&[&head, one, two]),
        _ => RowValue::concat(&[&head, &body.concat()]),
    }
}

/// What a lock's row says before the body.
pub(crate) fn lock_head(version: u64, deadline_ms: Option<u64>, is_young: bool) -> Head {
    let mut head = head(Kind::Lock, version, deadline_ms, 0);
    head[0] |= if is_young { TAG_IS_YOUNG } else { 0 };
    head
}

/// The value of a lock's row when it is young no more.
pub(crate) fn grown(value: &[u8]) -> RowValue {
    match value.split_first() {
        Some((tag, rest)) => RowValue::concat(&[&[tag & !TAG_IS_YOUNG], rest]),
        None => RowValue::EMPTY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_it_was() {
        // If this fails, stored rows and cursors of every cluster become wrong.
        assert_eq!(key_hash(b""), KNOWN_HASHES[0]);
        assert_eq!(key_hash(b"warlock"), KNOWN_HASHES[1]);
        assert_eq!(key_hash(&[0xA5; 300]), KNOWN_HASHES[2]);
    }

    const KNOWN_HASHES: [u64; 3] = [0x2EC6_EED0_EB03_5AF1, 0xA82B_B664_4BA8_CBCF, 0x869B_D841_2BA8_9BE4];

    #[test]
    fn a_key_row_says_what_was_put_in() {
        let body = [7_u8; 12];
        for kind in Kind::ALL {
            for deadline_ms in [None, Some(0), Some(u64::MAX)] {
                let session = deadline_ms.map_or(0, |_| 77);
                let value = key_value(kind, 1 << 40, deadline_ms, session, &[&body]);
                let header = Header::parse(&value).unwrap();
                assert_eq!((header.kind, header.version, header.deadline_ms), (kind, 1 << 40, deadline_ms));
                assert_eq!((&value[header.body_at..], header.session), (&body[..], session));
                assert_eq!(header.object.is_some(), kind.has_members());
            }
        }
        assert_eq!(Header::parse(&[]), None);
        assert_eq!(Header::parse(&[31, 1]), None);
        assert_eq!(Header::parse(&[4, 1, 0, 0]), None);
    }

    #[test]
    fn a_deadline_row_says_what_was_put_in() {
        for deadline_ms in [0, 1, 255, 256, 1_700_000_000_123, u64::MAX] {
            let row = deadline_row(deadline_ms, ID_MAX, 77, b"key");
            assert_eq!(parse_deadline(row.borrow()), Some((deadline_ms, ID_MAX, 77, &b"key"[..])));
            assert!(deadlines().contains(row.borrow()));
        }
        assert!(deadline_row(255, 9, 9, b"z") < deadline_row(256, 0, 0, b""));
    }

    #[test]
    fn members_move_between_objects() {
        let row = RowKey::new(&[&[MEMBERS, 0, 0, 0, 0, 0, 0, 5][..], b"x"].concat());
        assert!(members(5).contains(row.borrow()));
        let moved = member_of(6, row.borrow());
        assert!(members(6).contains(moved.borrow()));
        assert_eq!(member_of(5, moved.borrow()), row);
    }
}
