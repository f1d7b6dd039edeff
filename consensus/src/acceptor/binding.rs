//! Being bound to a master: the acceptor's half of the lease.
//!
//! Invariant A4: until the time in `bound` has come, the acceptor promises to nobody but that master (`on_p1a` asks here first). The longest lease ever
//! granted is durable before the answer that grants it leaves, so that a restarted acceptor can wait as long; a ballot that its master released grants
//! nothing more.

use super::Acceptor;
use crate::record::Record;
use crate::role::Outputs;
use crate::types::{Ballot, NodeId, Now};
use std::time::Duration;

impl Acceptor {
    /// How long this acceptor still helps nobody but another leader.
    pub(super) fn bound_to_another(&self, leader: NodeId, now: Now) -> Duration {
        match self.bound {
            Some((master, until)) if master != leader => until.since(now.at),
            _ => Duration::ZERO,
        }
    }

    /// Binds this acceptor to the leader of `ballot`, which is not below its promise, from now on for `lease`.
    pub(super) fn grant(&mut self, ballot: Ballot, lease: Duration, now: Now, out: &mut Outputs) -> bool {
        if ballot <= self.released {
            return false;
        }
        if lease > self.lease_max {
            self.lease_max = lease;
            out.persist.push(Record::Lease(lease));
        }
        let until = now.at.plus(lease);
        self.bound = match self.bound {
            Some((leader, longer)) if leader == ballot.leader && longer > until => Some((leader, longer)),
            _ => Some((ballot.leader, until)),
        };
        true
    }

    pub(super) fn on_release(&mut self, ballot: Ballot) -> Outputs {
        self.released = self.released.max(ballot);
        if self.promised <= ballot && self.bound.is_some_and(|(leader, _)| leader == ballot.leader) {
            self.bound = None;
        }
        Outputs::default()
    }
}
