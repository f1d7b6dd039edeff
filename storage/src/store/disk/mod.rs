//! The store on disk: data may be larger than memory.
//!
//! ```text
//!   machine ──stage, commit──▶ active layer ──seal──▶ sealed layers ──writer's thread──▶ engine (fjall, one keyspace)
//!   reads look in that order: active, sealed (the newest first), engine
//! ```
//!
//! The journal of the node is what makes writes durable, so rows may reach the engine late. A *layer* is a tree in memory of rows that were
//! changed or removed. The host seals the active layer at a slot boundary together with an *attachment* (what consensus knows at that slot), and a thread
//! of its own gives each layer to the engine as one atomic batch: an engine's commit may sleep for a second, and the node must not. It never waits for the engine while it
//! applies: it asks for room ([`DiskStore::has_room`]), and applies nothing more until there is some. That is what bounds the layers.
//!
//! * D1: the engine holds the rows of exactly one slot boundary, and that boundary's attachment, also after a crash: both are in one keyspace and one batch.
//! * D2: a layer is dropped only after the engine has it. In between both have it, which changes nothing: it holds whole rows.
//! * D3: `durable` names a boundary only after the engine was synced: the journal may forget what is below it.
//!   After a loss of power the engine is opened at that boundary or a later one (`mend`).
//! * D4: other rows take the place of all rows by the rename of one small file (`home`); a crash leaves the old ones or the new ones.

mod cursor;
mod engine;
mod floors;
mod home;
mod mend;
mod merge;
#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;
mod writer;

use super::tree::Tree;
use super::{Order, Rows, Store, StoreError, Visit};
use crate::row::{Batch, RowKey, RowKeyRef, RowRange, RowValue};
use bytes::Bytes;
use engine::Engine;
use floors::Floors;
use home::Home;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use writer::{Job, PATIENCE, Writer};

/// A layer is worth an engine's batch when it is about this large.
const LAYER_BYTES: usize = 4 << 20;
/// Sealed layers that may wait for the engine; then nothing more should be applied.
const SEALED_MAX: usize = 4;
/// What a row costs in memory besides its bytes.
const ROW_BYTES: usize = 96;

/// What consensus knows at a slot boundary, in a form that the store does not look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The boundary's slot.
    pub slot: u64,
    /// The rest.
    pub bytes: Bytes,
}

/// See the module's description.
pub struct DiskStore {
    home: Home,
    engine: Arc<Engine>,
    active: Tree,
    active_bytes: usize,
    /// The oldest first.
    sealed: VecDeque<Tree>,
    writer: Writer,
    floors: RefCell<Floors>,
    /// Changes since the last commit: a snapshot or a sealed layer would show half a unit.
    has_staged: bool,
}

/// The rows of a [`DiskStore`] at one commit.
#[derive(Clone)]
pub struct DiskSnapshot {
    /// The newest first.
    layers: Arc<[Tree]>,
    below: fjall::Snapshot,
    engine: Arc<Engine>,
}

/// Rows that were written beside a store, to take the place of its own. Removed again if they are not adopted.
pub struct Prepared {
    engine: Engine,
    name: String,
}

/// Where a store's rows are and how much memory the engine may use; enough to prepare other rows on another thread.
#[derive(Clone)]
pub struct Workshop {
    home: Home,
    cache_bytes: u64,
    wake: Arc<dyn Fn() + Send + Sync>,
    delay: fn() -> Duration,
}

impl Workshop {
    /// For the store in `directory`. `wake` is called when a sealed layer has become durable, or cannot, and when there is room again.
    #[must_use]
    pub fn new(directory: &Path, cache_bytes: u64, wake: Arc<dyn Fn() + Send + Sync>) -> Workshop {
        Workshop { home: Home::new(directory), cache_bytes, wake, delay: || Duration::ZERO }
    }

    /// The engine needs so much longer for each layer, for tests: as a slow disk would.
    #[must_use]
    pub fn delayed_by(self, delay: fn() -> Duration) -> Workshop {
        Workshop { delay, ..self }
    }

