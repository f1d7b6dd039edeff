//! What the master tells the acceptors to be decided, and when: with a proposal or a heartbeat, or by itself if somebody waits for it.
//!
//! Invariant W1: only what this node's replica has applied, and what was decided in this ballot or known in its phase 1, is announced.

use super::super::{Leader, State};
use crate::message::{Message, RoleId};
use crate::planted::Bug;
use crate::role::Outputs;
use crate::types::{Now, Watermark};
use std::time::Duration;

/// A decision that nobody waits for on another node is announced with the next proposal, or after this.
const ANNOUNCE_LATER: Duration = Duration::from_millis(5);

impl Leader {
    /// What may be announced as decided now.
    pub(super) fn commit(&self) -> Watermark {
        let State::Leading(reign) = &self.state else { return Watermark::default() };
        if self.config.has_bug(Bug::AnnounceBeforeApply) {
            return reign.proposer.commit(u64::MAX);
        }
        if self.config.has_bug(Bug::WatermarkOverreach) {
            return Watermark { ballot: reign.proposer.ballot, slot: self.replica_applied };
        }
        reign.proposer.commit(self.replica_applied)
    }

    pub(super) fn announce(&mut self, out: &mut Outputs) {
        let commit = self.commit();
        let State::Leading(reign) = &mut self.state else { return };
        reign.announce_at = None;
        if commit.slot > reign.announced {
            reign.announced = commit.slot;
            out.broadcast(self.me, reign.targets.clone(), RoleId::Acceptor, Message::Commit { commit });
        }
    }

    /// Announces at once what somebody waits for, the rest a little later.
    pub(super) fn announce_soon(&mut self, now: Now, out: &mut Outputs) {
        let commit = self.commit();
        let State::Leading(reign) = &mut self.state else { return };
        if commit.slot <= reign.announced {
            return;
        }
        if reign.announced < reign.urgent_through || reign.transfer.is_some() {
            self.announce(out);
        } else if reign.announce_at.is_none() {
            reign.announce_at = Some(now.at.plus(ANNOUNCE_LATER));
        }
    }
}
