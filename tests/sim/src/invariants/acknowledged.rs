//! E1: a command runs at most once, and an acknowledged one exactly once. R1, R3: every node applies the same prefix and gives the same
//! answers.
//!
//! A twin of ledger and machine, fed with the first application of each slot and never crashed, says what every node must answer.

use super::Verdict;
use crate::locks::real::Said;
use crate::machine::Registers;
use bytes::Bytes;
use consensus::{CommandId, Config, Ledger, NodeId, Outcome, Value, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What became of a slot's commands.
pub type Outcomes = Vec<(CommandId, Outcome)>;

/// The twin.
#[derive(Debug)]
pub struct Acknowledged {
    config: Config,
    ledger: Ledger,
    machine: Registers,
    /// What the machine that ships said in the newest slot.
    said: Vec<Said>,
    slots: BTreeMap<u64, (Arc<Value>, Outcomes)>,
    ran: BTreeMap<CommandId, (u64, Bytes)>,
    never: BTreeSet<CommandId>,
}

impl Acknowledged {
    /// The twin of a new cluster. It has no planted bugs.
    #[must_use]
    pub fn new(first: &Arc<View>, has_locks: bool) -> Acknowledged {
        Acknowledged {
            config: Config::default(),
            ledger: Ledger::new(first.clone()),
            machine: Registers::new(has_locks),
            said: Vec::new(),
            slots: BTreeMap::new(),
            ran: BTreeMap::new(),
            never: BTreeSet::new(),
        }
    }

    /// A node applied `slot` and got these outcomes. True if it was the first to.
    pub fn applied(
        &mut self,
        node: NodeId,
        slot: u64,
        value: &Arc<Value>,
        outcomes: &Outcomes,
        verdict: &mut Verdict,
    ) -> bool {
        let is_first = slot == self.ledger.applied() + 1;
        if is_first {
            self.apply(slot, value, verdict);
        }
        if slot > self.ledger.applied() {
            verdict.fail(|| format!("R3: {node} applies {slot} before anybody applied the slots below"));
            return false;
        }
        let Some((known, expected)) = self.slots.get(&slot) else { return is_first };
        verdict.check(Arc::ptr_eq(known, value) || known == value, || {
            format!("R1: {node} applies another value for {slot}:\n  {known:?}\n  {value:?}")
        });
        verdict.check(expected == outcomes, || {
            format!("E1: {node} answers slot {slot} otherwise:\n  {expected:?}\n  {outcomes:?}")
        });
        is_first
    }

    fn apply(&mut self, slot: u64, value: &Arc<Value>, verdict: &mut Verdict) {
        let mut outcomes = Vec::new();
        self.ledger.apply(slot, value, &mut self.machine, &self.config, &mut outcomes);
        self.said = self.machine.finish_slot(slot);
        for (id, outcome) in &outcomes {
            let Outcome::Executed(reply) = outcome else { continue };
            if reply.is_empty() {
                continue;
            }
            verdict.check(!self.never.contains(id), || {
                format!("E1: {id:?} ran in slot {slot}, but its client was told that it never would")
            });
            let before = self.ran.insert(*id, (slot, reply.clone()));
            verdict.check(before.is_none(), || format!("E1: {id:?} ran twice, again in slot {slot}"));
        }
        self.slots.insert(slot, (value.clone(), outcomes));
    }

    /// A client is told this answer. The slot in which the command ran.
    pub fn acknowledged(&mut self, id: CommandId, reply: &Bytes, verdict: &mut Verdict) -> u64 {
        let Some((slot, expected)) = self.ran.get(&id) else {
            verdict.fail(|| format!("E1: {id:?} was acknowledged, but it did not run"));
            return 0;
        };
        verdict.check(expected == reply, || {
            format!("E1: {id:?} answered {expected:?} in slot {slot}, and its client was told {reply:?}")
        });
        *slot
    }

    /// A client is told that its command certainly did not run and never will.
    pub fn never(&mut self, id: CommandId, verdict: &mut Verdict) {
        verdict.check(!self.ran.contains_key(&id), || {
            format!("E1: {id:?} ran, but its client was told that it did not")
        });
        self.never.insert(id);
    }

    /// What the machine that ships said in the newest slot.
    pub fn take_said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// Whether a command ran.
    #[must_use]
    pub fn has_run(&self, id: CommandId) -> bool {
        self.ran.contains_key(&id)
    }

    /// How far the twin is: as far as the foremost node.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.ledger.applied()
    }

    /// Compares a node's state with the twin's, when they stand at the same slot.
    pub fn compare(&self, node: NodeId, ledger: &Ledger, machine: &Registers, verdict: &mut Verdict) {
        if ledger.applied() != self.ledger.applied() {
            return;
        }
        verdict.check(*ledger == self.ledger, || {
            format!(
                "R3: {node}'s ledger differs at slot {}:\n  {:?}\n  {ledger:?}",
                ledger.applied(),
                self.ledger
            )
        });
        verdict.check(*machine == self.machine, || {
            format!("R3: {node}'s machine differs at slot {}", ledger.applied())
        });
    }

    /// Forgets how earlier slots were answered.
    pub fn forget_below(&mut self, slot: u64) {
        self.slots = self.slots.split_off(&slot);
        self.ran.retain(|_, (ran_in, _)| *ran_in >= slot);
    }
}
