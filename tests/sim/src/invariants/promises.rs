//! A1: an acceptor's promise never falls, restarts included. A3: nothing is accepted above the promise, and nothing below it is said to be
//! accepted. Both also on what is said: a promise that was said is durable.

use super::Verdict;
use consensus::{Ballot, Durable, NodeId, Slot};

/// The highest promise that each member ever said.
#[derive(Debug, Default)]
pub struct Promises {
    said: Vec<Ballot>,
}

impl Promises {
    fn of(&mut self, node: NodeId) -> &mut Ballot {
        let index = usize::try_from(node.0).unwrap_or(0);
        if self.said.len() <= index {
            self.said.resize(index + 1, Ballot::ZERO);
        }
        &mut self.said[index]
    }

    /// `node` says that it promised this.
    pub fn said(&mut self, node: NodeId, promised: Ballot, verdict: &mut Verdict) {
        let before = self.of(node);
        verdict.check(promised >= *before, || format!("A1: {node} said {before}, and now {promised}"));
        *before = promised.max(*before);
    }

    /// A promise that is said in phase 1 is durable.
    pub fn durable(&self, node: NodeId, promised: Ballot, durable: Ballot, verdict: &mut Verdict) {
        verdict.check(promised <= durable, || {
            format!("A1: {node} says that it promised {promised}, but only {durable} is durable")
        });
    }

    /// What `node`'s acceptor holds now, after any step and after a restart.
    pub fn holds(&mut self, node: NodeId, promised: Ballot, verdict: &mut Verdict) {
        let said = *self.of(node);
        verdict.check(promised >= said, || format!("A1: {node} said {said}, and now holds {promised}"));
    }

    /// `node` says that it accepted in this ballot; the value is durable, or the decision of the slot is.
    pub fn accepted(
        &self,
        node: NodeId,
        ballot: Ballot,
        slot: Slot,
        durable: &Durable,
        snapshot: u64,
        verdict: &mut Verdict,
    ) {
        let held = match slot {
            Slot::Data(n) => {
                n <= snapshot
                    || n <= durable.decided_through(snapshot)
                    || durable.learned.contains_key(&n)
                    || durable.accepted.get(&n).is_some_and(|pvalue| pvalue.ballot >= ballot)
            }
            Slot::Reconfig(v) => {
                durable.reconfig.as_ref().is_some_and(|p| (p.slot, p.ballot) >= (slot, ballot))
                    || durable.view.as_ref().is_some_and(|view| view.current.number >= v)
            }
        };
        verdict.check(held, || {
            format!("A2: {node} says that it accepted {slot:?} in {ballot}, but it is not durable")
        });
        verdict.check(ballot <= durable.promise, || {
            format!("A3: {node} accepted {slot:?} in {ballot}, above its durable promise {}", durable.promise)
        });
    }

    /// `node` says that it accepted the start entry of a view: it holds every earlier slot, as a decision or accepted in that ballot.
    pub fn started(
        &self,
        node: NodeId,
        ballot: Ballot,
        slot: u64,
        durable: &Durable,
        snapshot: u64,
        verdict: &mut Verdict,
    ) {
        let held = durable.decided_through(snapshot);
        let hole = (held + 1..slot).find(|n| durable.accepted.get(n).is_none_or(|p| p.ballot < ballot));
        verdict.check(hole.is_none(), || {
            format!(
                "V1: {node} accepted the start of a view in slot {slot} ({ballot}), but misses slot {hole:?}"
            )
        });
    }
}
