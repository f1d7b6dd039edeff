//! A transaction: changes over a store that nobody else sees until they are committed.
//!
//! Reads see the transaction's own writes; dropping it undoes everything. A command is a transaction; MULTI, scripts and
//! all-or-nothing commands are the same thing, longer.
//!
//! A store that cannot read is not an answer. Handlers would have to pass the error through every line, so the transaction remembers the first one
//! (it is *poisoned*) and says "no such row"; the machine looks before it commits, and stops.

use super::Stamp;
use super::events::Event;
use super::locks::TakenBefore;
use super::meta::Meta;
use super::notify::{Class, Interest};
use super::overlay::Overlay;
use super::view::View;
use super::waits::Run;
use super::work::Work;
use crate::reply::Reply;
use crate::row::{Batch, RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::{Order, Rows, StoreError, Visit};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::ControlFlow;

/// See the module's description.
pub struct Txn<'m> {
    base: &'m dyn Rows,
    overlay: Overlay,
    /// Borrowed until something changes: most commands leave the numbers as they are.
    meta: Cow<'m, Meta>,
    pub(crate) stamp: Stamp,
    poison: OnceCell<StoreError>,
    /// What is told of what happens to keys.
    pub(super) interest: Interest,
    /// The locks that were taken before in this slot.
    pub(super) taken_before: TakenBefore<'m>,
    /// Whose command it is; who waits.
    pub(super) run: Run<'m>,
    /// What it may still do, if it is part of a script.
    pub(crate) work: Work,
}

