//! What a node does for clients that wait: it hands them the reply when it comes, cancels what nobody waits for any more, undoes what nobody can be told;
//! the master sweeps, and ends the waits of nodes that are gone. As in a node, every bit of it may be lost by a crash.

use super::ask::{Ask, number};
use super::real::{Said, caller};
use crate::history::State;
use crate::machine::{Request, wrap};
use crate::swarm::MS;
use crate::world::{Event, World};
use bytes::Bytes;
use consensus::{CommandId, Message, NodeId, Origin};
use std::collections::BTreeMap;
use storage::machine::{self, Caller, Undo};
use storage::reply::Reply;

/// How often a node looks after what is due.
const LOOK_EVERY: u64 = 50 * MS;

impl World {
    /// The node gives the engine a command that no client waits for. Not while its queue is full: it is done again when it is due again.
    fn submit(&mut self, id: NodeId, ask: Ask, payload: &Bytes) {
        let pending_max = self.config.pending_max;
        let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        if process.node.replica().pending_len() + 16 >= pending_max {
            return;
        }
        let seq = process.next_seq;
        process.next_seq += 1;
        let origin = process.node.origin();
        self.observer.holds.asks(caller(CommandId { origin, seq }), ask);
        self.mail(id, 0, Message::Submit { first_seq: seq, payloads: vec![wrap(payload)] });
    }

    /// What one of the node's commands answered for the first time, and how it is undone.
    pub(crate) fn lock_ran(&mut self, id: NodeId, command: CommandId, reply: &Bytes, undo: Option<Undo>) {
        let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        let operation = process.waiting.remove(&command.seq);
        let Ok(reply) = Reply::decode(reply) else { return };
        if matches!(reply, Reply::Waiting(_)) {
            // Without a client it was given up: the wait is cancelled with the next look.
            process.parked.insert(command.seq, operation);
            return;
        }
        self.deliver_or_undo(id, caller(command), operation, &reply, undo);
    }

    fn deliver_or_undo(
        &mut self,
        id: NodeId,
        to: Caller,
        operation: Option<usize>,
        reply: &Reply,
        undo: Option<Undo>,
    ) {
        let is_awaited = |operation: &usize| {
            self.history.get(*operation).is_some_and(|asked| asked.state == State::Waiting)
        };
        if let Some(operation) = operation.filter(is_awaited) {
            self.stats.writes += 1;
            self.lock_answered(operation, reply);
        } else if let (Some(undo), Some(Ask::Acquire { key, .. })) = (undo, self.observer.holds.asked(to)) {
            self.stats.undone += 1;
            self.submit(id, Ask::Release { key, token: number(reply) }, &undo.command());
        }
    }

    /// What the commands of a slot said besides their replies.
    pub(crate) fn lock_told(&mut self, id: NodeId, origin: Origin, said: Vec<Said>) {
        for event in said.into_iter().flat_map(|said| said.events) {
            let machine::Event::Served { caller, reply, undo } = event else { continue };
            if (caller.node, caller.incarnation) != (origin.node.0, origin.incarnation) {
                continue;
            }
            let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else {
                return;
            };
            let operation = process.parked.remove(&caller.seq).flatten();
            self.deliver_or_undo(id, caller, operation, &reply, undo);
        }
    }

    /// How commands of the node that did not wait are undone.
    pub(crate) fn direct_undos(origin: Origin, said: &[Said]) -> BTreeMap<u64, Undo> {
        let undo = |event: &machine::Event| match event {
            machine::Event::Undo { caller, undo }
                if (caller.node, caller.incarnation) == (origin.node.0, origin.incarnation) =>
            {
                Some((caller.seq, undo.clone()))
            }
            _ => None,
        };
        said.iter().flat_map(|said| &said.events).filter_map(undo).collect()
    }

    /// A snapshot was installed: nobody told us what ended in the slots that were skipped.
    pub(crate) fn give_up_missed(&mut self, id: NodeId) {
        let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        let (origin, real) = (process.node.origin(), process.machine.real.as_ref());
        let Some(real) = real else { return };
        let is_over = |seq: u64| {
            let waits = real.machine().is_waiting(caller(CommandId { origin, seq }));
            !waits.expect("rows in memory can be read")
        };
        let over: Vec<u64> = process.parked.keys().copied().filter(|seq| is_over(*seq)).collect();
        for seq in over {
            let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else {
                return;
            };
            if let Some(operation) = process.parked.remove(&seq).flatten() {
                self.given_up(operation, State::Unknown);
            }
        }
    }

    /// A node looks after what is due.
    pub(crate) fn duties(&mut self, id: NodeId, life: u64) {
        let accuses = self.rng.chance(5_000);
        if !self.hosts.get(&id).is_some_and(|host| host.life == life && host.process.is_some()) {
            return;
        }
        self.at(LOOK_EVERY, Event::Duties(id, life));
        let Some(host) = self.hosts.get(&id) else { return };
        let now = host.clock.read(self.now);
        let Some(process) = &host.process else { return };
        let Some(real) = process.machine.real.as_ref().filter(|_| !process.is_booting) else { return };
        let (machine, me) = (real.machine(), process.node.origin());
        let mut asks = Vec::new();
        if process.node.can_lease_read(now) {
            let cluster_ms = process.node.leader().cluster_ms(now);
            let due = machine.next_deadline_ms().expect("rows in memory can be read");
            if due.is_some_and(|due| due <= cluster_ms) {
                asks.push(Ask::Sweep);
            } else if machine.has_garbage().expect("rows in memory can be read") {
                asks.push(Ask::Reap);
            }
        }
        let is_master = process.node.leader().is_master(now);
        let view = &process.node.replica().view().current;
        for (node, incarnation) in machine.waiting_nodes().expect("rows in memory can be read") {
            let is_mine = node == me.node.0 && incarnation < me.incarnation;
            let is_down = self.hosts.get(&NodeId(node)).is_none_or(|host| host.process.is_none());
            let is_gone = is_master && (!view.is_member(NodeId(node)) || is_down && accuses);
            // A node that is only slow may be taken for dead, too.
            if is_mine || is_gone || is_master && accuses && self.healed_at.is_none() {
                asks.push(Ask::Forget(node, incarnation + 1));
            }
        }
        for (seq, operation) in &process.parked {
            let is_awaited = operation.is_some_and(|operation| {
                self.history.get(operation).is_some_and(|asked| asked.state == State::Waiting)
            });
            if !is_awaited {
                asks.push(Ask::Unwait(caller(CommandId { origin: me, seq: *seq })));
            }
        }
        for ask in asks {
            self.submit(id, ask, &ask.payload());
        }
    }

    /// Whether a request of a client goes to the lock machine.
    pub(crate) fn is_lock(&self, operation: usize) -> bool {
        self.history.get(operation).is_some_and(|asked| matches!(asked.request, Request::Lock(_)))
    }
}
