//! Between the roles and the journal: what is persisted, and what waits for it.
//!
//! The rule it keeps: what a role says about this node's disk leaves only after everything that this role asked to persist is durable. Messages that
//! claim nothing about it do not wait ([`super::early`]). While the disk is full nothing gets durable; then what waits is bounded: the protocol
//! survives lost messages.
//!
//! What is for peers only and waits for this turn's batch only (a follower's answer to the master, as a rule) is given to the journal along with the batch:
//! its thread sends it when the batch is durable ([`super::shortcut`]), and this thread is not woken for it.

use super::early::may_leave_early;
use super::log::Log;
use super::shortcut::Shortcut;
use crate::codec;
use bytes::{Bytes, BytesMut};
use consensus::{Durable, Envelope, Message, Record, RoleId, Spawn, Time};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::journal::{AppendError, Completion, Failure, SubmitError, Then};

/// Records of one turn that go to the journal as one batch, at most; a batch must fit into a segment with room to spare.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Records that nobody is in a hurry for wait so long for more of them, at most.
const COMPANY_MAX: Duration = Duration::from_millis(5);
/// And only as long as they are few.
const COMPANY_BYTES_MAX: usize = 1 << 20;
/// A disk that takes longer than this hangs: what it has not done, this node does not vouch for, not even with a heartbeat.
const HANGS_AFTER: Duration = Duration::from_millis(500);
/// While the disk is full: messages that wait, at most.
const WAITING_MAX: usize = 10_000;
/// Bytes that wait for the disk, about. Beyond this the node takes nothing in that would have to be persisted, and falls behind.
const BACKLOG_BYTES_MAX: u64 = 256 << 20;

/// Something that the core cannot go on from.
#[derive(Debug)]
pub enum Fatal {
    /// The journal failed: nothing that this node says could be trusted any more.
    Journal(AppendError),
    /// The journal cannot take a batch at all.
    Submit(SubmitError),
    /// The disk was full before the node had started.
    NoRoom(Arc<Failure>),
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fatal::Journal(error) => write!(f, "the journal failed: {error}"),
            Fatal::Submit(error) => write!(f, "the journal refused a batch: {error}"),
            Fatal::NoRoom(failure) => {
                write!(f, "disk full: {failure}; make room on this file system and start again")
            }
        }
    }
}

impl std::error::Error for Fatal {}

/// What waits until the journal is durable up to a batch.
pub struct Waiting {
    batch: u64,
    /// What leaves then.
    pub sends: Vec<Envelope>,
    /// What starts then.
    pub spawns: Vec<Spawn>,
}

/// The journal of a running node, and what waits for it.
pub struct Durability {
    log: Log,
    /// The fold of everything appended to the journal: what a checkpoint has to say.
    fold: Durable,
    records: Vec<Bytes>,
    records_bytes: usize,
    /// Nobody is in a hurry for any of them; the first came then.
    unhurried_since: Option<Time>,
    /// The batch that this turn's records will be.
    batch: u64,
    /// Batches up to here are durable.
    synced: u64,
    /// Per kind of role, the last batch with a record of it.
    gates: [u64; 4],
    /// The last batch with something that an answer to a heartbeat claims: promise, longest lease, view.
    promise_gate: u64,
    waiting: VecDeque<Waiting>,
    /// What the journal's thread sends as soon as this turn's batch is durable.
    straight: Vec<(Arc<Shortcut>, BytesMut)>,
    /// Something waits for a batch that this thread may not be woken for.
    is_late: bool,
    /// Since when nothing has become durable although something is on its way to the disk.
    stuck_since: Option<Instant>,
    /// An outcome that was looked for out of turn.
    found: Option<Completion>,
    /// Leaves before its batch is durable, which was not known when it was said.
    early: Vec<Envelope>,
    is_full: bool,
    /// The journal could not take a batch.
    refused: Option<SubmitError>,
    /// The batch that is the last checkpoint.
    checkpoint: u64,
    /// More may not wait for the disk, about.
    pub(super) backlog_bytes_max: u64,
}

fn gate_of(role: RoleId) -> usize {
    match role {
        RoleId::Replica => 0,
        RoleId::Leader => 1,
        RoleId::Acceptor => 2,
        RoleId::Scout(_) | RoleId::Commander(..) | RoleId::Host => 3,
    }
}

impl Durability {
    /// Makes `records` durable before anything else.
    ///
    /// # Errors
    /// When the journal fails at once, or the disk is full.
    pub fn start(mut log: Log, fold: Durable, records: Vec<Record>) -> Result<Durability, Fatal> {
        let batch =
            log.append(records.iter().map(codec::record_to_bytes).collect()).map_err(Fatal::Submit)?;
        let mut synced = 0;
        while synced < batch {
            let (through, result) = log.wait().map_err(Fatal::NoRoom)?;
            result.map_err(Fatal::Journal)?;
            synced = through;
        }
        let mut durability = Durability {
            log,
            fold,
            records: Vec::new(),
            records_bytes: 0,
            unhurried_since: None,
            batch: batch + 1,
            synced,
            gates: [0; 4],
            promise_gate: 0,
            waiting: VecDeque::new(),
            straight: Vec::new(),
            is_late: false,
            stuck_since: None,
            found: None,
            early: Vec::new(),
            is_full: false,
            refused: None,
            checkpoint: 0,
            backlog_bytes_max: BACKLOG_BYTES_MAX,
        };
        for record in records {
            durability.fold.apply(record);
        }
        Ok(durability)
    }

