//! S1, L2: a ballot belongs to one life of one node, and is durable before its first use.

use super::Verdict;
use consensus::{Ballot, NodeId};
use std::collections::BTreeMap;

/// Every ballot that was ever used.
#[derive(Debug, Default)]
pub struct Ballots {
    owners: BTreeMap<Ballot, (u64, bool)>,
    last: Option<(Ballot, u64)>,
    released: BTreeMap<NodeId, Ballot>,
}

impl Ballots {
    /// A scout asks for promises.
    pub fn asked(&mut self, node: NodeId, life: u64, ballot: Ballot, durable: Ballot, verdict: &mut Verdict) {
        verdict.check(ballot <= durable, || {
            format!("L2: {node} asks for {ballot}, but only {durable} is durable as used")
        });
        self.used(node, life, ballot, verdict);
    }

    /// A scout, a commander or a leader speaks for a ballot.
    pub fn used(&mut self, node: NodeId, life: u64, ballot: Ballot, verdict: &mut Verdict) {
        if self.last == Some((ballot, life)) {
            return;
        }
        verdict.check(ballot.leader == node, || format!("L2: {node} uses {ballot}, which is not its own"));
        let owner = self.owners.entry(ballot).or_insert((life, false)).0;
        verdict.check(owner == life, || {
            format!("L2: {node} uses {ballot} in its life {life}, and used it before in its life {owner}")
        });
        self.last = Some((ballot, life));
    }

    /// A scout starts.
    pub fn scouted(&mut self, node: NodeId, life: u64, ballot: Ballot, verdict: &mut Verdict) {
        let (owner, scouted) = self.owners.entry(ballot).or_insert((life, false));
        verdict
            .check(*owner == life && !*scouted, || format!("S1: {node} scouts a second time with {ballot}"));
        *scouted = true;
    }

    /// A master gives its lease up.
    pub fn released(&mut self, node: NodeId, ballot: Ballot) {
        let known = self.released.entry(node).or_insert(ballot);
        *known = ballot.max(*known);
    }

    /// M1: a master never again serves, or counts a lease, in a ballot that it released.
    pub fn leased(&self, node: NodeId, ballot: Ballot, verdict: &mut Verdict) {
        let released = self.released.get(&node).copied().unwrap_or_default();
        verdict.check(ballot > released, || {
            format!("M1: {node} holds a lease in {ballot}, although it released {released}")
        });
    }
}
