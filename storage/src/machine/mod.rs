//! The machine: decided commands in, replies and rows out. Deterministic: the same calls in the same order give the same rows, replies and
//! checksum on every node. It sees no clock but the stamp's, no randomness, and no order but that of rows.
//!
//! ```text
//! apply(stamp, caller, payload) → reply, events   for every command of a slot, in order
//! finish_slot(slot)                  then the slot's changes and the applied slot become one commit of the store
//! view(now) / snapshot()             only between slots: a reader sees a slot boundary, never half a batch (M2)
//! ```
//!
//! A command may have no reply yet ([`Reply::Waiting`]): it comes as an event of a later command. See [`waits`].
//!
//! A reply may be sent only after `finish_slot` succeeded: if the store fails, the machine stops changing anything and `finish_slot` says so.
//!
//! Reads and `apply` share a thread, so a view needs no lock and costs nothing. A reader on another thread uses a snapshot.

mod checksum;
mod events;
mod expiry;
mod keyspace;
pub(crate) mod layout;
pub mod locks;
mod meta;
mod notify;
mod overlay;
mod payload;
mod scripts;
mod sessions;
#[cfg(test)]
pub(crate) mod tests;
mod txn;
mod view;
pub mod waits;
mod work;

pub use checksum::Checksum;
pub use events::{Caller, Event, Undo};
pub use keyspace::{Found, Place};
pub use layout::{Header, Kind};
use locks::{Taken, TakenBefore};
pub use meta::{DATABASES, Database, Meta};
pub use notify::{Class, Interest, Notify};
pub(crate) use payload::decode_command;
pub use payload::{encode_command, encode_command_of};
#[cfg(test)]
pub(crate) use scripts::EVALUATED_MAX;
pub(crate) use sessions::Session;
pub use txn::Txn;
pub use view::{View, VisitKey};
pub(crate) use work::Work;

use crate::commands::{self, Args, Handler};
use crate::planted::{self, Bug};
use crate::reply::Reply;
use crate::row::{Batch, RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::{AnyStore, MemoryStore, Rows, Store, StoreError};
use bytes::Bytes;
use std::cell::Cell;
use std::ops::ControlFlow;

/// When and where in the decided sequence a command runs. The only time that a machine sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The slot.
    pub slot: u64,
    /// The position inside the slot's batch.
    pub index: u32,
    /// Cluster time in milliseconds; never goes back.
    pub at_ms: u64,
}

/// See the module's description.
pub struct Machine<S: Store = MemoryStore> {
    store: S,
    meta: Meta,
    /// What the store's rows say about `meta`.
    saved: Meta,
    /// The slot whose commands are being applied.
    open_slot: Option<u64>,
    /// Why nothing is applied any more.
    failed: Option<StoreError>,
    /// What commands of the open slot said besides their replies.
    events: Vec<Event>,
    /// Room for the changes of the next command, and for what it says.
    spare: Batch,
    spare_events: Vec<Event>,
    /// The locks that commands of the open slot took, and the time of that slot.
    page: Vec<Taken>,
    page_ms: u64,
    spare_page: Vec<Taken>,
    /// Where the next view's random answers begin. Not part of the replicated state.
    seed: Cell<u64>,
    /// What events are told. Not part of the replicated state either.
    interest: Interest,
}

/// A machine's rows at a slot boundary, for another thread.
#[derive(Clone)]
pub struct Snapshot<R> {
    rows: R,
    meta: Meta,
}

impl Default for Machine<MemoryStore> {
    fn default() -> Self {
        Machine::fresh(MemoryStore::default(), Meta::default())
    }
}

impl Machine<AnyStore> {
    /// An empty machine whose rows are in memory.
    #[must_use]
    pub fn in_memory() -> Machine<AnyStore> {
        Machine::fresh(AnyStore::default(), Meta::default())
    }
}

impl<S: Store> Machine<S> {
    /// The machine whose rows are in `store`.
    pub fn open(store: S) -> Result<Machine<S>, StoreError> {
        let meta = Meta::load(&store)?;
        Ok(Machine::fresh(store, meta))
    }

    fn fresh(store: S, meta: Meta) -> Machine<S> {
        Machine {
            store,
            meta,
            saved: meta,
            open_slot: None,
            failed: None,
            events: Vec::new(),
            spare: Batch::new(),
            spare_events: Vec::new(),
            page: Vec::new(),
            page_ms: 0,
            spare_page: Vec::new(),
            seed: Cell::new(0),
            interest: Interest::default(),
        }
    }