    /// A role wants this persisted, and is not in a hurry if it says since when. The number of a batch, if one was handed to the journal.
    pub fn persist(&mut self, role: RoleId, record: Record, unhurried_since: Option<Time>) -> Option<u64> {
        let is_first = self.records.is_empty();
        self.unhurried_since =
            unhurried_since.and_then(|now| if is_first { Some(now) } else { self.unhurried_since });
        self.gates[gate_of(role)] = self.batch;
        let bytes = codec::record_to_bytes(&record);
        self.records_bytes += bytes.len();
        self.records.push(bytes);
        let claimed = (self.fold.promise, self.fold.lease_max);
        let is_view = matches!(record, Record::View(_));
        self.fold.apply(record);
        if is_view || claimed != (self.fold.promise, self.fold.lease_max) {
            self.promise_gate = self.batch;
        }
        if self.records_bytes > BATCH_BYTES_MAX { self.append() } else { None }
    }

    /// Whether a role has asked for something that is not durable yet.
    #[must_use]
    pub fn is_behind(&self, role: RoleId) -> bool {
        self.gates[gate_of(role)] > self.synced
    }

    /// Keeps back what a role says or starts until everything that it asked to persist is durable.
    pub fn hold(&mut self, role: RoleId, mut sends: Vec<Envelope>, spawns: Vec<Spawn>) {
        if self.is_full && self.waiting.len() >= WAITING_MAX {
            sends.clear(); // as good as lost on the way
        }
        if sends.is_empty() && spawns.is_empty() {
            return;
        }
        self.unhurried_since = None; // somebody waits
        self.waiting.push_back(Waiting { batch: self.gates[gate_of(role)], sends, spawns });
        self.watch();
    }

    /// Makes sure that this thread is woken if something waits for a batch that the journal has: it was perhaps not in need of it when it got the batch.
    pub fn watch(&mut self) {
        if self.waiting.iter().any(|waiting| waiting.batch < self.batch) {
            self.log.watch();
            self.is_late = true;
        }
    }

    /// Whether what the role says now waits for this turn's batch and for nothing else, so that the journal's thread may send it.
    #[must_use]
    pub fn goes_straight(&self, role: RoleId) -> bool {
        self.gates[gate_of(role)] == self.batch && !self.is_full
    }

    /// The journal's thread sends `frame` when the records at hand are durable.
    pub fn send_straight(&mut self, link: &Arc<Shortcut>, frame: &[u8], may_wait: bool) {
        if !may_wait {
            self.unhurried_since = None;
        }
        match self.straight.iter_mut().find(|(other, _)| Arc::ptr_eq(other, link)) {
            Some((_, frames)) => frames.extend_from_slice(frame),
            None => self.straight.push((Arc::clone(link), BytesMut::from(frame))),
        }
    }

    /// Whether something became durable that a part of this turn still waits for. Nobody will be woken for it: to be asked at the end of the turn.
    pub fn has_missed(&mut self) -> bool {
        if std::mem::take(&mut self.is_late) && self.found.is_none() {
            self.found = self.log.poll();
            return self.found.is_some();
        }
        false
    }

    /// Parts what may leave at once from what must wait for the disk.
    #[must_use]
    pub fn part(&self, sends: Vec<Envelope>) -> (Vec<Envelope>, Vec<Envelope>) {
        let is_promise_durable = self.promise_gate <= self.synced && self.stuck_for() < HANGS_AFTER;
        sends.into_iter().partition(|envelope| may_leave_early(&envelope.message, is_promise_durable))
    }

    /// How long the disk has not answered, although something waits for it. To be asked between turns: it looks, because nobody is woken for what the
    /// journal's thread answers itself.
    #[must_use]
    pub fn silent_for(&mut self) -> Duration {
        if self.found.is_none() {
            self.found = self.log.poll();
        }
        if self.found.is_some() { Duration::ZERO } else { self.stuck_for() }
    }

