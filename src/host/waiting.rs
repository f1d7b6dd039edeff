//! The core's part in commands that wait: parking their clients, handing them the reply when it comes, and undoing what nobody can be told any more.
//!
//! A command that waits has run already as far as the ledger knows: its reply says so, and repeats of it get the same. What it waited for comes as an event of
//! a later command, which this node sees because it applies everything.

use super::backend::caller;
use super::core::{Backend, Core};
use bytes::Bytes;
use consensus::{CommandId, Now};
use server::{Answer, Change, Ticket};
use std::time::Duration;
use storage::machine::{Caller, Event, Undo};

/// A command that the node itself submits; nobody waits for its reply.
pub const NOBODY: Ticket = Ticket { connection: 0, place: 0 };

impl<B: Backend> Core<B> {
    fn is_mine(&self, caller: Caller) -> bool {
        let origin = self.node.origin();
        caller.node == origin.node.0 && caller.incarnation == origin.incarnation
    }

    fn id(&self, seq: u64) -> CommandId {
        CommandId { origin: self.node.origin(), seq }
    }

    /// How commands of ours that did not wait can be undone, in the order of their numbers: the ledger runs them in it (E1).
    pub(super) fn direct_undos(&self, events: &mut Vec<Event>) -> Vec<(u64, Option<Undo>)> {
        let mut mine = Vec::new();
        events.retain_mut(|event| match event {
            Event::Undo { caller, undo } => {
                if self.is_mine(*caller) {
                    // As little as possible is copied: almost all of it is thrown away.
                    mine.push((caller.seq, Some(std::mem::replace(undo, Undo::Command(Bytes::new())))));
                }
                false
            }
            _ => true,
        });
        mine
    }

    /// Notes what changed, for clients that cache, while it is known who waits for which command.
    pub(super) fn note_changes(&mut self, events: &[Event]) {
        for event in events {
            let (caller, key) = match event {
                Event::Changed { caller, key } => (*caller, Some(key.clone())),
                Event::Flushed { caller } => (*caller, None),
                _ => continue,
            };
            let author = self.is_mine(caller).then(|| self.waiters.client_of(caller.seq)).flatten();
            self.todo.changes.push(Change { key, author });
        }
    }

    /// A command of ours ran.
    pub(super) fn ran(&mut self, seq: u64, reply: Bytes, undo: Option<Undo>, now: Now) {
        if let Some(waited) = self.waiters.waited(seq, now) {
            self.meters.answered(waited);
        }
        let ticket = self.waiters.executed(seq);
        if let Some(until_ms) = B::waiting_until(&reply) {
            // Without a client it was given up, and its client was told that nobody knows; the wait is cancelled.
            let ticket = ticket.unwrap_or(NOBODY);
            let patience = |until_ms: u64| {
                let left = Duration::from_millis(until_ms.saturating_sub(self.ledger.cluster_ms()));
                now.at.plus(left.min(Duration::from_secs(1 << 32))).plus(self.waiters.timeout())
            };
            let until = until_ms.map(patience);
            self.parked.park(seq, ticket, until);
            self.todo.parked.push(ticket.connection);
            return;
        }
        if let Some(ticket) = ticket {
            self.todo.answers.push((ticket, Answer::Ran(reply)));
        }
        if let Some(undo) = undo {
            self.todo.undos.push((ticket.unwrap_or(NOBODY).connection, undo));
        }
    }

    /// Passes on what commands said besides their replies.
    pub(super) fn tell(&mut self, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Served { caller, reply, undo } if self.is_mine(caller) => {
                    let ticket = self.parked.take(caller.seq);
                    if let Some(ticket) = ticket {
                        self.todo.answers.push((ticket, Answer::Reply(reply)));
                    }
                    if let Some(undo) = undo {
                        self.todo.undos.push((ticket.unwrap_or(NOBODY).connection, undo));
                    }
                }
                Event::Served { .. } | Event::Undo { .. } => {}
                Event::Published { channel, message } => self.todo.published.push((channel, message)),
                Event::Lock(lock) => self.todo.locks.push(lock),
                // Noted before the answers were.
                Event::Changed { .. } | Event::Flushed { .. } => {}
            }
        }
    }

    /// A client is gone: what it waits for is cancelled. False: it waited for nothing.
    pub fn client_gone(&mut self, connection: u64, now: Now) -> bool {
        let seq = self.parked.gone(connection);
        seq.inspect(|seq| self.submit_unwait(*seq, false, now)).is_some()
    }

    /// CLIENT UNBLOCK. False: the client waits for nothing.
    pub fn unblock(&mut self, connection: u64, as_error: bool, now: Now) -> bool {
        let seq = self.parked.of(connection);
        seq.inspect(|seq| self.submit_unwait(*seq, as_error, now)).is_some()
    }

    /// Cancels once more what clients waited for that are gone: what was said before may be lost.
    pub fn cancel_again(&mut self, now: Now) -> bool {
        let gone = self.parked.all_gone();
        gone.iter().for_each(|seq| self.submit_unwait(*seq, false, now));
        !gone.is_empty()
    }

    fn submit_unwait(&mut self, seq: u64, as_error: bool, now: Now) {
        let payload = storage::commands::unwait(caller(self.id(seq)), as_error);
        self.waiters.submit(payload, NOBODY, now);
    }

    /// Clients whose time passed although the cluster said nothing are told that nobody knows.
    pub(super) fn give_up_waits(&mut self, now: Now) {
        for (seq, ticket) in self.parked.overdue(now.at) {
            self.todo.answers.push((ticket, Answer::Uncertain));
            self.submit_unwait(seq, false, now);
        }
    }

    /// A snapshot was installed: what ended in the slots that were skipped, nobody told us.
    pub(super) fn give_up_missed(&mut self) {
        for seq in self.parked.all() {
            if !self.backend.is_waiting(self.id(seq)) {
                let ticket = self.parked.take(seq);
                self.todo.answers.extend(ticket.map(|ticket| (ticket, Answer::Uncertain)));
            }
        }
    }

    /// How many clients wait in the machine.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.parked.count()
    }
}
