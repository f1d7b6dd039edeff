//! S1: a ballot is adopted only after a quorum answered. L1: what a scout sums up holds, for each slot, the value with the highest ballot among the answers that it got.
//!
//! Only acceptors whose pages all arrived, in order, are counted: a scout need not look at the others.

use super::Verdict;
use consensus::message::{Adopted, P1b};
use consensus::{Ballot, NodeId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Answers {
    /// The page that comes next; none: all arrived.
    next: Option<u64>,
    ballots: BTreeMap<u64, Ballot>,
}

/// What each scout was told.
#[derive(Debug, Default)]
pub struct Phase1 {
    scouts: BTreeMap<Ballot, BTreeMap<NodeId, Answers>>,
    adopted: BTreeSet<Ballot>,
}

impl Phase1 {
    /// An answer reaches the scout of its ballot.
    pub fn answered(&mut self, from: NodeId, p1b: &P1b) {
        if p1b.promised != p1b.ballot || self.adopted.contains(&p1b.ballot) {
            return;
        }
        let scout = self.scouts.entry(p1b.ballot).or_default();
        let answers = scout.entry(from).or_insert(Answers { next: Some(0), ballots: BTreeMap::new() });
        if answers.next != Some(p1b.from_slot) {
            return;
        }
        answers.next = p1b.more_from;
        for pvalue in &p1b.accepted {
            if let consensus::Slot::Data(slot) = pvalue.slot {
                answers.ballots.insert(slot, pvalue.ballot);
            }
        }
    }

    /// The scout sums up.
    pub fn adopted(&mut self, adopted: &Adopted, verdict: &mut Verdict) {
        // A scout says it again and again, until its leader has heard it.
        if !self.adopted.insert(adopted.ballot) {
            return;
        }
        let scout = self.scouts.remove(&adopted.ballot).unwrap_or_default();
        let complete =
            scout.iter().filter(|(_, answers)| answers.next.is_none()).map(|(node, _)| *node).collect();
        verdict.check(adopted.view.is_phase1_quorum(&complete), || {
            format!(
                "S1: {} was adopted by {complete:?}, which is no quorum of {:?}",
                adopted.ballot, adopted.view
            )
        });
        for (node, answers) in scout.iter().filter(|(_, answers)| answers.next.is_none()) {
            for (slot, ballot) in answers.ballots.range(adopted.watermark + 1..) {
                let kept = adopted.accepted.get(slot).map(|pvalue| pvalue.ballot);
                verdict.check(kept >= Some(*ballot), || {
                    format!(
                        "L1: {node} reported {slot} in {ballot} to {}, which keeps {kept:?}",
                        adopted.ballot
                    )
                });
            }
        }
    }
}