    /// The last slot that is finished.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.meta.applied
    }

    /// Executes a command of nobody: it cannot wait.
    pub fn apply(&mut self, stamp: &Stamp, payload: &Bytes) -> Reply {
        self.apply_for(stamp, Caller::NOBODY, payload)
    }

    /// Executes a command. Its changes are seen by the commands after it; see the module's description for when its reply may be sent.
    pub fn apply_for(&mut self, stamp: &Stamp, caller: Caller, payload: &Bytes) -> Reply {
        self.run(stamp, caller, payload, true)
    }

    /// What a command finds behind those of an open slot, as if it were one of them. It has no effect, also if the store fails it.
    pub fn peek(&mut self, stamp: &Stamp, payload: &Bytes) -> Reply {
        // Only this node does it: what is random in it need not be the same anywhere.
        let seed = self.seed.get().wrapping_add(1);
        self.seed.set(seed);
        let index = (seed & u64::from(u32::MAX)) as u32;
        self.run(&Stamp { index, ..*stamp }, Caller::NOBODY, payload, false)
    }

    fn run(&mut self, stamp: &Stamp, caller: Caller, payload: &Bytes, is_to_last: bool) -> Reply {
        // First: a slot that could not be finished stays open, and the host may be in the middle of several.
        if self.failed.is_some() {
            return Reply::error("ERR the store failed; the node must be restarted");
        }
        assert!(stamp.slot > self.meta.applied, "R3: slot {} is finished already", stamp.slot);
        assert!(self.open_slot.is_none_or(|open| open == stamp.slot), "R3: the slot before is not finished");
        self.open_slot = Some(stamp.slot);
        let Some(command) = payload::decode_command(payload) else {
            return Reply::error("ERR malformed log entry");
        };
        let at_ms = if planted::has(Bug::LocalClock) { planted::local_ms() } else { stamp.at_ms };
        let stamp = &Stamp { at_ms, ..*stamp };
        let mut txn = Txn::new(self.store.as_rows(), &self.meta, stamp, std::mem::take(&mut self.spare));
        txn.interest = self.interest;
        txn.set_caller(caller, command.client(), payload, std::mem::take(&mut self.spare_events));
        txn.run.taken = std::mem::take(&mut self.spare_page);
        txn.taken_before = TakenBefore::in_slot(&self.page);
        let reply = txn.execute(command.db, command.args());
        let has_no_effect = !is_to_last || (reply.is_error() && !txn.run.keeps);
        if has_no_effect {
            txn.tell_only_misses();
        } else {
            txn.serve(&reply);
        }
        let mut taken = std::mem::take(&mut txn.run.taken);
        match txn.finish() {
            Err(error) if !is_to_last => {
                taken.clear();
                self.spare_page = taken;
                return Reply::Error(format!("ERR the store failed: {error}").into());
            }
            Err(error) => {
                self.failed = Some(error);
                taken.clear();
            }
            // A failed command has no effect, whatever it did before it found out; but see `Txn::keep_despite_error`.
            Ok((batch, _, events)) if has_no_effect => {
                self.keep_events(events);
                taken.clear();
                self.spare = batch;
            }
            Ok((mut batch, meta, events)) => {
                self.keep_events(events);
                if let Some(meta) = meta {
                    self.meta = meta;
                }
                if self.page.is_empty() {
                    self.page_ms = stamp.at_ms;
                }
                self.page.append(&mut taken);
                if let Err(error) = self.store.stage(&mut batch) {
                    self.failed = Some(error);
                }
                self.spare = batch;
            }
        }
        self.spare_page = taken;
        reply
    }

    fn keep_events(&mut self, mut events: Vec<Event>) {
        self.events.append(&mut events);
        self.spare_events = events;
    }

    /// Makes the changes of a slot permanent, together with the fact that the slot is applied. Also for slots without commands.
    pub fn finish_slot(&mut self, slot: u64) -> Result<(), StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        assert!(slot > self.meta.applied, "R3: slot {slot} is finished already");
        assert!(self.open_slot.is_none_or(|open| open == slot), "R3: another slot is open");
        self.meta.applied = slot;
        let mut batch = std::mem::take(&mut self.spare);
        batch.clear();
        self.meta.changes_since(&self.saved, &mut batch);
        batch.extend(locks::page(&self.page, self.page_ms, slot));
        self.page.clear();
        if let Err(error) = self.store.commit(&mut batch) {
            self.failed = Some(error.clone());
            return Err(error);
        }
        self.spare = batch;
        self.saved = self.meta;
        self.open_slot = None;
        Ok(())
    }

    /// What the commands since the last call said besides their replies. To be asked after `finish_slot`, like replies.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The same, with the room of what was said before: `said` is emptied first.
    pub fn take_events_into(&mut self, said: &mut Vec<Event>) {
        said.clear();
        std::mem::swap(&mut self.events, said);
    }

    /// Chooses what is told of what happens to keys, from the next command on.
    pub fn listen(&mut self, interest: Interest) {
        self.interest = interest;
    }

    /// What is told of what happens to keys.
    #[must_use]
    pub fn interest(&self) -> Interest {
        self.interest
    }

    /// Makes the state that of a later slot, and the next token a higher one: whoever remembers slots or tokens of another line of this machine's
    /// history (a cluster that went on after a backup) never meets one of them again here.
    ///
    /// # Errors
    /// When the store fails.
    pub fn jump_ahead(&mut self, slots: u64, tokens: u64) -> Result<(), StoreError> {
        self.assert_boundary();
        self.meta.tokens += tokens;
        self.finish_slot(self.meta.applied + slots)
    }

    fn assert_boundary(&self) {
        assert!(self.open_slot.is_none(), "M2: slot {:?} is not finished", self.open_slot);
    }

    /// The state at the last finished slot, for reading commands at cluster time `now_ms`.
    pub fn view(&self, now_ms: u64) -> View<'_> {
        self.assert_boundary();
        let seed = self.seed.get().wrapping_add(1);
        self.seed.set(seed);
        let view = View::new(self.store.as_rows(), &self.meta, now_ms, seed ^ now_ms << 32);
        view.noting_misses(self.interest.notify.wants(Class::Miss))
    }

    /// The state at the last finished slot, to be read anywhere, for as long as one likes.
    pub fn snapshot(&self) -> Snapshot<S::Snapshot> {
        self.assert_boundary();
        Snapshot { rows: self.store.snapshot(), meta: self.meta }
    }

    /// Throws the state away for that of `rows`; keeps it if they turn out to be bad.
    pub fn install<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E> {
        self.store.replace(rows)?;
        self.meta = Meta::load(&self.store)?;
        self.saved = self.meta;
        self.open_slot = None;
        self.failed = None;
        self.events.clear();
        self.page.clear();
        Ok(())
    }

    /// A number over all rows: the same on every node at the same slot.
    pub fn checksum(&self) -> Result<Checksum, StoreError> {
        self.assert_boundary();
        Checksum::of(&self.store)
    }

    /// When the next key's or wait's time is over: a master proposes a sweep ([`commands::sweep`]) some time after it.
    pub fn next_deadline_ms(&self) -> Result<Option<u64>, StoreError> {
        let mut next = None;
        let mut first = |range: &RowRange, at_ms: &dyn Fn(RowKeyRef<'_>) -> Option<u64>| {
            self.store.scan(range, crate::store::Order::Ascending, &mut |row, _| {
                next = next.into_iter().chain(at_ms(row)).min();
                ControlFlow::Break(())
            })
        };
        first(&layout::deadlines(), &|row| layout::parse_deadline(row).map(|(deadline_ms, ..)| deadline_ms))?;
        for database in self.meta.databases.iter().filter(|database| database.expiring > 0) {
            // The end of time is no deadline.
            first(&layout::locks(database.generation), &|row| {
                Some(row.second()).filter(|ms| *ms < u64::MAX)
            })?;
        }
        first(&layout::pages(), &|row| layout::parse_page(row).map(|(due_ms, _)| due_ms))?;
        first(&waits::Timer::rows(), &|row| Some(waits::Timer::at_ms(row)))?;
        Ok(next)
    }

    /// Whether a command still waits for its reply.
    pub fn is_waiting(&self, caller: Caller) -> Result<bool, StoreError> {
        if self.meta.waiting == 0 { Ok(false) } else { waits::is_waiting(&self.store, caller) }
    }

    /// The nodes whose clients wait, each with the life that they belong to.
    pub fn waiting_nodes(&self) -> Result<Vec<(u64, u64)>, StoreError> {
        if self.meta.waiting == 0 { Ok(Vec::new()) } else { waits::waiting_nodes(&self.store) }
    }

    /// Whether there is something to reap: a master then proposes [`commands::reap`].
    pub fn has_garbage(&self) -> Result<bool, StoreError> {
        let mut found = false;
        self.store.scan(&layout::Garbage::rows(), crate::store::Order::Ascending, &mut |_, _| {
            found = true;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, for its own affairs (not its rows).
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }
}

impl Txn<'_> {
    /// Runs one command of the table, reading or writing, on this transaction's state.
    pub fn execute(&mut self, db: u8, command: &[&[u8]]) -> Reply {
        self.run.depth += 1;
        let reply = self.execute_here(db, command);
        self.run.depth -= 1;
        self.run.refusal.take().unwrap_or(reply)
    }

    fn execute_here(&mut self, db: u8, command: &[&[u8]]) -> Reply {
        let Some((name, args)) = command.split_first() else { return Reply::error("ERR empty command") };
        let Some(spec) = commands::lookup_any(name) else { return commands::unknown_command(name, args) };
        if !spec.arity.allows(args.len()) {
            return commands::wrong_arity(spec);
        }
        let args = Args::new(db, args);
        match spec.handler {
            Handler::Write(handler) => {
                let stamp = self.stamp;
                handler(self, &stamp, &args)
            }
            Handler::Read(handler) => self.look_and_tell(|view| handler(view, &args)),
        }
    }
}

impl<R: Rows> Snapshot<R> {
    /// The slot whose state it is.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.meta.applied
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &R {
        &self.rows
    }

    /// The state, for reading commands at cluster time `now_ms`.
    pub fn view(&self, now_ms: u64) -> View<'_> {
        View::new(&self.rows, &self.meta, now_ms, now_ms)
    }

    /// A number over all rows: the same on every node at the same slot.
    pub fn checksum(&self) -> Result<Checksum, StoreError> {
        Checksum::of(&self.rows)
    }
}
