//! The node's loop: one turn of the core after the other, what each leaves to do, and the way out when it is told to stop.

use super::admin::OWN;
use super::courier::Wanted;
use super::{NodeError, Running};
use crate::host::backend::MachineBackend;
use crate::host::clock;
use crate::host::core::Todo;
use crate::host::handshake::Identity;
use crate::snapshots::Snapshots;
use consensus::{Address, Message, RoleId};
use server::Answer;
use std::future::Future;
use std::time::{Duration, Instant};
use tracing::{error, info};

/// How long a stopping master waits for a successor.
const HAND_OVER: Duration = Duration::from_secs(2);
/// How often it tries: a hand-over is refused while a change of the members is under way, or before the master serves.
const HAND_OVER_EVERY: Duration = Duration::from_millis(50);

impl Running {
    pub(super) async fn turns(
        &self,
        me: &Identity,
        serving: &tokio::task::JoinHandle<()>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), NodeError> {
        tokio::pin!(stop);
        // One alarm for all turns, set again only when it rang or must ring earlier: a new timer per turn costs three system calls
        // (the driver is told of an earlier deadline through a file descriptor). One that rings early costs an idle turn.
        let alarm = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(alarm);
        let mut give_up_at: Option<tokio::time::Instant> = None;
        let mut hand_over_at = tokio::time::Instant::now();
        loop {
            if let Some(face) = self.face.get() {
                face.breathe();
            }
            // What was found between two turns: nothing more is applied to a store that has failed, and nothing answered from it.
            self.check_store()?;
            let todo = self.core.borrow_mut().turn(clock::now())?;
            let has_more = self.handle(todo, me)?;
            // Connections that became readable get their turn first, so that what they bring joins the next one.
            tokio::task::yield_now().await;
            if has_more || self.core.borrow().expects_company() {
                continue;
            }
            if self.is_dismissed.get() && self.core.borrow().waiting() == 0 {
                return Ok(());
            }
            let is_stopping = give_up_at.is_some();
            let is_quiet = !self.is_master() && self.core.borrow().waiting() == 0;
            if is_stopping && (is_quiet || give_up_at.is_some_and(|at| at <= tokio::time::Instant::now())) {
                return Ok(());
            }
            let must_hand_over = is_stopping && self.is_master();
            if must_hand_over && hand_over_at <= tokio::time::Instant::now() {
                hand_over_at = tokio::time::Instant::now() + HAND_OVER_EVERY;
                self.core.borrow_mut().post(RoleId::Leader, Message::Transfer { to: None, ticket: 0 });
                continue;
            }
            let now = clock::now();
            let until = self.core.borrow().deadline().map_or(Duration::from_secs(1), |due| due.since(now.at));
            let piece_in = self.courier.borrow_mut().due_in(Instant::now());
            let until = piece_in.map_or(until, |piece_in| until.min(piece_in));
            let due = tokio::time::Instant::now() + until;
            let due = if must_hand_over { due.min(hand_over_at) } else { due };
            if alarm.is_elapsed() || due < alarm.deadline() {
                alarm.as_mut().reset(due);
            }
            tokio::select! {
                biased; // a busy node is always awake: what it must not miss comes first
                () = &mut stop, if !is_stopping => {
                    info!("stopping");
                    give_up_at = Some(tokio::time::Instant::now() + HAND_OVER);
                    serving.abort(); // no new clients
                }
                () = self.wake.notified() => {}
                () = &mut alarm => {}
            }
        }
    }

    pub(super) fn is_master(&self) -> bool {
        let view = self.core.borrow().node.leader().view().clone();
        view.current.voters().count() > 1 && self.core.borrow().node.leader().is_master(clock::now())
    }

    fn check_store(&self) -> Result<(), NodeError> {
        match &self.core.borrow().backend.failure {
            Some(error) => Err(NodeError::Failed(format!("the store failed: {error}"))),
            None => Ok(()),
        }
    }

