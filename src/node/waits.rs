//! Clients that are gone, and nodes that are: what they waited for is cancelled, what they were given is undone.

use super::Running;
use crate::host::clock;
use crate::host::waiting::NOBODY;
use bytes::Bytes;
use consensus::NodeId;
use server::Face;
use server::pubsub::LOCK_CHANNEL;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use storage::machine::Undo;
use storage::machine::locks::{End, LockEvent};
use storage::reply::Reply;

/// A node that the master has no link to for so long is taken for dead: its clients wait for nothing any more. What was granted to them before is
/// theirs until its time passes, as if they had died themselves.
const GONE_AFTER: Duration = Duration::from_secs(3);
/// How often this is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Running {
    /// Cancels what gone clients began to wait for, and undoes what they were granted. True: something was submitted.
    pub(super) fn undo_for_the_gone(&self, face: &Face, parked: &[u64], undos: Vec<(u64, Undo)>) -> bool {
        let (mut core, now) = (self.core.borrow_mut(), clock::now());
        let mut is_submitted = false;
        for connection in parked.iter().filter(|connection| !face.is_connected(**connection)) {
            is_submitted |= core.client_gone(*connection, now);
        }
        for (_, undo) in undos.into_iter().filter(|(connection, _)| !face.is_connected(*connection)) {
            core.submit(undo.command(), NOBODY, now);
            is_submitted = true;
        }
        is_submitted
    }

    /// Tells the holders of locks that they hold them no longer, those of them that are this node's clients: `>4 lock · reason · key · token`. Who gave it
    /// back itself knows. Every change is also told on the channel `__lock__:key`, as `acquired 7`, `expired 7` and so on with the hold's token, on every node
    /// in the order of the log.
    pub(super) fn tell_locks(&self, face: &Face, events: Vec<LockEvent>) {
        let me = self.core.borrow().node.origin();
        for event in events {
            let channel = [LOCK_CHANNEL, &event.key[..]].concat();
            face.publish(&channel.into(), &Bytes::from(format!("{} {}", event.name(), event.token)));
            let is_mine = event.caller.node == me.node.0 && event.caller.incarnation == me.incarnation;
            if is_mine && event.end.is_some_and(|end| end != End::Released) {
                let token = i64::try_from(event.token).unwrap_or(i64::MAX);
                let name = event.name().as_bytes();
                let message = vec![
                    Reply::bulk(b"lock"),
                    Reply::bulk(name),
                    Reply::bulk(&event.key),
                    Reply::Integer(token),
                ];
                face.push(event.client, message);
            }
        }
    }

    /// Cancels, through the log, the waits of this node's former lives, and on the master those of nodes that are gone. Runs until the task is dropped.
    pub(super) async fn forget_waits(&self) {
        let mut unheard: BTreeMap<NodeId, Instant> = BTreeMap::new();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = clock::now();
            let mut core = self.core.borrow_mut();
            let mut is_submitted = core.cancel_again(now);
            let me = core.node.origin();
            let is_master = core.node.leader().is_master(now);
            // Every node takes note, so that a new master need not wait once more.
            self.note_unheard(&mut unheard, &core.node.replica().view().current);
            for (node, incarnation) in core.backend.machine.waiting_nodes().unwrap_or_default() {
                let is_mine = node == me.node.0 && incarnation < me.incarnation;
                let is_gone = is_master
                    && (!core.node.replica().view().current.is_member(NodeId(node))
                        || unheard.get(&NodeId(node)).is_some_and(|since| since.elapsed() >= GONE_AFTER));
                if is_mine || is_gone {
                    core.submit(storage::commands::forget_waits(node, incarnation + 1), NOBODY, now);
                    is_submitted = true;
                }
            }
            drop(core);
            if is_submitted {
                self.wake.notify_one();
            }
        }
    }

    /// Since when there is no link to each other member.
    fn note_unheard(&self, unheard: &mut BTreeMap<NodeId, Instant>, view: &consensus::View) {
        let outboxes = self.outboxes.borrow();
        let is_heard =
            |id: &NodeId| *id == self.identity.node || outboxes.get(id).is_some_and(|outbox| outbox.is_up());
        unheard.retain(|id, _| !is_heard(id) && view.is_member(*id));
        for id in view.members.keys().filter(|id| !is_heard(id)) {
            unheard.entry(*id).or_insert_with(Instant::now);
        }
    }
}
