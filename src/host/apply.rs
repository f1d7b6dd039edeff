//! Decided values are applied as long as the rows have a place to go; what has none is held.
//!
//! Rows on disk are written by a thread of their own, and a disk that is slow for long cannot take them as fast as they come. The node's one thread must not wait for it: heartbeats, votes and
//! reads go through the same thread, and a master that is silent for longer than its lease is no master any more. So a value without room stays here, and the replica hears that it
//! is applied when it is. For consensus this is a machine that applies slowly, which changes no promise: a master announces and answers only what it has applied, and
//! proposes only so far beyond it (R2). So its clients' writes wait, before they are proposed.
//!
//! * H1: values are applied in the order of their slots, each once; one that is handed over while others are held is held behind them.
//! * H2: what is held is bounded: a master's by R2, a follower's by losing what would add to it. Its sender sends it again.

use super::core::{Backend, Core};
use super::riders::Riding;
use consensus::{Body, Message, Now, Outcome, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// A follower that holds more takes nothing new: as much as a window has, with the batches of a node whose rows are on disk.
const BYTES_MAX: usize = 16 << 20;
/// Holding is told so often.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Values without room for their rows.
#[derive(Default)]
pub(super) struct Held {
    values: VecDeque<(u64, Arc<Value>)>,
    bytes: usize,
    /// The rows have no room for another slot, as far as is known.
    is_full: bool,
    told_at: Option<Instant>,
}

fn byte_count(value: &Value) -> usize {
    match &value.body {
        Body::Commands(commands) => commands.iter().map(|command| command.payload.len()).sum(),
        _ => 0,
    }
}

impl Held {
    fn push(&mut self, slot: u64, value: Arc<Value>) {
        self.bytes += byte_count(&value);
        self.values.push_back((slot, value));
        if self.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            self.told_at = Some(Instant::now());
            warn!(slot, "the disk takes rows slower than they are written: writes wait");
        }
    }

    fn pop(&mut self) -> Option<(u64, Arc<Value>)> {
        let (slot, value) = self.values.pop_front()?;
        self.bytes -= byte_count(&value);
        Some((slot, value))
    }

    /// Other rows took the place of those that had no room; what comes behind them is handed over again.
    pub(super) fn clear(&mut self) {
        *self = Held { told_at: self.told_at, ..Held::default() };
    }

    /// Whether a message that adds to what is held is better lost.
    pub(super) fn must_lose(&self, message: &Message) -> bool {
        self.bytes > BYTES_MAX
            && matches!(message, Message::P2a { .. } | Message::Log { .. } | Message::Request { .. })
    }
}

impl<B: Backend> Core<B> {
    /// A value is decided, and all before it are here.
    pub(super) fn handed(&mut self, slot: u64, value: Arc<Value>, now: Now) {
        if self.held.is_full {
            self.held.push(slot, value);
        } else {
            self.apply(slot, &value, now);
        }
    }

    /// Applies what was held, as far as there is room by now.
    pub(super) fn apply_held(&mut self, now: Now) {
        if !self.held.is_full {
            return;
        }
        self.look_for_room();
        while !self.held.is_full {
            let Some((slot, value)) = self.held.pop() else { return };
            self.apply(slot, &value, now);
        }
    }

    fn look_for_room(&mut self) {
        self.held.is_full = !self.backend.boundary(&self.ledger, self.node.replica().view());
    }

    fn apply(&mut self, slot: u64, value: &Value, now: Now) {
        let origin = self.node.origin();
        let Core { ledger, backend, config, outcomes, riders, .. } = self;
        ledger.apply(slot, value, &mut Riding { machine: backend, riders, origin }, config, outcomes);
        backend.finish_slot(slot);
        self.look_for_room();
        if let Body::Commands(commands) = &value.body {
            self.meters.applied(commands.len());
        }
        let mut events = std::mem::take(&mut self.said);
        self.backend.take_events(&mut events);
        self.note_changes(&events);
        let mut undos = self.direct_undos(&mut events);
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for (id, outcome) in outcomes.drain(..) {
            let is_repeat = matches!(outcome, Outcome::Repeated(_));
            let (Outcome::Executed(reply) | Outcome::Repeated(reply)) = outcome else { continue };
            // A repeat of what this node saw run says nothing new; of a command that waits it says that it waits, although by now it may not.
            if id.origin == self.node.origin() && !(is_repeat && self.waiters.is_answered(id.seq)) {
                let undo = undos.binary_search_by_key(&id.seq, |(seq, _)| *seq);
                let undo = undo.ok().and_then(|index| undos[index].1.take());
                self.ran(id.seq, reply, undo, now);
            }
        }
        self.outcomes = outcomes;
        self.settle_riders();
        self.tell(&mut events);
        self.said = events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use consensus::{Ballot, Command, CommandId, NodeId, Origin};

    fn value(bytes: usize) -> Arc<Value> {
        let origin = Origin { node: NodeId(1), incarnation: 1 };
        let payload = Bytes::from(vec![0; bytes]);
        let command = Command { id: CommandId { origin, seq: 1 }, low: 1, payload };
        let made_in = Ballot { view: 1, round: 1, leader: NodeId(1) };
        Arc::new(Value { made_in, stamp_ms: 1, body: Body::Commands(vec![command]) })
    }

    #[test]
    fn who_holds_too_much_loses_what_would_add_to_it_and_nothing_else() {
        let request = Message::Request { commands: Vec::new() };
        let fetch = Message::Fetch { from_slot: 1 };
        let mut held = Held::default();
        held.push(1, value(BYTES_MAX));
        assert!(!held.must_lose(&request));
        held.push(2, value(1));
        assert!(held.must_lose(&request) && !held.must_lose(&fetch));
        assert_eq!(held.pop().map(|(slot, _)| slot), Some(1));
        assert!(!held.must_lose(&request));
        held.push(3, value(BYTES_MAX));
        held.clear();
        assert!(!held.must_lose(&request) && held.pop().is_none());
    }
}
