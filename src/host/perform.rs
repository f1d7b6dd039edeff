//! What a role wants done: persisted, said, started, and done by the host. What it says about this node's disk waits until it is true
//! ([`super::durability`]).

use super::core::{Backend, Core};
use crate::codec;
use consensus::{Address, Envelope, HostCall, Message, NodeId, Now, Outputs, RoleId, Spawn};

impl<B: Backend> Core<B> {
    pub(super) fn perform(&mut self, role: RoleId, outputs: Outputs, now: Now) {
        let Outputs { persist, may_wait, sends, spawns, retires: _, calls } = outputs;
        for record in persist {
            if let Some(batch) = self.durability.persist(role, record, may_wait.then_some(now.at)) {
                self.meters.appended(batch);
            }
        }
        for call in calls {
            self.call(call, now);
        }
        if sends.is_empty() && spawns.is_empty() {
            return;
        }
        if !self.durability.is_behind(role) {
            return self.release(sends, spawns, now);
        }
        let (early, sends) = self.durability.part(sends);
        // A follower's answer to the master.
        let is_simple = |envelope: &Envelope| {
            matches!(envelope.message, Message::P2b { .. }) && !envelope.to.nodes().contains(&self.node.id())
        };
        if spawns.is_empty() && self.durability.goes_straight(role) && sends.iter().all(is_simple) {
            self.send_when_durable(&sends, may_wait);
        } else {
            self.durability.hold(role, sends, spawns);
        }
        self.release(early, Vec::new(), now);
    }

    fn send_when_durable(&mut self, sends: &[Envelope], may_wait: bool) {
        for Envelope { from, to, role, message } in sends {
            self.frame.clear();
            codec::put_frame(*from, *role, message, &mut self.frame);
            for outbox in to.nodes().iter().filter_map(|node| self.outboxes.get(node)) {
                self.durability.send_straight(&outbox.shortcut, &self.frame, may_wait);
            }
        }
    }

    pub(super) fn release(&mut self, sends: Vec<Envelope>, spawns: Vec<Spawn>, now: Now) {
        for spawn in spawns {
            let (role, outputs) = self.node.spawn(spawn, now);
            self.perform(role, outputs, now);
        }
        let me = self.node.id();
        for Envelope { from, to, role, message } in sends {
            let mut is_encoded = false;
            for node in to.nodes() {
                if *node == me || self.outboxes.get(node).is_some_and(|outbox| outbox.has(&message)) {
                    continue;
                }
                if !is_encoded {
                    self.frame.clear();
                    codec::put_frame(from, role, &message, &mut self.frame);
                    is_encoded = true;
                }
                if let Some(outbox) = self.outboxes.get(node) {
                    outbox.push(&self.frame, &message);
                }
            }
            if to.nodes().contains(&me) {
                self.deliver_here(from, role, message);
            }
        }
    }

    pub(super) fn send(&mut self, from: Address, node: NodeId, role: RoleId, message: Message) {
        if node == self.node.id() {
            return self.deliver_here(from, role, message);
        }
        self.frame.clear();
        codec::put_frame(from, role, &message, &mut self.frame);
        if let Some(outbox) = self.outboxes.get(&node) {
            outbox.push(&self.frame, &message);
        }
    }

    fn deliver_here(&mut self, from: Address, role: RoleId, message: Message) {
        if role == RoleId::Host {
            self.todo.admin.push(message);
        } else {
            self.local.push_back((from, role, message));
        }
    }

    fn call(&mut self, call: HostCall, now: Now) {
        match call {
            HostCall::Apply { slot, value } => self.handed(slot, value, now),
            HostCall::ReadReady { reads } => self.waiters.readable(&reads, &mut self.todo.answers),
            HostCall::Abandoned { seq, certain } => {
                self.waiters.abandoned(seq, certain, &mut self.todo.answers);
                self.settle_riders();
            }
            HostCall::SendSnapshot { to, slot, offset } => {
                self.todo.snapshot_requests.push((to, slot, offset))
            }
            HostCall::StoreChunk { slot, offset, data } => self.todo.chunks.push((slot, offset, data)),
            HostCall::Install { slot } => self.todo.install = Some(slot),
            HostCall::ViewChanged(view) => self.todo.view = Some(view),
            HostCall::Removed => self.todo.removed = true,
            HostCall::MayStop => self.todo.may_stop = true,
        }
    }
}
