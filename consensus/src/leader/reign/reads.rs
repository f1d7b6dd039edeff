//! Read indexes: up to where a reader elsewhere must have applied to see everything that was acknowledged before it asked.
//!
//! Invariant: an index is given only by a master that may read itself: it holds the lease and has applied the start entry from which that serves. Whoever asks earlier is answered then.

use super::super::{Leader, State};
use crate::message::{Address, Message};
use crate::role::Outputs;
use crate::types::Now;
use crate::value::Origin;

impl Leader {
    pub(in crate::leader) fn on_read_index(
        &mut self,
        from: Address,
        reader: Origin,
        seq: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        if !self.can_read(now) {
            if let State::Leading(reign) = &mut self.state {
                reign.early_readers.insert(from.node, (from, reader, seq));
            }
            return out;
        }
        let slot = self.read_index();
        out.send(self.me, from, Message::ReadIndexAt { reader, seq, slot });
        if let State::Leading(reign) = &mut self.state {
            reign.urgent_through = reign.urgent_through.max(slot);
            self.announce_soon(now, &mut out);
        }
        out
    }

    /// Everything that any client saw acknowledged lies at or below this slot: the replica applies nothing in this reign that did not
    /// pass through this leader.
    pub(super) fn read_index(&self) -> u64 {
        self.decided_max.max(self.replica_applied)
    }

    /// Answers readers that came before this master could answer them.
    pub(super) fn answer_early_readers(&mut self, now: Now, out: &mut Outputs) {
        if let State::Leading(reign) = &mut self.state {
            if reign.early_readers.is_empty() {
                return;
            }
            for (_, (from, reader, seq)) in std::mem::take(&mut reign.early_readers) {
                out.append(self.on_read_index(from, reader, seq, now));
            }
        }
    }
}