    /// Opens the store, if there is one, with the attachment of the boundary that it stands at.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(&self) -> Result<Option<(DiskStore, Option<Attachment>)>, StoreError> {
        let Some(name) = self.home.current()? else { return Ok(None) };
        self.home.must_have(&name)?;
        let engine = Engine::open(&self.home.path_of(&name), self.cache_bytes)?;
        // What an earlier process left to the system may still be lost with the power; what is told from here on must not rest on that.
        engine.sync()?;
        let attachment = engine.attachment()?;
        // Not before it is known that the rows are there: what does not count may be all that an operator has left.
        if attachment.is_some() {
            self.home.remove_others(&name)?;
        }
        Ok(Some((DiskStore::around(self, engine)?, attachment)))
    }

    /// Writes rows beside the store. They ascend.
    ///
    /// # Errors
    /// When one of them is an error, or the disk says no: nothing is left of them.
    pub fn prepare<E: From<StoreError>>(
        &self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
        attachment: Option<&Attachment>,
    ) -> Result<Prepared, E> {
        let name = self.home.next_name()?;
        let engine = Engine::create(&self.home.path_of(&name), self.cache_bytes)?;
        engine.fill(rows, attachment)?;
        engine.sync()?;
        Ok(Prepared { engine, name })
    }

    /// A store that has these rows.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn found(&self, prepared: Prepared) -> Result<DiskStore, StoreError> {
        let name = prepared.name.clone();
        let store = self.make_current(prepared)?;
        self.home.remove_others(&name)?;
        Ok(store)
    }

    /// Takes prepared rows in place of all that `old` has. Snapshots of the old rows may be read to their end.
    ///
    /// # Errors
    /// When the disk says no; the node must stop then, and finds the old rows or the new ones, whole, when it starts again.
    pub fn adopt(&self, old: &DiskStore, prepared: Prepared) -> Result<DiskStore, StoreError> {
        let new = self.make_current(prepared)?;
        old.engine.give_up();
        Ok(new)
    }

    fn make_current(&self, prepared: Prepared) -> Result<DiskStore, StoreError> {
        let Prepared { engine, name } = prepared;
        // Before they are named: if the disk then says no, nobody knows whether the name is written, and both sets of rows must stay until the
        // next opening finds out.
        engine.keep();
        self.home.set_current(&name)?;
        DiskStore::around(self, engine)
    }
}

impl DiskStore {
    fn around(workshop: &Workshop, engine: Engine) -> Result<DiskStore, StoreError> {
        let engine = Arc::new(engine);
        let theirs = engine.clone();
        let delay = workshop.delay;
        let put = move |Job { rows, attachment, is_synced }: Job| {
            std::thread::sleep(delay());
            theirs.commit(&rows, &attachment)?;
            drop(rows);
            if is_synced { theirs.sync() } else { Ok(()) }
        };
        let writer = Writer::start(put, workshop.wake.clone(), PATIENCE)?;
        Ok(DiskStore {
            home: workshop.home.clone(),
            engine,
            active: Tree::default(),
            active_bytes: 0,
            sealed: VecDeque::new(),
            writer,
            floors: RefCell::default(),
            has_staged: false,
        })
    }

    /// How many bytes of the engine's journal were cut off when it was opened, because a loss of power had left only parts of them. The node's journal has what they said.
    #[must_use]
    pub fn cut_bytes(&self) -> u64 {
        self.engine.cut_bytes()
    }

    /// Whether so much has changed that the active layer should be sealed.
    #[must_use]
    pub fn is_seal_due(&self) -> bool {
        self.active_bytes >= LAYER_BYTES
    }

    /// Whether more may be applied. If not, the engine is far behind, and the workshop's `wake` is called when that changes. Who does not ask has
    /// no bound on the memory that layers take.
    ///
    /// # Errors
    /// When the engine has failed, or has taken nothing for a minute.
    pub fn has_room(&mut self) -> Result<bool, StoreError> {
        // A full active layer is one more that must find a place.
        let most = SEALED_MAX + usize::from(!self.is_seal_due());
        if self.sealed.len() < most {
            return Ok(true);
        }
        self.let_go()?;
        self.writer.has_room(most)
    }

    /// Ends the active layer at a slot boundary. With `is_synced` the boundary becomes durable, some time later.
    ///
    /// # Errors
    /// When the engine has failed.
    pub fn seal(&mut self, attachment: Attachment, is_synced: bool) -> Result<(), StoreError> {
        assert!(!self.has_staged, "S2: a layer ends at a commit, never in the middle of a unit");
        self.let_go()?;
        let rows = std::mem::take(&mut self.active);
        self.active_bytes = 0;
        self.sealed.push_back(rows.clone());
        self.writer.submit(Job { rows, attachment, is_synced })
    }

    /// The newest boundary that is known to be durable, once since it changed.
    ///
    /// # Errors
    /// When the engine has failed.
    pub fn take_durable(&mut self) -> Result<Option<u64>, StoreError> {
        self.let_go()?;
        Ok(self.writer.take_durable())
    }