    /// The same, as far as this turn knows. A full disk does not hang.
    fn stuck_for(&self) -> Duration {
        let since = self.stuck_since.filter(|_| !self.is_full);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether the journal's thread has something to send when this turn's batch is durable.
    #[must_use]
    pub fn has_straight(&self) -> bool {
        !self.straight.is_empty()
    }

    /// The next outcome of the journal: everything up to this batch is durable, and since when.
    ///
    /// # Errors
    /// When the journal failed: the node must stop.
    pub fn poll(&mut self) -> Result<Option<(u64, Instant)>, Fatal> {
        let Some(Completion { through, result, at }) = self.found.take().or_else(|| self.log.poll()) else {
            self.look_for_room();
            return Ok(None);
        };
        result.map_err(Fatal::Journal)?;
        self.synced = through;
        self.stuck_since = (through + 1 < self.batch).then_some(at);
        Ok(Some((through, at)))
    }

    fn look_for_room(&mut self) {
        let was_full = std::mem::replace(&mut self.is_full, self.log.disk_full().is_some());
        if !self.is_full || was_full {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        for held in &mut waiting {
            let (early, rest) = self.part(std::mem::take(&mut held.sends));
            self.early.extend(early);
            held.sends = rest;
        }
        self.waiting = waiting;
    }

    /// What need not wait any more.
    pub fn next_released(&mut self) -> Option<Waiting> {
        if !self.early.is_empty() {
            return Some(Waiting { batch: 0, sends: std::mem::take(&mut self.early), spawns: Vec::new() });
        }
        // Nearly always the first: what a turn holds after it has given a batch to the journal may wait for an older one than what it held before.
        let due = self.waiting.iter().position(|waiting| waiting.batch <= self.synced);
        due.and_then(|index| self.waiting.remove(index))
    }

    /// When what nobody is in a hurry for goes to the journal at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.unhurried_since.map(|since| since.plus(COMPANY_MAX))
    }

    /// Whether the records at hand go to the journal now. A full disk is no time to wait.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        let waits = |until: Time| now < until && self.records_bytes < COMPANY_BYTES_MAX && !self.is_full;
        !self.deadline().is_some_and(waits)
    }

    /// Hands the records at hand to the journal as one batch; its number.
    pub fn append(&mut self) -> Option<u64> {
        self.records_bytes = 0;
        self.unhurried_since = None;
        if self.records.is_empty() || self.refused.is_some() {
            return None;
        }
        let records = std::mem::take(&mut self.records);
        let appended = match self.take_straight() {
            None => self.log.append(records),
            Some(then) => self.log.append_then(records, then),
        };
        match appended {
            Ok(batch) => {
                assert!(batch == self.batch, "host: batch {batch} of the journal is not {}", self.batch);
                self.batch = batch + 1;
                self.stuck_since.get_or_insert_with(Instant::now);
                Some(batch)
            }
            Err(error) => {
                self.refused = Some(error); // the turn ends with it
                None
            }
        }
    }

    /// What the journal's thread does when this turn's batch is durable. It wakes this one if something here waits for the same batch.
    fn take_straight(&mut self) -> Option<Then> {
        if self.straight.is_empty() {
            return None;
        }
        let straight = std::mem::take(&mut self.straight);
        let wakes = self.waiting.iter().any(|waiting| waiting.batch == self.batch);
        Some(Box::new(move || straight.iter().fold(wakes, |wakes, (link, frames)| link.send(frames) | wakes)))
    }

    /// Whether the journal took everything.
    ///
    /// # Errors
    /// When it did not: the node must stop.
    pub fn check(&mut self) -> Result<(), Fatal> {
        self.refused.take().map_or(Ok(()), |error| Err(Fatal::Submit(error)))
    }

    /// Replaces the journal by what still counts behind a durable snapshot of `slot`.
    ///
    /// # Errors
    /// When the journal cannot take the checkpoint.
    pub fn checkpoint(&mut self, slot: u64) -> Result<(), Fatal> {
        self.append(); // answers may wait for what is at hand
        self.check()?;
        self.fold.forget_through(slot);
        let records: Vec<Bytes> =
            self.fold.clone().into_records().iter().map(codec::record_to_bytes).collect();
        let batch = self.log.checkpoint(records).map_err(Fatal::Submit)?;
        self.batch = batch + 1;
        self.checkpoint = batch;
        for gate in self.gates.iter_mut().chain([&mut self.promise_gate]) {
            *gate = (*gate).min(batch);
        }
        Ok(())
    }

    /// Whether a checkpoint is still on its way to the disk.
    #[must_use]
    pub fn is_checkpointing(&self) -> bool {
        self.synced < self.checkpoint
    }

    /// Why nothing gets durable now, if the disk is full.
    #[must_use]
    pub fn disk_full(&self) -> Option<Arc<Failure>> {
        self.log.disk_full()
    }

    /// Whether so much waits for the disk, be it full, hung or too slow, that this node takes in nothing more.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.log.queued_bytes() > self.backlog_bytes_max
    }

    /// Whether a message which would have to be persisted is better lost: its sender sends it again.
    #[must_use]
    pub fn must_lose(&self, message: &Message) -> bool {
        let grows = matches!(
            message,
            Message::P2a { .. } | Message::Log { .. } | Message::Request { .. } | Message::WriteDown { .. }
        );
        grows && self.is_overfull()
    }

    /// How much the journal would have to replay.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        self.log.live_bytes()
    }

    /// The fold of the journal, to look at.
    #[must_use]
    pub fn fold(&self) -> &Durable {
        &self.fold
    }
}
