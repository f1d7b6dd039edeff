//! How a host drives its node: persist, then send; apply, then tell; snapshots; start and crash.

use crate::disk::Waiting;
use crate::early::may_leave_early;
use crate::host::{Fate, Process, Snapshot};
use crate::invariants::holds::Moment;
use crate::machine::Registers;
use crate::network::Parcel;
use crate::swarm::{MS, SECOND};
use crate::world::{Event, World};
use bytes::Bytes;
use consensus::{
    Address, Body, CommandId, Durable, Envelope, HostCall, Ledger, Message, Node, NodeId, Outcome, Outputs,
    RoleId, Slot, Spawn, Standing, Value, ViewState,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use storage::machine::Undo;

/// How much longer a sync takes that nobody is in a hurry for, at most.
const UNHURRIED_MAX: u64 = 5 * MS;
/// More deadlines than this at one instant are a busy loop.
const TIMEOUTS_MAX: u32 = 10_000;

impl World {
    /// Does what a role wants done.
    pub(crate) fn perform(&mut self, id: NodeId, role: RoleId, outputs: Outputs) {
        let Outputs { persist, may_wait, sends, spawns, retires: _, calls } = outputs;
        for spawn in &spawns {
            if let Spawn::Commander(commander) = spawn
                && let Slot::Data(slot) = commander.slot()
            {
                self.observer.time.made(slot, commander.ballot(), self.now);
            }
        }
        for record in &persist {
            if let consensus::Record::View(view) = record {
                self.observer.views.seen(view, &mut self.observer.verdict);
            }
        }
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let gate = host.disk.append(role, persist);
        let before = host.process.as_ref().map_or(0, |process| process.ledger.applied());
        for call in calls {
            self.call(id, call);
        }
        self.tell_applied(id, before);
        match (gate, self.hosts.get_mut(&id)) {
            _ if sends.is_empty() && spawns.is_empty() => {}
            (Some(position), Some(host)) => {
                let is_durable = host.disk.is_promise_durable();
                let leaves = |envelope: &Envelope| may_leave_early(&envelope.message, is_durable);
                let (early, sends) = sends.into_iter().partition(leaves);
                host.disk.wait(Waiting { position, role, sends, spawns });
                self.release(id, early, Vec::new());
            }
            _ => self.release(id, sends, spawns),
        }
        self.sync(id, may_wait);
        self.set_timer(id);
    }

    fn release(&mut self, id: NodeId, sends: Vec<Envelope>, spawns: Vec<Spawn>) {
        for spawn in spawns {
            let Some(host) = self.hosts.get_mut(&id) else { return };
            let now = host.clock.read(self.now);
            let life = host.life;
            let Some(process) = host.process.as_mut() else { return };
            if let Spawn::Scout(scout) = &spawn {
                self.observer.ballots.scouted(id, life, scout.ballot(), &mut self.observer.verdict);
            }
            let (role, outputs) = process.node.spawn(spawn, now);
            self.perform(id, role, outputs);
        }
        for envelope in sends {
            self.say(id, envelope);
        }
    }

    fn say(&mut self, id: NodeId, envelope: Envelope) {
        let Some(host) = self.hosts.get(&id) else { return };
        self.observer.said(self.now, host.life, &envelope, host.disk.durable(), host.snapshot_slot());
        self.check_window(id, &envelope.message);
        match &envelope.message {
            Message::Adopted(_) => self.stats.elections += 1,
            Message::Log { .. } => self.stats.catch_ups += 1,
            Message::Release { .. } if envelope.role == RoleId::Acceptor => self.stats.transfers += 1,
            _ => {}
        }
        let Envelope { from, to, role, message } = envelope;
        let (last, others) = match to.nodes().split_last() {
            Some((last, others)) => (*last, others),
            None => return,
        };
        for to in others {
            self.send(Parcel { from, to: *to, role, message: message.clone() });
        }
        self.send(Parcel { from, to: last, role, message });
    }

    /// R2: a master proposes new commands only inside its window.
    fn check_window(&mut self, id: NodeId, message: &Message) {
        let Message::P2a { pvalue, .. } = message else { return };
        let (Slot::Data(slot), consensus::Body::Commands(_)) = (pvalue.slot, &pvalue.value.body) else {
            return;
        };
        let Some(process) = self.hosts.get(&id).and_then(|host| host.process.as_ref()) else { return };
        let limit = process.node.replica().applied() + self.config.window;
        let is_own = pvalue.value.made_in == pvalue.ballot;
        self.observer.verdict.check(!is_own || slot <= limit, || {
            format!("R2: {id} proposes slot {slot}, but its window ends at {limit}")
        });
    }

    /// Begins to make durable what is not yet. What may wait takes a few milliseconds longer, as on a real host.
    fn sync(&mut self, id: NodeId, may_wait: bool) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if !host.disk.start_sync() {
            return;
        }
        let (life, stalled) = (host.life, host.stalled_until.saturating_sub(self.now));
        let mut delay = self.rng.between(10, self.swarm.sync_max);
        if self.rng.chance(self.swarm.sync_slow) {
            delay = (delay * 100).min(2 * SECOND);
        }
        if may_wait {
            delay += self.rng.between(1, UNHURRIED_MAX);
        }
        self.at(delay.max(stalled), Event::Synced(id, life));
    }

    /// A disk sync ended: what waited for it leaves, unless the node dies at this very moment.
    pub(crate) fn synced(&mut self, id: NodeId, life: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.life == life) else { return };
        host.disk.end_sync();
        self.trace.mix(self.now, id.0, 0x5C);
        if self.healed_at.is_none() && self.rng.chance(self.swarm.crash_after_sync) {
            self.stats.crashes_after_sync += 1;
            let delay = self.rng.skewed(MS, 2 * SECOND);
            self.crash(id, Some(delay));
            return;
        }
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let released = host.disk.released();
        if let Some(process) = host.process.as_mut().filter(|process| process.is_booting) {
            process.is_booting = false;
            self.trace.note(self.now, || format!("{id} is up"));
        }
        for Waiting { sends, spawns, .. } in released {
            self.release(id, sends, spawns);
        }
        self.sync(id, false);
        self.set_timer(id);
    }

    fn set_timer(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let life = host.life;
        let Some(process) = host.process.as_mut().filter(|process| !process.is_booting) else { return };
        let Some(deadline) = process.node.deadline() else { return };
        let due = host.clock.when(deadline, self.now);
        if due < process.timer {
            process.timer = due;
            self.at(due - self.now, Event::Timer(id, life));
        }
    }

    /// A timer fired; it may be too early, when deadlines have moved.
    pub(crate) fn timer_due(&mut self, id: NodeId, life: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.life == life) else { return };
        let now = host.clock.read(self.now);
        let Some(process) = host.process.as_mut() else { return };
        if process.timer > self.now && process.timer != u64::MAX {
            return;
        }
        process.timer = u64::MAX;
        for round in 0.. {
            let Some(host) = self.hosts.get_mut(&id).filter(|host| host.life == life) else { return };
            let Some(process) = host.process.as_mut() else { return };
            let Some((role, outputs)) = process.node.on_timeout(now) else { break };
            self.trace.mix(self.now, id.0 ^ crate::trace::of_role(role) << 16, 0x71);
            self.trace.note(self.now, || format!("{id} {role:?} times out"));
            self.perform(id, role, outputs);
            if round > TIMEOUTS_MAX {
                self.observer.verdict.fail(|| format!("busy loop: {id}'s {role:?} is due again and again"));
                break;
            }
        }
        self.set_timer(id);
    }

    /// Queues something for the node's replica. Never lost, only late, and in order.
    pub(crate) fn mail(&mut self, id: NodeId, delay: u64, message: Message) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let life = host.life;
        let Some(process) = host.process.as_mut() else { return };
        let due = (self.now + delay).max(process.mail.back().map_or(0, |(due, _)| *due));
        process.mail.push_back((due, message));
        self.at(due - self.now, Event::Mail(id, life));
    }

    pub(crate) fn mail_due(&mut self, id: NodeId, life: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.life == life) else { return };
        let now = host.clock.read(self.now);
        let Some(process) = host.process.as_mut() else { return };
        if process.is_booting {
            self.at(MS, Event::Mail(id, life));
            return;
        }
        let Some((_, message)) = process.mail.pop_front() else { return };
        self.trace.mix(self.now, id.0, crate::trace::of_message(&message));
        self.trace.note(self.now, || format!("{id} replica <- host: {message:?}"));
        let from = Address { node: id, role: RoleId::Host };
        let outputs = process.node.deliver(from, RoleId::Replica, message, now);
        self.perform(id, RoleId::Replica, outputs);
    }

    fn call(&mut self, id: NodeId, call: HostCall) {
        match call {
            HostCall::Apply { slot, value } => self.apply(id, slot, &value),
            HostCall::ReadReady { reads } => self.answer_reads(id, &reads),
            HostCall::Abandoned { seq, certain } => self.abandoned(id, seq, certain),
            HostCall::SendSnapshot { to, slot, offset } => self.send_snapshot(id, to, slot, offset),
            HostCall::StoreChunk { slot, offset, data } => self.store_chunk(id, slot, offset, &data),
            HostCall::Install { slot } => {
                let delay = self.rng.between(MS, self.swarm.snapshot_time);
                let life = self.hosts.get(&id).map_or(0, |host| host.life);
                self.at(delay, Event::Installed(id, life, slot));
            }
            HostCall::ViewChanged(view) => self.view_changed(id, &view),
            HostCall::Removed => self.removed(id),
            HostCall::MayStop => {
                self.trace.note(self.now, || format!("{id} may stop"));
                if self.rng.chance(700_000) {
                    self.crash(id, None);
                    if let Some(host) = self.hosts.get_mut(&id) {
                        host.fate = Fate::Stopped;
                    }
                }
            }
        }
    }

    fn view_changed(&mut self, id: NodeId, view: &ViewState) {
        self.trace.note(self.now, || format!("{id} learns {view:?}"));
        self.observer.views.seen(view, &mut self.observer.verdict);
        let new: Vec<NodeId> =
            view.current.members.keys().filter(|member| !self.hosts.contains_key(member)).copied().collect();
        for member in new {
            self.add_host(member, view.clone());
        }
    }

    fn removed(&mut self, id: NodeId) {
        self.trace.note(self.now, || format!("{id} is removed"));
        if let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) {
            process.is_removed = true;
        }
        self.drop_clients(id);
    }

    fn apply(&mut self, id: NodeId, slot: u64, value: &Arc<Value>) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let Some(process) = host.process.as_mut() else { return };
        self.trace.mix(self.now, id.0, slot << 8 | 0xA9);
        self.trace.note(self.now, || format!("{id} applies {slot}: {value:?}"));
        let before = process.ledger.cluster_ms();
        let mut outcomes = Vec::new();
        storage::planted::set_local_ms(host.clock.read(self.now).wall_ms);
        process.ledger.apply(slot, value, &mut process.machine, &self.config, &mut outcomes);
        let said = process.machine.finish_slot(slot);
        let origin = process.node.origin();
        let observer = &mut self.observer;
        let verdict = &mut observer.verdict;
        observer.time.stepped(id, before, process.ledger.cluster_ms(), verdict);
        observer.chosen.applied(id, slot, value, &mut observer.views, verdict);
        if observer.acknowledged.applied(id, slot, value, &outcomes, verdict) {
            let begins = match &value.body {
                Body::Noop | Body::Reconfig(_) => false,
                Body::Start { .. } => true,
                Body::Commands(_) => {
                    outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Executed(_)))
                }
            };
            observer.time.applied(slot, value, begins, process.ledger.cluster_ms(), verdict);
            let moment = Moment { now: self.now, made: observer.time.made_at(slot, value) };
            for said in observer.acknowledged.take_said() {
                observer.holds.ran(&said, moment, verdict);
            }
        }
        let undos = World::direct_undos(origin, &said);
        for (command, outcome) in outcomes {
            let is_first = matches!(outcome, Outcome::Executed(_));
            let (Outcome::Executed(reply) | Outcome::Repeated(reply)) = outcome else { continue };
            if command.origin == origin {
                let undo = undos.get(&command.seq).cloned();
                self.executed(id, command, &reply, is_first, undo);
            }
        }
        self.lock_told(id, origin, said);
    }

    /// One of the node's own commands has run: its client is told.
    pub(crate) fn executed(
        &mut self,
        id: NodeId,
        command: CommandId,
        reply: &Bytes,
        is_first: bool,
        undo: Option<Undo>,
    ) {
        let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        process.abandoned.remove(&command.seq);
        let operation = process.waiting.get(&command.seq).copied();
        // Nobody waits for it: it was given up, or it is one of the node's own.
        let is_nobodys = self.swarm.has_locks && operation.is_none() && is_first && !reply.is_empty();
        if operation.is_some_and(|operation| self.is_lock(operation)) || is_nobodys {
            self.observer.acknowledged.acknowledged(command, reply, &mut self.observer.verdict);
            self.lock_ran(id, command, reply, undo);
            return;
        }
        let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        let Some(operation) = process.waiting.remove(&command.seq) else { return };
        let slot = self.observer.acknowledged.acknowledged(command, reply, &mut self.observer.verdict);
        self.observer.freshness.acknowledged(self.now, slot);
        self.stats.writes += 1;
        self.answered(operation, crate::machine::answer(reply));
    }

    /// After the calls of one output: the replica hears how far the machine is, and perhaps a snapshot is begun.
    fn tell_applied(&mut self, id: NodeId, before: u64) {
        let Some(process) = self.hosts.get(&id).and_then(|host| host.process.as_ref()) else { return };
        let slot = process.ledger.applied();
        if slot == before {
            return;
        }
        let message = Message::Applied {
            slot,
            stamp_ms: process.ledger.cluster_ms(),
            executed_below: process.ledger.executed_below(process.node.origin()),
        };
        let delay = if self.rng.coin() { 0 } else { self.rng.between(0, self.swarm.apply_delay) };
        self.mail(id, delay, message);
        self.begin_snapshot(id);
    }

    /// The process dies. What was not synced is lost but for a prefix. Comes back after `restart`, if ever.
    pub(crate) fn crash(&mut self, id: NodeId, restart: Option<u64>) {
        self.drop_clients(id);
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.process.take().is_none() {
            return;
        }
        host.life += 1;
        host.disk.crash(&mut self.rng);
        host.paused_until = 0;
        self.stats.crashes += 1;
        self.trace.mix(self.now, id.0, 0xDEAD);
        self.trace.note(self.now, || format!("{id} crashes"));
        if let Some(delay) = restart {
            self.at(delay, Event::Start(id));
        }
    }

    /// The process starts from what is durable.
    pub(crate) fn start(&mut self, id: NodeId) {
        let seed = self.rng.bits();
        let reboots = self.rng.chance(300_000);
        let at = self.rng.skewed(0, 1_000 * SECOND);
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if host.process.is_some() || host.fate != Fate::Fine {
            return;
        }
        if reboots {
            host.clock.reboot(self.now, at);
        }
        host.life += 1;
        let stored = host.disk.snapshot.as_ref();
        let snapshot = stored.map(|stored| {
            postcard::from_bytes::<Snapshot>(&stored.bytes).expect("a stored snapshot can be decoded")
        });
        let standing = snapshot.as_ref().map_or_else(Standing::default, |snapshot| Standing {
            slot: snapshot.ledger.applied(),
            stamp_ms: snapshot.ledger.cluster_ms(),
            view: snapshot.view(),
        });
        let (ledger, machine) = match snapshot {
            Some(snapshot) => (snapshot.ledger, snapshot.machine),
            None => (Ledger::new(self.first.clone()), Registers::new(self.swarm.has_locks)),
        };
        let durable: Durable = host.disk.durable().clone();
        let snapshot_slot = standing.slot;
        let now = host.clock.read(self.now);
        self.observer.silence.booted(id, &durable, &self.config, self.now);
        let (node, outputs) = Node::recover(id, &self.config, durable, standing, seed, now);
        self.observer.promises.holds(id, node.acceptor().promised(), &mut self.observer.verdict);
        host.process = Some(Process {
            node,
            ledger,
            machine,
            is_booting: true,
            is_removed: false,
            mail: VecDeque::new(),
            timer: u64::MAX,
            next_seq: 1,
            waiting: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: 1,
            abandoned: BTreeMap::new(),
            parked: BTreeMap::new(),
            writing: None,
            fetched: (0, Vec::new()),
            snapshot_slot,
        });
        let life = host.life;
        if life > 1 {
            self.stats.restarts += 1;
        }
        if self.swarm.has_locks {
            self.at(MS, Event::Duties(id, life));
        }
        self.trace.mix(self.now, id.0, 0x57A7);
        self.trace.note(self.now, || format!("{id} starts"));
        self.perform(id, RoleId::Host, outputs);
    }
}