    /// Does what a turn left to do. True: another turn is due at once.
    fn handle(&self, todo: Todo, me: &Identity) -> Result<bool, NodeError> {
        self.check_store()?;
        let mut has_more = false;
        if let Some(face) = self.face.get() {
            face.begin_turn(todo.changes);
            // Before the answers: who listens to its own messages gets them first, as in Redis.
            for (channel, message) in &todo.published {
                face.publish(channel, message);
            }
            let refused =
                self.refused.take().into_iter().map(|(ticket, reply)| (ticket, Answer::Reply(reply)));
            for (ticket, answer) in todo.answers.into_iter().chain(refused) {
                if ticket.connection != OWN {
                    face.answer_in_turn(ticket, answer);
                } else if let Some(asker) = self.own.borrow_mut().remove(&ticket.place) {
                    // Who does not wait any more does not want to know.
                    drop(asker.send(answer));
                }
            }
            face.end_turn();
            has_more |= self.undo_for_the_gone(face, &todo.parked, todo.undos);
            self.tell_locks(face, todo.locks);
        }
        if let Some(view) = &todo.view {
            self.link(view, me);
            self.view_changed.notify_waiters();
        }
        if todo.removed {
            error!("this node was removed from its cluster; it serves no more");
            self.is_removed.set(true);
        }
        if todo.may_stop {
            info!("this node is not needed any more; it stops");
            self.is_dismissed.set(true);
        }
        let mut snapshots = self.snapshots.borrow_mut();
        for (to, slot, offset) in todo.snapshot_requests {
            self.courier.borrow_mut().want(Wanted { to, slot, offset });
        }
        has_more |= self.send_pieces(&mut snapshots);
        for (slot, offset, data) in todo.chunks {
            if let Err(error) = snapshots.keep(slot, offset, &data) {
                error!(%error, "a piece of a snapshot cannot be kept");
            }
        }
        if let Some(slot) = todo.install {
            has_more = true;
            match &self.disk {
                None => {
                    self.install(slot, &mut snapshots)?;
                    self.state_exchanged();
                }
                Some(disk) => self.begin_copy(disk, slot, &mut snapshots),
            }
        }
        if let Some(disk) = &self.disk {
            has_more |= self.put_rows_away(disk, &mut snapshots)?;
        }
        let mut core = self.core.borrow_mut();
        if let Some(slot) = snapshots.finished() {
            if self.disk.is_none() {
                core.snapshot_taken(slot)?;
            }
            self.snapshot_taken.notify_waiters();
            has_more = true;
        }
        if self.disk.is_none() && !core.is_checkpointing() && snapshots.is_due(core.journal_bytes()) {
            let view = core.node.replica().view().clone();
            snapshots.take(&core.ledger, &view, &core.backend.machine, None);
        }
        drop(core);
        drop(snapshots);
        for message in todo.admin {
            self.master_answered(message);
        }
        Ok(has_more)
    }

    /// Sends the pieces of snapshots that may leave now. True: some did.
    fn send_pieces(&self, snapshots: &mut Snapshots) -> bool {
        let (mut courier, mut has_sent) = (self.courier.borrow_mut(), false);
        while let Some(Wanted { to, slot, offset }) = courier.next(Instant::now()) {
            if self.outboxes.borrow().get(&to).is_none_or(|outbox| outbox.has_piece()) {
                continue; // the peer asked again before what it asked for could leave
            }
            if let Some(disk) = &self.disk
                && slot == 0
                && !self.has_fresh_snapshot(disk, snapshots)
            {
                continue; // the peer asks again
            }
            let Some(message) = snapshots.chunk(slot, offset, courier.piece_bytes()) else { continue };
            if let Message::SnapshotChunk { data, .. } = &message {
                courier.sent(data.len());
            }
            self.core.borrow_mut().ask(Address { node: to, role: RoleId::Replica }, message);
            has_sent = true;
        }
        has_sent
    }

    /// A snapshot took the place of the state: what changed in the slots that were skipped, nobody can tell.
    pub(super) fn state_exchanged(&self) {
        if let Some(face) = self.face.get() {
            face.listen_to_keys();
            face.all_changed();
        }
    }

    fn install(&self, slot: u64, snapshots: &mut Snapshots) -> Result<(), NodeError> {
        let mut core = self.core.borrow_mut();
        let message = match snapshots.install(slot) {
            Ok(loaded) => {
                info!(slot, "snapshot installed");
                let stamp_ms = loaded.ledger.cluster_ms();
                drop(core.installed(
                    slot,
                    loaded.ledger,
                    MachineBackend::new(loaded.machine),
                    clock::now(),
                )?);
                let executed_below = core.ledger.executed_below(core.node.origin());
                Message::Installed { slot, stamp_ms, executed_below, view: Some(loaded.view) }
            }
            Err(error) => {
                error!(slot, error, "a fetched snapshot cannot be used; it is fetched again");
                Message::InstallFailed { slot }
            }
        };
        core.post(RoleId::Replica, message);
        Ok(())
    }
}
