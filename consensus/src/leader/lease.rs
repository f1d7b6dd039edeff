//! Counting the master lease.
//!
//! **Safe:** a grant counts from the moment its request was *sent*, shortened by the drift bound; only voters of the ballot's view
//! count; after a release nothing of the released ballot counts.
//! Invariant M1 (with the acceptors' A4): at most one node holds a valid lease at any instant.

use crate::types::{NodeId, Time};
use crate::view::View;
use std::collections::BTreeMap;
use std::time::Duration;

/// The lease of this node, over the ballots in which it leads.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// For each voter of the current ballot's view, when the newest request was sent that it granted.
    grants: BTreeMap<NodeId, Time>,
    until: Option<Time>,
}

impl Lease {
    /// A new ballot: grants of the old one count no more. A lease already held goes on: the acceptors are bound to this node whatever
    /// its ballot; but no longer than `at_most`, a lease of the new ballot's view from now. The voters of a new view may have granted nothing in
    /// the old one; what binds them is this ballot's start entry, for the new view's lease.
    pub fn new_ballot(&mut self, at_most: Time) {
        self.grants.clear();
        self.until = self.until.map(|until| until.min(at_most));
    }

    /// A voter granted the request sent at `sent_at`; `counted` is how long that counts.
    pub fn grant(&mut self, voter: NodeId, sent_at: Time, view: &View, counted: Duration) {
        if !view.is_voter(voter) {
            return;
        }
        let newest = self.grants.entry(voter).or_insert(sent_at);
        *newest = (*newest).max(sent_at);
        let mut sent: Vec<Time> = self.grants.values().copied().collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(oldest_needed) = sent.get(view.majority() - 1) {
            let until = oldest_needed.plus(counted);
            self.until = Some(self.until.map_or(until, |known| known.max(until)));
        }
    }

    /// Gives the lease up.
    pub fn release(&mut self) {
        *self = Lease::default();
    }

    /// When the lease ends.
    #[must_use]
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Whether the lease is held at `at`.
    #[must_use]
    pub fn holds(&self, at: Time) -> bool {
        self.until.is_some_and(|until| at < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn view(ids: &[u64]) -> View {
        View::first(ids.iter().map(|id| (NodeId(*id), Bytes::new())), Duration::from_secs(1))
    }

    #[test]
    fn a_majority_counts_from_the_oldest_request_that_it_needs() {
        let (mut lease, view, second) = (Lease::default(), view(&[1, 2, 3]), Duration::from_secs(1));
        lease.grant(NodeId(1), Time(500), &view, second);
        lease.grant(NodeId(9), Time(900), &view, second);
        assert_eq!(lease.until(), None, "a stranger's grant does not count");
        lease.grant(NodeId(3), Time(200), &view, second);
        assert_eq!(lease.until(), Some(Time(1_000_200)));
        lease.grant(NodeId(2), Time(400), &view, second);
        assert_eq!(lease.until(), Some(Time(1_000_400)));
    }

    #[test]
    fn a_long_lease_is_not_carried_into_a_view_with_a_short_one() {
        let (mut lease, view) = (Lease::default(), view(&[1]));
        lease.grant(NodeId(1), Time(0), &view, Duration::from_secs(60));
        lease.new_ballot(Time(1_000_000));
        assert!(lease.holds(Time(999_999)) && !lease.holds(Time(1_000_000)));
        lease.release();
        assert_eq!(lease.until(), None);
    }
}
