//! The core of a running node: the roles, the machine and the journal, driven by turns.
//!
//! A turn takes everything that arrived since the last one (peer messages, client commands, finished syncs, due timers), lets the roles
//! answer until nothing is left to say inside this node, and then does the slow things once for all of it: one batch to the journal,
//! one write per peer. Batches form by draining, and clients' commands wait for company for a moment ([`super::gathering`]).
//!
//! What a role says leaves only after everything that this role asked to persist is durable: [`super::durability`].

use super::apply::Held;
use super::durability::{Durability, Fatal};
use super::log::Log;
use super::meters::Meters;
use super::outbox::Outbox;
use super::parked::Parked;
use super::riders::{Peek, Riders};
use super::waiters::Waiters;
use crate::codec::Letter;
use bytes::{Bytes, BytesMut};
use consensus::{
    Address, CommandId, Config, Durable, Ledger, Message, Node, NodeId, Now, Outcome, Outputs, RoleId,
    ViewState,
};
use server::{Answer, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use storage::journal::Failure;
use storage::machine::locks::LockEvent;
use storage::machine::{Event, Undo};

/// What executes commands on this node.
pub trait Backend: Peek {
    /// Every command of `slot` has been applied: a read sees all of the slot or nothing of it.
    fn finish_slot(&mut self, slot: u64);

    /// The rows stand at the boundary of a slot: the chance to put them away, with what consensus knows there. Whether there is room for the rows of the next slot; if not,
    /// the node is woken when that may have changed.
    fn boundary(&mut self, ledger: &Ledger, view: &ViewState) -> bool;

    /// What the commands since the last call said besides their replies.
    fn take_events(&mut self, said: &mut Vec<Event>);

    /// Whether a reply says that there is none yet, because the command waits; and until when at most, in cluster time.
    fn waiting_until(reply: &[u8]) -> Option<Option<u64>>;

    /// Whether a command still waits.
    fn is_waiting(&mut self, id: CommandId) -> bool;
}

/// What the surroundings of the core have to do; taken after each turn.
#[derive(Default)]
pub struct Todo {
    /// Clients' answers.
    pub answers: Vec<(Ticket, Answer)>,
    /// The configuration changed.
    pub view: Option<ViewState>,
    /// Pieces of snapshots to send.
    pub snapshot_requests: Vec<(NodeId, u64, u64)>,
    /// Pieces of a snapshot to keep, and whether it is complete.
    pub chunks: Vec<(u64, u64, Bytes)>,
    /// A snapshot to load.
    pub install: Option<u64>,
    /// This node was removed.
    pub removed: bool,
    /// This node was removed, and nobody needs it any more.
    pub may_stop: bool,
    /// Answers to administrative requests.
    pub admin: Vec<Message>,
    /// Connections whose command began to wait.
    pub parked: Vec<u64>,
    /// How what a connection was told is undone, if it is gone.
    pub undos: Vec<(u64, Undo)>,
    /// Messages for those who listen: channel and message.
    pub published: Vec<(Bytes, Bytes)>,
    /// Keys that changed, if some client caches.
    pub changes: Vec<server::Change>,
    /// What happened to locks.
    pub locks: Vec<LockEvent>,
}

/// The core.
pub struct Core<B> {
    /// The roles.
    pub node: Node,
    /// What has been applied.
    pub ledger: Ledger,
    /// What applies it.
    pub backend: B,
    /// What it measures about itself.
    pub meters: Meters,
    pub(super) config: Arc<Config>,
    pub(super) durability: Durability,
    inbox: Vec<Letter>,
    pub(super) local: VecDeque<(Address, RoleId, Message)>,
    pub(super) outboxes: BTreeMap<NodeId, Rc<Outbox>>,
    pub(super) frame: BytesMut,
    pub(super) waiters: Waiters,
    pub(super) parked: Parked,
    pub(super) riders: Riders,
    pub(super) todo: Todo,
    pub(super) held: Held,
    pub(super) outcomes: Vec<(CommandId, Outcome)>,
    /// Room for what the commands of a slot say besides their replies.
    pub(super) said: Vec<Event>,
    applied_before: u64,
}

impl<B: Backend> Core<B> {
    /// A core around recovered roles; `outputs` are what their recovery wants done.
    ///
    /// # Errors
    /// When the journal fails at once.
    pub fn new(
        recovered: (Node, Outputs),
        (ledger, backend): (Ledger, B),
        config: Arc<Config>,
        log: Log,
        durable: Durable,
    ) -> Result<Core<B>, Fatal> {
        let (node, mut outputs) = recovered;
        // The new incarnation is durable before the first command id of this life.
        let durability = Durability::start(log, durable, std::mem::take(&mut outputs.persist))?;
        let mut core = Core {
            applied_before: ledger.applied(),
            node,
            ledger,
            backend,
            meters: Meters::default(),
            config,
            durability,
            inbox: Vec::new(),
            local: VecDeque::new(),
            outboxes: BTreeMap::new(),
            frame: BytesMut::new(),
            waiters: Waiters::default(),
            parked: Parked::default(),
            riders: Riders::default(),
            todo: Todo::default(),
            held: Held::default(),
            outcomes: Vec::new(),
            said: Vec::new(),
        };
        core.perform(RoleId::Replica, outputs, super::clock::now());
        Ok(core)
    }

    /// How long clients' requests are held, from now on.
    pub fn set_request_timeout(&mut self, timeout: Duration) {
        self.waiters.set_timeout(timeout);
    }

    // ---- what comes in ----

    /// Messages of a peer arrived.
    pub fn deliver(&mut self, letters: Vec<Letter>) {
        if self.inbox.is_empty() {
            self.inbox = letters;
        } else {
            self.inbox.extend(letters);
        }
    }

    /// A client wants this executed.
    pub fn submit(&mut self, payload: Bytes, ticket: Ticket, now: Now) {
        self.meters.mailed += 1;
        self.waiters.submit(payload, ticket, now);
    }

    /// A client wants to read behind what it wrote just now. False: that has left already, and nothing was taken.
    pub fn read_behind(&mut self, payload: Bytes, ticket: Ticket) -> bool {
        let Some(seq) = self.waiters.last_gathered() else { return false };
        self.riders.mount(seq, payload, ticket);
        true
    }

    /// A client wants to read, linearizably, on a node that is not the master.
    pub fn read_later(&mut self, ticket: Ticket, now: Now) {
        self.meters.mailed += 1;
        let read = self.waiters.read(ticket, now);
        self.post(RoleId::Replica, Message::Read { read });
    }

    /// The host tells one of its roles something.
    pub fn post(&mut self, role: RoleId, message: Message) {
        self.local.push_back((self.host(), role, message));
    }

    /// The host asks another node's role something; the answer comes back as [`Todo::admin`].
    pub fn ask(&mut self, to: Address, message: Message) {
        let from = self.host();
        self.send(from, to.node, to.role, message);
    }

    /// The outbox of each peer; replaced when the configuration changes.
    pub fn connect(&mut self, outboxes: BTreeMap<NodeId, Rc<Outbox>>) {
        self.outboxes = outboxes;
    }

    fn host(&self) -> Address {
        Address { node: self.node.id(), role: RoleId::Host }
    }

    // ---- the turn ----

    /// When the next turn is due at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<consensus::Time> {
        let due = [
            self.node.deadline(),
            self.waiters.deadline(),
            self.parked.deadline(),
            self.durability.deadline(),
        ];
        due.into_iter().flatten().min()
    }

    /// Takes everything that arrived, lets the roles answer, and hands out what follows.
    ///
    /// # Errors
    /// When the journal failed: the node must stop.
    pub fn turn(&mut self, now: Now) -> Result<Todo, Fatal> {
        self.take_completions(now)?;
        self.apply_held(now);
        for letter in std::mem::take(&mut self.inbox) {
            if letter.role == RoleId::Host {
                self.todo.admin.push(letter.message);
                continue;
            }
            if self.durability.must_lose(&letter.message) || self.held.must_lose(&letter.message) {
                continue;
            }
            let outputs = self.node.deliver(letter.from, letter.role, letter.message, now);
            self.perform(letter.role, outputs, now);
        }
        if self.durability.has_straight() {
            self.append(now)?; // the master waits for it; what became decided is applied meanwhile
        }
        self.submit_gathered(now);
        self.give_up_waits(now);
        for message in self.waiters.expire(now, &mut self.todo.answers) {
            self.post(RoleId::Replica, message);
        }
        while let Some((role, outputs)) = self.node.on_timeout(now) {
            self.perform(role, outputs, now);
        }
        self.settle(now);
        // What ran just now may have been what the rest waited for.
        if self.submit_gathered(now) {
            self.settle(now);
        }
        self.flush(now)?;
        while self.durability.has_missed() {
            self.take_completions(now)?;
            self.settle(now);
            self.flush(now)?;
        }
        self.meters.master_is(self.node.master());
        Ok(std::mem::take(&mut self.todo))
    }

    fn submit_gathered(&mut self, now: Now) -> bool {
        let Some((first_seq, payloads)) = self.waiters.take_submitted(now) else { return false };
        self.post(RoleId::Replica, Message::Submit { first_seq, payloads });
        true
    }

    /// Delivers what roles of this node tell each other, until they are quiet.
    fn settle(&mut self, now: Now) {
        loop {
            while let Some((from, role, message)) = self.local.pop_front() {
                if self.durability.must_lose(&message) {
                    continue;
                }
                let outputs = self.node.deliver(from, role, message, now);
                self.perform(role, outputs, now);
            }
            if self.ledger.applied() == self.applied_before {
                return;
            }
            // Once for everything that was applied: the replica need not hear of each slot.
            self.applied_before = self.ledger.applied();
            self.post(
                RoleId::Replica,
                Message::Applied {
                    slot: self.ledger.applied(),
                    stamp_ms: self.ledger.cluster_ms(),
                    executed_below: self.ledger.executed_below(self.node.origin()),
                },
            );
        }
    }

    /// Answers those that rode along, and those whose command was answered without them.
    pub(super) fn settle_riders(&mut self) {
        self.riders.leave_behind(|seq| self.waiters.is_answered(seq));
        self.riders.take_arrived(&mut self.todo.answers);
    }

    // ---- the journal ----

    fn take_completions(&mut self, now: Now) -> Result<(), Fatal> {
        while let Some((through, at)) = self.durability.poll()? {
            self.meters.synced(through, at);
        }
        while let Some(released) = self.durability.next_released() {
            self.release(released.sends, released.spawns, now);
        }
        self.durability.watch();
        Ok(())
    }

    fn append(&mut self, now: Now) -> Result<(), Fatal> {
        if self.durability.is_due(now.at)
            && let Some(batch) = self.durability.append()
        {
            self.meters.appended(batch);
        }
        self.durability.check()
    }

    fn flush(&mut self, now: Now) -> Result<(), Fatal> {
        // The peers have a longer way to go to their disks than this node.
        for outbox in self.outboxes.values() {
            outbox.send_small();
        }
        self.append(now)?;
        for outbox in self.outboxes.values() {
            outbox.flush();
        }
        Ok(())
    }

    /// A snapshot up to `slot` is durable: the journal need not say any more what it covers.
    ///
    /// # Errors
    /// When the journal cannot take the checkpoint.
    pub fn snapshot_taken(&mut self, slot: u64) -> Result<(), Fatal> {
        self.durability.checkpoint(slot)?;
        self.post(RoleId::Replica, Message::SnapshotTaken { slot });
        Ok(())
    }

    /// A fetched snapshot is durable: the machine stands at `slot` now. Clients whose commands ran in slots that were skipped get the
    /// replies that the ledger remembers. Returns the back end that is not needed any more: to drop it may take long.
    ///
    /// # Errors
    /// When the journal cannot take the checkpoint.
    pub fn installed(&mut self, slot: u64, ledger: Ledger, backend: B, now: Now) -> Result<B, Fatal> {
        if slot <= self.ledger.applied() {
            return Ok(backend);
        }
        self.ledger = ledger;
        let old = std::mem::replace(&mut self.backend, backend);
        self.held.clear();
        self.applied_before = slot;
        let origin = self.node.origin();
        for seq in self.waiters.waiting_below(self.ledger.executed_below(origin)) {
            match self.ledger.reply(CommandId { origin, seq }) {
                Some(reply) => self.ran(seq, reply.clone(), None, now),
                None => self.waiters.abandoned(seq, false, &mut self.todo.answers),
            }
        }
        self.settle_riders();
        self.give_up_missed();
        self.durability.checkpoint(slot)?;
        Ok(old)
    }

    /// Whether a checkpoint is still on its way to the disk.
    #[must_use]
    pub fn is_checkpointing(&self) -> bool {
        self.durability.is_checkpointing()
    }

    /// Whether the next turn is due at once, although nothing has come.
    #[must_use]
    pub fn expects_company(&self) -> bool {
        self.waiters.expects_company()
    }

    /// How many clients wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.count()
    }

    /// How much the journal would have to replay.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        self.durability.journal_bytes()
    }

    /// The fold of the journal, to look at.
    #[must_use]
    pub fn records(&self) -> &Durable {
        self.durability.fold()
    }

    /// Whether so much waits for room on the disk that this node falls behind.
    #[must_use]
    pub fn falls_behind(&self) -> bool {
        self.durability.is_overfull()
    }

    /// How long the disk has not answered, although something waits for it.
    #[must_use]
    pub fn disk_silent_for(&mut self) -> Duration {
        self.durability.silent_for()
    }

    /// Why nothing gets durable now, if the disk is full.
    #[must_use]
    pub fn disk_full(&self) -> Option<Arc<Failure>> {
        self.durability.disk_full()
    }
}