    /// Drops the layers that the engine has.
    fn let_go(&mut self) -> Result<(), StoreError> {
        if !self.sealed.is_empty() {
            let waiting = self.writer.waiting()?;
            self.sealed.drain(..self.sealed.len().saturating_sub(waiting));
        }
        Ok(())
    }

    /// Waits until the engine has every sealed layer. For tests and for the end of a life.
    ///
    /// # Errors
    /// When the engine has failed.
    pub fn settle(&mut self) -> Result<(), StoreError> {
        self.writer.wait_for_all()?;
        self.let_go()
    }

    /// About how many bytes a file with all rows has. Less than it will be when the engine could compress them well.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        let sealed = self.sealed.len() * LAYER_BYTES;
        self.engine.row_bytes() + (self.active_bytes + sealed) as u64
    }

    fn layers(&self) -> impl Iterator<Item = &Tree> {
        std::iter::once(&self.active).chain(self.sealed.iter().rev()).filter(|layer| !layer.is_empty())
    }
}

/// What the layers say about a row: nothing, that it is gone, or its value.
fn look<'a>(mut layers: impl Iterator<Item = &'a Tree>, key: RowKeyRef<'_>) -> Option<Option<&'a RowValue>> {
    let found = layers.find_map(|layer| layer.get(key))?;
    Some(if found.is_gone() { None } else { Some(found) })
}

impl Rows for DiskStore {
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        match look(self.layers(), key) {
            Some(found) => Ok(found.map(Cow::Borrowed)),
            None => Ok(self.engine.get(key, None)?.map(Cow::Owned)),
        }
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let layers: Vec<&Tree> = self.layers().collect();
        if order == Order::Descending {
            return merge::scan(&layers, self.engine.cursor(range, order, None), range, order, visit);
        }
        // Removed rows at the beginning of a range cost the engine as much as rows. Where it began the last time is remembered.
        let lifted = self.floors.borrow_mut().lift(range);
        let mut first = None;
        let from_engine = self.engine.cursor(&lifted, order, None);
        merge::scan(&layers, from_engine, &lifted, order, &mut |key, value| {
            first.get_or_insert_with(|| key.to_owned());
            visit(key, value)
        })?;
        self.floors.borrow_mut().learn(range, first);
        Ok(())
    }
}

impl Rows for DiskSnapshot {
    fn get(&self, key: RowKeyRef<'_>) -> Result<Option<Cow<'_, RowValue>>, StoreError> {
        match look(self.layers.iter(), key) {
            Some(found) => Ok(found.map(Cow::Borrowed)),
            None => Ok(self.engine.get(key, Some(&self.below))?.map(Cow::Owned)),
        }
    }

    fn scan(&self, range: &RowRange, order: Order, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let layers: Vec<&Tree> = self.layers.iter().collect();
        merge::scan(&layers, self.engine.cursor(range, order, Some(&self.below)), range, order, visit)
    }
}

impl Store for DiskStore {
    type Snapshot = DiskSnapshot;

    fn as_rows(&self) -> &dyn Rows {
        self
    }

    fn stage(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        self.has_staged |= !batch.is_empty();
        let floors = self.floors.get_mut();
        for change in batch.drain(..) {
            let size = ROW_BYTES
                + change.key.borrow().byte_count()
                + change.value.as_ref().map_or(0, RowValue::heap_bytes);
            if change.value.is_some() {
                floors.written(&change.key);
            }
            let old = self.active.insert(change.key, change.value.unwrap_or(RowValue::GONE));
            self.active_bytes =
                (self.active_bytes + size).saturating_sub(old.map_or(0, |old| ROW_BYTES + old.heap_bytes()));
        }
        Ok(())
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        self.stage(batch)?;
        self.has_staged = false;
        self.let_go()
    }

    fn snapshot(&self) -> DiskSnapshot {
        assert!(!self.has_staged, "S3: a snapshot shows the rows of a commit, never half a unit");
        DiskSnapshot {
            // The engine's view is not older than the layers: what it may have of them already is the same.
            layers: self.layers().cloned().collect(),
            below: self.engine.snapshot(),
            engine: self.engine.clone(),
        }
    }

    fn replace<E: From<StoreError>>(
        &mut self,
        rows: impl Iterator<Item = Result<(RowKey, RowValue), E>>,
    ) -> Result<(), E> {
        let workshop = Workshop {
            home: self.home.clone(),
            cache_bytes: self.engine.cache_bytes(),
            wake: self.writer.wake(),
            delay: || Duration::ZERO,
        };
        let prepared = workshop.prepare(rows, None)?;
        *self = workshop.adopt(self, prepared)?;
        Ok(())
    }
}