impl<'m> Txn<'m> {
    /// A transaction over `base`, whose numbers are `meta`, at `stamp`. It uses the room of `spare`.
    pub(crate) fn new(base: &'m dyn Rows, meta: &'m Meta, stamp: &Stamp, spare: Batch) -> Txn<'m> {
        Txn {
            base,
            overlay: Overlay::with_room(spare),
            meta: Cow::Borrowed(meta),
            stamp: *stamp,
            poison: OnceCell::new(),
            interest: Interest::default(),
            taken_before: TakenBefore::default(),
            run: Run::default(),
            work: Work::default(),
        }
    }

    /// What it changed: rows, and the numbers if they did; and what it said. An error if the store failed on the way.
    #[inline]
    pub(crate) fn finish(self) -> Result<(Batch, Option<Meta>, Vec<Event>), StoreError> {
        if let Some(error) = self.poison.into_inner() {
            return Err(error);
        }
        let meta = match self.meta {
            Cow::Owned(meta) => Some(meta),
            Cow::Borrowed(_) => None,
        };
        Ok((self.overlay.into_batch(), meta, self.run.events))
    }

    /// The machine's numbers.
    #[inline]
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The same, to change them.
    pub(crate) fn meta_mut(&mut self) -> &mut Meta {
        self.meta.to_mut()
    }

    /// The transaction's state, for reading commands.
    pub(crate) fn view(&self) -> View<'_> {
        let seed = self.stamp.slot ^ u64::from(self.stamp.index) << 48;
        View::new(self, &self.meta, self.stamp.at_ms, seed)
            .noting_misses(self.interest.notify.wants(Class::Miss))
            .with_work(self.work.clone())
    }

    /// Looks at the transaction's state as a reading command does.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        let view = self.view();
        let seen = look(&view);
        if let Err(error) = view.check() {
            self.poison(error);
        }
        seen
    }

    /// The same, and tells of the keys that were looked for in vain, if somebody wants to know.
    pub(crate) fn look_and_tell<T>(&mut self, look: impl FnOnce(&View<'_>) -> T) -> T {
        if !self.interest.notify.wants(Class::Miss) {
            return self.look(look);
        }
        let mut misses = Vec::new();
        let seen = self.look(|view| {
            let seen = look(view);
            misses = view.take_misses();
            seen
        });
        misses.iter().for_each(|(db, key)| self.notify_missed(*db, key));
        seen
    }

    /// Does `work` as a transaction inside this one: an error as its reply undoes what it changed, and nothing else
    /// (unless it said [`Txn::keep_despite_error`]).
    pub(crate) fn attempt(&mut self, work: impl FnOnce(&mut Txn<'_>) -> Reply) -> Reply {
        let mut inner = Txn::new(&*self, &self.meta, &self.stamp, Batch::new());
        inner.interest = self.interest;
        inner.run = self.run.inside();
        inner.taken_before = self.taken_before.and(&self.run.taken);
        inner.work = self.work.clone();
        let reply = work(&mut inner);
        let left = inner.run.leave();
        let has_failed = reply.is_error() && !inner.run.keeps;
        if has_failed {
            inner.tell_only_misses();
        }
        match inner.finish() {
            Err(error) => self.poison(error),
            Ok((.., events)) if has_failed => self.run.events.extend(events),
            Ok((batch, meta, events)) => {
                self.run.take_over(left, events);
                if let Some(meta) = meta {
                    *self.meta_mut() = meta;
                }
                batch.into_iter().for_each(|change| self.overlay.set(change.key, change.value));
            }
        }
        reply
    }

    /// What this command did stays done although its reply will be an error. Only scripts do that, as in Redis.
    pub(crate) fn keep_despite_error(&mut self) {
        self.run.keeps = true;
    }

    /// Remembers a failure of the store.
    pub(crate) fn poison(&self, error: StoreError) {
        // Only the first one counts; later ones may be its consequences.
        let _ = self.poison.set(error);
    }

    /// A row's value. Nothing, and poisoned, if the store fails.
    #[inline]
    pub(crate) fn row(&self, key: RowKeyRef<'_>) -> Option<Cow<'_, RowValue>> {
        let found = self.get(key).unwrap_or_else(|error| {
            self.poison(error);
            None
        });
        self.work.find(found.as_ref().map_or(0, |value| value.len()));
        found
    }

    /// Writes a row.
    #[inline]
    pub(crate) fn put_row(&mut self, key: RowKey, value: RowValue) {
        self.work.write(value.len());
        self.overlay.set(key, Some(value));
    }

    /// Removes a row.
    #[inline]
    pub(crate) fn remove_row(&mut self, key: RowKey) {
        self.work.write(0);
        self.overlay.set(key, None);
    }

    /// Up to `limit` rows of a range, ascending. Nothing, and poisoned, if the store fails.
    pub(crate) fn rows(&self, range: &RowRange, limit: usize) -> Vec<(RowKey, RowValue)> {
        let mut found = Vec::new();
        self.work.seek();
        if limit > 0 {
            let visit = &mut |key: RowKeyRef<'_>, value: &RowValue| {
                found.push((key.to_owned(), value.clone()));
                self.work.pass(value.len());
                if found.len() < limit && !self.work.is_over() {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            };
            if let Err(error) = self.scan(range, Order::Ascending, visit) {
                self.poison(error);
            }
        }
        found
    }

    /// The next fencing or task token: one counter for everything, so that tokens of any two grants compare.
    pub fn next_token(&mut self) -> u64 {
        let meta = self.meta_mut();
        meta.tokens += 1;
        meta.tokens
    }

    /// T1 dropped, for a planted bug.
    pub(crate) fn forget_tokens(&mut self) {
        self.meta_mut().tokens = 0;
    }
}

impl Rows for Txn<'_> {
    #[inline]
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        match self.overlay.get(key) {
            Some(changed) => Ok(changed.map(Cow::Borrowed)),
            None => self.base.get(key),
        }
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut changes = self.overlay.in_range(range);
        // They are gathered whether they are shown or not.
        self.work.spend(changes.len());
        if changes.is_empty() {
            return self.base.scan(range, order, visit);
        }
        // The next change to show is at the end.
        if order == Order::Ascending {
            changes.reverse();
        }
        let comes_first = |a: RowKeyRef<'_>, b: RowKeyRef<'_>| match order {
            Order::Ascending => a < b,
            Order::Descending => a > b,
        };
        let mut stopped = false;
        self.base.scan(range, order, &mut |key, value| {
            let mut flow = ControlFlow::Continue(());
            while let Some((changed, new)) = changes.pop_if(|(changed, _)| comes_first(*changed, key)) {
                if let Some(new) = new {
                    flow = visit(changed, new);
                    if flow.is_break() {
                        stopped = true;
                        return flow;
                    }
                }
            }
            flow = match changes.pop_if(|(changed, _)| *changed == key) {
                Some((_, Some(new))) => visit(key, new),
                Some((_, None)) => flow,
                None => visit(key, value),
            };
            stopped = flow.is_break();
            flow
        })?;
        while !stopped && let Some((key, value)) = changes.pop() {
            stopped = value.is_some_and(|value| visit(key, value).is_break());
        }
        Ok(())
    }
}
