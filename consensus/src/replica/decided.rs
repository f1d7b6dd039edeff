//! The decided sequence: what is kept, counted, handed to the machine and written down.
//!
//! Here R1, R3 and R4 of the [replica](super) are kept.

use super::{Entry, Replica};
use crate::message::{Address, Message, RoleId};
use crate::record::Record;
use crate::role::{HostCall, Outputs};
use crate::types::{NodeId, Now};
use crate::value::{Body, Value};
use std::sync::Arc;

impl Replica {
    pub(super) fn on_decision(&mut self, slot: u64, value: Arc<Value>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.commit_seen = self.commit_seen.max(slot);
        if slot <= self.applied {
            // The leader repeats itself: it has not heard that this is applied.
            out.send(self.me, self.sibling(RoleId::Leader), self.applied_message(0));
            return out;
        }
        self.keep(slot, value, false);
        self.advance(now, &mut out);
        out
    }

    pub(super) fn on_learn(&mut self, commit: u64, entries: Vec<(u64, Arc<Value>)>, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.commit_seen = self.commit_seen.max(commit);
        for (slot, value) in entries {
            self.keep(slot, value, true);
        }
        self.advance(now, &mut out);
        out
    }

    pub(super) fn on_log(
        &mut self,
        from: NodeId,
        first: u64,
        values: Vec<Arc<Value>>,
        decided: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        let before = self.decided;
        for (slot, value) in (first..).zip(values) {
            // A peer's word for a slot that is already known changes nothing (R1).
            if slot > self.decided && slot <= self.decided + 1 && !self.log.contains_key(&slot) {
                out.persist.push(Record::Learned { slot, value: value.clone() });
                self.keep(slot, value, true);
            }
            self.count_decided();
        }
        self.advance(now, &mut out);
        if self.decided > before && decided > self.decided {
            self.catch_up.answered(now.at, self.config.retry);
            let to = Address { node: from, role: RoleId::Replica };
            out.send(self.me, to, Message::Fetch { from_slot: self.decided + 1 });
        }
        out
    }

    pub(super) fn on_applied(&mut self, slot: u64, stamp_ms: u64, executed_below: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        if slot < self.applied || slot > self.handed {
            return out;
        }
        self.applied = slot;
        self.after_apply(stamp_ms, executed_below, now, &mut out);
        out
    }

    pub(super) fn after_apply(&mut self, stamp_ms: u64, executed_below: u64, now: Now, out: &mut Outputs) {
        assert!(self.applied <= self.decided, "R4: applied {} beyond decided {}", self.applied, self.decided);
        let before = self.requests.len();
        self.requests.executed_below(executed_below);
        if self.requests.len() < before {
            self.retry_at = (self.requests.len() > 0).then(|| now.at.plus(self.config.retry));
        }
        self.freshness.applied(self.applied);
        self.answer_reads(out);
        if let Some((ballot, _)) = self.owes_progress.take_if(|(_, slot)| *slot <= self.applied) {
            self.tell_progress(ballot, out);
        }
        out.send(self.me, self.sibling(RoleId::Leader), self.applied_message(stamp_ms));
    }

    /// Keeps a decided value.
    pub(super) fn keep(&mut self, slot: u64, value: Arc<Value>, journaled: bool) {
        if slot <= self.floor || slot > self.decided + self.config.accept_ahead_max {
            return;
        }
        match self.log.get_mut(&slot) {
            Some(entry) => {
                let same = Arc::ptr_eq(&entry.value, &value) || entry.value == value;
                assert!(same || crate::planted::COMPILED_IN, "R1: slot {slot} is decided twice");
                entry.journaled |= journaled;
            }
            None => drop(self.log.insert(slot, Entry { value, journaled })),
        }
    }

    pub(super) fn count_decided(&mut self) {
        while self.log.contains_key(&(self.decided + 1)) {
            self.decided += 1;
        }
        while self.journaled < self.decided
            && self.log.get(&(self.journaled + 1)).is_none_or(|entry| entry.journaled)
        {
            self.journaled += 1;
        }
    }

    /// Does whatever newly kept values allow.
    pub(super) fn advance(&mut self, now: Now, out: &mut Outputs) {
        self.count_decided();
        self.hand_over(now, out);
        let wanted = self.durable < self.durable_wanted && self.journaled > self.durable;
        if wanted || self.journaled >= self.durable + self.config.durable_every {
            self.write_down(out);
        } else if self.decided > self.durable && self.write_down_at.is_none() {
            self.write_down_at = Some(now.at.plus(self.config.durable_after));
        }
        if self.decided >= self.commit_seen {
            self.catch_up.satisfied();
        } else {
            self.catch_up.want(now.at, self.config.resend / 4);
        }
    }

    /// Hands decided values to the host, in order, unless it is loading a snapshot.
    pub(super) fn hand_over(&mut self, _now: Now, out: &mut Outputs) {
        while self.handed < self.decided && !self.catch_up.is_installing() {
            let slot = self.handed + 1;
            let Some(entry) = self.log.get(&slot) else { break };
            let value = entry.value.clone();
            self.handed = slot;
            out.calls.push(HostCall::Apply { slot, value: value.clone() });
            if let Body::Start { establishes: Some(view) } = &value.body {
                let mut state = self.view.clone();
                if state.establish(view) {
                    self.learn_view(&state, out);
                }
            }
        }
    }

    /// Makes the decided watermark durable and tells the acceptor, which may then drop the values below it.
    pub(super) fn write_down(&mut self, out: &mut Outputs) {
        self.write_down_at = None;
        if self.journaled > self.durable {
            self.durable = self.journaled;
            out.persist.push(Record::Decided { slot: self.durable });
        }
        assert!(self.durable <= self.decided, "R4: durable beyond decided");
        out.send(self.me, self.sibling(RoleId::Acceptor), Message::Durable { slot: self.durable });
    }

    pub(super) fn on_write_down(&mut self, slot: u64, now: Now) -> Outputs {
        let mut out = Outputs::default();
        self.durable_wanted = self.durable_wanted.max(slot);
        self.journal_the_rest(slot, &mut out);
        self.advance(now, &mut out);
        // Said again in any case: the acceptor may have missed it.
        out.send(self.me, self.sibling(RoleId::Acceptor), Message::Durable { slot: self.durable });
        out
    }

    /// Values that the leader gave us, but that our own acceptor never accepted, must reach the journal some other way.
    pub(super) fn journal_the_rest(&mut self, through: u64, out: &mut Outputs) {
        let last = self.decided.min(through).max(self.journaled);
        for (slot, entry) in self.log.range_mut(self.journaled + 1..last + 1) {
            if !entry.journaled {
                entry.journaled = true;
                out.persist.push(Record::Learned { slot: *slot, value: entry.value.clone() });
            }
        }
        self.count_decided();
    }

    /// A durable snapshot covers `slot`; values up to `floor` are not needed any more.
    pub(super) fn note_snapshot(&mut self, slot: u64, floor: u64, out: &mut Outputs) {
        self.snapshot = self.snapshot.max(slot);
        self.journaled = self.journaled.max(slot);
        self.durable = self.durable.max(slot);
        if floor > self.floor {
            self.floor = floor;
            self.log = self.log.split_off(&(floor + 1));
        }
        out.send(self.me, self.sibling(RoleId::Acceptor), Message::Durable { slot: self.durable });
    }
}
