//! What a reading command sees: rows at a slot boundary (or a transaction's), and a time.

use super::keyspace::Found;
use super::layout::{self, Header};
use super::locks::ended_row;
use super::meta::{DATABASES, Meta};
use super::work::Work;
use crate::row::{RowKeyRef, RowRange, RowValue};
use crate::store::{Order, Rows, StoreError, Visit};
use bytes::Bytes;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::ControlFlow;

/// What is called for each key: its hash, its name, what its row says. Breaking ends it.
pub type VisitKey<'a> = dyn FnMut(u64, &[u8], &Header) -> ControlFlow<()> + 'a;

/// See the module's description. Cheap to make: nothing is locked and nothing copied.
pub struct View<'v> {
    rows: &'v dyn Rows,
    meta: &'v Meta,
    now_ms: u64,
    clock_ms: u64,
    seed: Cell<u64>,
    poison: OnceCell<StoreError>,
    /// Keys that were looked for in vain, if they are noted.
    misses: Option<RefCell<Vec<(u8, Bytes)>>>,
    /// A key was seen whose time has passed by the node's clock, and not yet by the log.
    has_due: Cell<bool>,
    /// What the command may still do, if it is part of a script.
    pub(crate) work: Work,
}

impl<'v> View<'v> {
    /// A view of `rows` at `now_ms`. `seed` is where "random" answers begin.
    pub(crate) fn new(rows: &'v dyn Rows, meta: &'v Meta, now_ms: u64, seed: u64) -> View<'v> {
        View {
            rows,
            meta,
            now_ms,
            clock_ms: now_ms,
            seed: Cell::new(seed),
            poison: OnceCell::new(),
            misses: None,
            has_due: Cell::new(false),
            work: Work::default(),
        }
    }

    /// Cluster time in milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The same state, with what the node believes cluster time to be by now. It counts only for telling how much time is left: what is
    /// there and what is not follows the log's time, which never goes back.
    #[must_use]
    pub fn with_clock(self, clock_ms: u64) -> View<'v> {
        View { clock_ms: clock_ms.max(self.now_ms), ..self }
    }

    /// Whether keys that are looked for in vain are noted.
    pub(crate) fn noting_misses(self, notes: bool) -> View<'v> {
        View { misses: notes.then(RefCell::default), ..self }
    }

    /// With so much work left.
    pub(crate) fn with_work(self, work: Work) -> View<'v> {
        View { work, ..self }
    }

    /// Keys that were looked for in vain, in order.
    #[must_use]
    pub fn take_misses(&self) -> Vec<(u8, Bytes)> {
        self.misses.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// See [`View::with_clock`]; cluster time if nobody said more.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// The machine's numbers.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        self.meta
    }

    /// Why the answers given so far are not to be trusted, if so. To be asked before a reply is sent.
    pub fn check(&self) -> Result<(), StoreError> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Remembers the first failure.
    fn or_poison<T>(&self, result: Result<T, StoreError>) -> Option<T> {
        result.map_err(|error| self.poison.set(error)).ok()
    }

    fn generation(&self, db: u8) -> u64 {
        self.meta.databases[usize::from(db) % DATABASES].generation
    }

    /// A key, if it exists and its time is not over.
    #[must_use]
    pub fn find(&self, db: u8, key: &[u8]) -> Option<Found<'v>> {
        let found = self.find_quietly(db, key);
        if found.is_none()
            && let Some(misses) = &self.misses
        {
            misses.borrow_mut().push((db, Bytes::copy_from_slice(key)));
        }
        found
    }

    /// The same for commands that tell about a key without using it: a key that is not there is no miss.
    pub(crate) fn find_quietly(&self, db: u8, key: &[u8]) -> Option<Found<'v>> {
        let row = layout::key_row(self.generation(db), layout::key_hash(key), key);
        let found = Found::parse(self.row(row)?)?;
        if self.is_expired(&found.header) { None } else { Some(found) }
    }

    /// What is there and what is not follows the log's time; that the clock says otherwise is noted.
    #[inline]
    fn is_expired(&self, header: &Header) -> bool {
        let is_expired = header.is_expired(self.now_ms);
        if !is_expired && header.is_expired(self.clock_ms) {
            self.has_due.set(true);
        }
        is_expired
    }

    /// Whether a key was seen whose time has passed by the clock, and not yet by the log: whoever can should let the log go on, and look again.
    #[must_use]
    pub fn has_due(&self) -> bool {
        self.has_due.get()
    }

    /// A row's value. Nothing, and not to be trusted, if the store fails.
    pub(crate) fn row(&self, row: RowKeyRef<'_>) -> Option<Cow<'v, RowValue>> {
        let found = self.or_poison(self.rows.get(row)).flatten();
        self.work.find(found.as_ref().map_or(0, |value| value.len()));
        found
    }

    /// Shows the rows of a range to `visit`, until it breaks.
    pub(crate) fn each_row(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) {
        self.work.seek();
        self.or_poison(self.rows.scan(range, order, &mut |row, value| {
            self.work.pass(value.len());
            if visit(row, value).is_break() || self.work.is_over() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }));
    }

    /// A number that changes with every write of the key, also if the key was absent before and after: what WATCH remembers.
    #[must_use]
    pub fn version(&self, db: u8, key: &[u8]) -> u64 {
        let changed_at = self.meta.databases[usize::from(db) % DATABASES].changed_at;
        match self.find_quietly(db, key) {
            // The lowest bit tells a key that is there from one that is not.
            Some(found) => found.header.version.max(changed_at) << 1 | 1,
            None => self.deleted_version(self.generation(db), layout::key_hash(key)).max(changed_at) << 1,
        }
    }

    fn deleted_version(&self, generation: u64, hash: u64) -> u64 {
        // Of a lock, it stands in front of how its last hold ended.
        let rows = [layout::deleted_row(generation, hash), ended_row(hash)];
        let version = |row| crate::varint::take(&mut self.row(row)?.as_slice());
        rows.into_iter().filter_map(version).max().unwrap_or(0)
    }

    /// Shows the living keys of a database to `visit`, in the order of their hashes, from `hash` on, until it breaks.
    pub fn each_key(&self, db: u8, hash: u64, visit: &mut VisitKey<'_>) {
        let range = layout::keys_from(self.generation(db), hash);
        self.each_row(&range, Order::Ascending, &mut |row, value| match Header::parse(value) {
            Some(header) if !self.is_expired(&header) => visit(row.second(), row.tail(), &header),
            _ => ControlFlow::Continue(()),
        });
    }

    /// A number for commands that ask for a random answer. The same on every node inside a transaction, where it comes from the stamp.
    pub(crate) fn random(&self) -> u64 {
        // One step of splitmix64.
        let next = self.seed.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.seed.set(next);
        let mixed = (next ^ next >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}
