//! Applying decided values: exactly once, in order, in cluster time.
//!
//! The [`Ledger`] is the part of the replicated state that belongs to consensus: how far the sequence is applied, cluster time, whose turn it
//! is, and for each origin which of its commands ran and what they answered. It is the same on every node at the same slot, and
//! part of every snapshot.
//!
//! Invariants:
//! * R3: applied slots are a contiguous prefix.
//! * E1: a command id runs at most once, and the commands of one origin run in the order of their numbers.
//! * E2: cluster time never goes back.

use crate::config::Config;
use crate::planted::Bug;
use crate::types::{Ballot, NodeId};
use crate::value::{Body, Command, CommandId, Origin, Value};
use crate::view::View;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What executes commands: the pluggable back end. Must be deterministic: the same calls in the same order give the same replies and state.
pub trait Machine {
    /// Executes one command.
    fn apply(&mut self, stamp: &Stamp, id: CommandId, payload: &Bytes) -> Bytes;
}

/// When and where in the sequence a command runs. The only time that a machine sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The slot.
    pub slot: u64,
    /// The position inside the slot's batch.
    pub index: u32,
    /// Cluster time in milliseconds.
    pub at_ms: u64,
}

/// What became of a command when its slot was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran now.
    Executed(Bytes),
    /// It had run before; this is what it answered then.
    Repeated(Bytes),
    /// It did nothing: its origin does not wait for it any more, an earlier command of the origin has to come first, or its batch is late
    /// (its origin sends it again to the new master).
    Skipped,
}

/// One origin's commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Executed {
    incarnation: u64,
    /// The next number to run.
    next: u64,
    /// The answers of the numbers just below `next`; the origin still waits for them.
    replies: VecDeque<Bytes>,
}

impl Executed {
    fn reply(&self, seq: u64) -> Option<&Bytes> {
        let first = self.next - self.replies.len() as u64;
        seq.checked_sub(first).and_then(|i| self.replies.get(usize::try_from(i).ok()?))
    }

    fn forget_below(&mut self, low: u64) {
        while !self.replies.is_empty() && self.next - (self.replies.len() as u64) < low {
            self.replies.pop_front();
        }
        self.next = self.next.max(low);
    }
}

/// The replicated state that consensus itself needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    applied: u64,
    cluster_ms: u64,
    /// The newest master that made an applied value; its clock counts.
    clock_of: Ballot,
    view: Option<Arc<View>>,
    origins: BTreeMap<NodeId, Executed>,
}

impl Ledger {
    /// The ledger of a new cluster.
    #[must_use]
    pub fn new(first_view: Arc<View>) -> Ledger {
        Ledger { view: Some(first_view), ..Ledger::default() }
    }

    /// The last applied slot.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Cluster time after it.
    #[must_use]
    pub fn cluster_ms(&self) -> u64 {
        self.cluster_ms
    }

    /// The newest view that is established at this slot.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// Commands of `origin` with lower numbers have run (or will never run).
    #[must_use]
    pub fn executed_below(&self, origin: Origin) -> u64 {
        match self.origins.get(&origin.node) {
            Some(table) if table.incarnation == origin.incarnation => table.next,
            Some(table) if table.incarnation > origin.incarnation => u64::MAX,
            _ => 1,
        }
    }

    /// What a command answered, while its origin still waits for it.
    #[must_use]
    pub fn reply(&self, id: CommandId) -> Option<&Bytes> {
        self.origins
            .get(&id.origin.node)
            .filter(|table| table.incarnation == id.origin.incarnation)
            .and_then(|table| table.reply(id.seq))
    }

    /// How many replies are remembered, over all origins.
    #[must_use]
    pub fn replies_kept(&self) -> usize {
        self.origins.values().map(|table| table.replies.len()).sum()
    }

    /// Applies the next slot. `outcomes` gets one entry per command, in order.
    ///
    /// # Panics
    /// When `slot` is not the next one (R3).
    pub fn apply<M: Machine>(
        &mut self,
        slot: u64,
        value: &Value,
        machine: &mut M,
        config: &Config,
        outcomes: &mut Vec<(CommandId, Outcome)>,
    ) {
        assert!(slot == self.applied + 1, "R3: slot {slot} applied after slot {}", self.applied);
        let before = self.cluster_ms;
        self.applied = slot;
        // Masters' clocks differ a little. A value of an older master behind a newer one's is late: with its own stamp it would cut short what
        // the newer master's values began, and at the newer one's it would begin before it was sent (E3). So its commands do not run; their
        // origins send them again. A no-op begins nothing, and must not make what a new master inherited behind it late.
        let is_late = value.made_in < self.clock_of;
        if !is_late && !matches!(value.body, Body::Noop) {
            self.clock_of = value.made_in;
            self.cluster_ms = self.cluster_ms.max(value.stamp_ms);
        }
        if config.has_bug(Bug::StampGoesBack) && value.stamp_ms > 0 {
            self.cluster_ms = value.stamp_ms;
        } else {
            assert!(self.cluster_ms >= before, "E2: cluster time went back");
        }
        match &value.body {
            Body::Noop | Body::Reconfig(_) => {}
            Body::Start { establishes: None } => {}
            Body::Start { establishes: Some(view) } => self.enter(view),
            Body::Commands(commands) if is_late && !config.has_bug(Bug::LateCommandsRun) => {
                outcomes.extend(commands.iter().map(|command| (command.id, Outcome::Skipped)));
            }
            Body::Commands(commands) => {
                for (index, command) in commands.iter().enumerate() {
                    let index = u32::try_from(index).unwrap_or(u32::MAX);
                    let stamp = Stamp { slot, index, at_ms: self.cluster_ms };
                    outcomes.push((command.id, self.execute(&stamp, command, machine, config)));
                }
            }
        }
    }

    fn execute<M: Machine>(
        &mut self,
        stamp: &Stamp,
        command: &Command,
        machine: &mut M,
        config: &Config,
    ) -> Outcome {
        let Command { id, low, payload } = command;
        // Member ids are never reused, so a command of a removed member can only be a late one: its table is gone for good.
        if self.view.as_ref().is_some_and(|view| !view.is_member(id.origin.node)) {
            return Outcome::Skipped;
        }
        let table = self.origins.entry(id.origin.node).or_insert_with(|| Executed {
            incarnation: id.origin.incarnation,
            next: 1,
            replies: VecDeque::new(),
        });
        if id.origin.incarnation < table.incarnation {
            return Outcome::Skipped;
        }
        if id.origin.incarnation > table.incarnation {
            *table = Executed { incarnation: id.origin.incarnation, next: 1, replies: VecDeque::new() };
        }
        table.forget_below(*low);
        if id.seq < table.next && !config.has_bug(Bug::CommandRunsTwice) {
            return table.reply(id.seq).map_or(Outcome::Skipped, |reply| Outcome::Repeated(reply.clone()));
        }
        if id.seq > table.next && !config.has_bug(Bug::CommandsOutOfOrder) {
            return Outcome::Skipped;
        }
        let reply = if payload.is_empty() { Bytes::new() } else { machine.apply(stamp, *id, payload) };
        if id.seq >= table.next {
            table.next = id.seq + 1;
            table.replies.push_back(reply.clone());
        }
        Outcome::Executed(reply)
    }

    /// From here on `view` holds: the tables of members that left go, for good.
    fn enter(&mut self, view: &Arc<View>) {
        if self.view.as_ref().is_some_and(|known| known.number >= view.number) {
            return;
        }
        self.origins.retain(|node, _| view.is_member(*node));
        self.view = Some(view.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Ran(Vec<u64>);

    impl Machine for Ran {
        fn apply(&mut self, _stamp: &Stamp, id: CommandId, _payload: &Bytes) -> Bytes {
            self.0.push(id.seq);
            Bytes::from(format!("reply {}", id.seq))
        }
    }

    fn ballot(round: u64) -> Ballot {
        Ballot { view: 1, round, leader: NodeId(1) }
    }

    fn commands(round: u64, stamp_ms: u64, ids: &[(u64, u64, u64)]) -> Value {
        let command = |(incarnation, seq, low): &(u64, u64, u64)| Command {
            id: CommandId { origin: Origin { node: NodeId(2), incarnation: *incarnation }, seq: *seq },
            low: *low,
            payload: Bytes::from_static(b"x"),
        };
        let body = Body::Commands(ids.iter().map(command).collect());
        Value { made_in: ballot(round), stamp_ms, body }
    }

    fn apply(ledger: &mut Ledger, machine: &mut Ran, value: &Value) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let slot = ledger.applied() + 1;
        ledger.apply(slot, value, machine, &Config::default(), &mut outcomes);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    #[test]
    fn a_command_runs_once_and_in_order() {
        let (mut ledger, mut machine) = (Ledger::default(), Ran::default());
        apply(&mut ledger, &mut machine, &commands(1, 10, &[(1, 1, 1), (1, 3, 1)]));
        let again = apply(&mut ledger, &mut machine, &commands(1, 11, &[(1, 1, 1), (1, 2, 1), (1, 3, 1)]));
        assert_eq!(machine.0, [1, 2, 3]);
        assert_eq!(again[0], Outcome::Repeated(Bytes::from("reply 1")));
    }

    #[test]
    fn replies_are_kept_until_low_passes_and_an_older_life_is_over() {
        let (mut ledger, mut machine) = (Ledger::default(), Ran::default());
        apply(&mut ledger, &mut machine, &commands(1, 10, &[(1, 1, 1), (1, 2, 1), (1, 3, 3)]));
        assert_eq!(ledger.replies_kept(), 1);
        let late = apply(&mut ledger, &mut machine, &commands(1, 10, &[(2, 1, 1), (1, 4, 4)]));
        assert_eq!(late[1], Outcome::Skipped);
        assert_eq!(machine.0, [1, 2, 3, 1]);
    }

    #[test]
    fn an_older_masters_commands_behind_a_newer_ones_wait_for_the_new_master() {
        let (mut ledger, mut machine) = (Ledger::default(), Ran::default());
        apply(&mut ledger, &mut machine, &commands(2, 100, &[(1, 1, 1)]));
        assert_eq!(apply(&mut ledger, &mut machine, &commands(1, 150, &[(1, 2, 2)])), [Outcome::Skipped]);
        let again = apply(&mut ledger, &mut machine, &commands(3, 160, &[(1, 2, 1)]));
        assert_eq!(again, [Outcome::Executed(Bytes::from("reply 2"))]);
        assert_eq!(machine.0, [1, 2]);
    }

    #[test]
    fn a_no_op_does_not_make_what_was_inherited_behind_it_late() {
        let (mut ledger, mut machine) = (Ledger::default(), Ran::default());
        let gap = Value { made_in: ballot(2), stamp_ms: 170, body: Body::Noop };
        apply(&mut ledger, &mut machine, &gap);
        apply(&mut ledger, &mut machine, &commands(1, 150, &[(1, 1, 1)]));
        assert_eq!((machine.0.as_slice(), ledger.cluster_ms()), ([1].as_slice(), 150));
    }

    #[test]
    fn an_older_masters_stamp_does_not_count_after_a_newer_ones() {
        let (mut ledger, mut machine) = (Ledger::default(), Ran::default());
        apply(&mut ledger, &mut machine, &commands(2, 100, &[]));
        apply(&mut ledger, &mut machine, &commands(1, 150, &[]));
        assert_eq!(ledger.cluster_ms(), 100);
        apply(&mut ledger, &mut machine, &commands(2, 90, &[]));
        assert_eq!(ledger.cluster_ms(), 100);
    }
}
