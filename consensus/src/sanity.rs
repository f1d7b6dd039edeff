//! Numbers that no honest node can ever reach. A message that carries one is dropped before a role sees it, so no role has to think about
//! overflow: slots, rounds, views, command numbers and times all stay far below the end of their range.

use crate::config::ACCEPT_AHEAD_LIMIT;
use crate::message::{Adopted, Heartbeat, Message, P1b, PValue};
use crate::types::{Ballot, NodeId, Slot, Time};
use crate::value::{Body, Command, Origin, Value};
use crate::view::{Change, View, ViewState};
use std::sync::Arc;
use std::time::Duration;

/// At a million slots per second this is reached after two thousand years.
const NUMBER_MAX: u64 = 1 << 56;
/// The longest lease, wait or other duration that makes sense.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

trait Sane {
    fn is_sane(&self) -> bool;
}

impl Sane for u64 {
    fn is_sane(&self) -> bool {
        *self < NUMBER_MAX
    }
}

impl Sane for Time {
    fn is_sane(&self) -> bool {
        self.0.is_sane()
    }
}

impl Sane for Duration {
    fn is_sane(&self) -> bool {
        *self <= DURATION_MAX
    }
}

impl Sane for NodeId {
    fn is_sane(&self) -> bool {
        self.0.is_sane()
    }
}

impl Sane for Ballot {
    fn is_sane(&self) -> bool {
        self.view.is_sane() && self.round.is_sane() && self.leader.is_sane()
    }
}

impl Sane for Slot {
    fn is_sane(&self) -> bool {
        match self {
            Slot::Data(number) | Slot::Reconfig(number) => number.is_sane(),
        }
    }
}

impl Sane for Origin {
    fn is_sane(&self) -> bool {
        self.node.is_sane() && self.incarnation.is_sane()
    }
}

impl Sane for Command {
    fn is_sane(&self) -> bool {
        self.id.origin.is_sane() && self.id.seq.is_sane() && self.low.is_sane() && self.low <= self.id.seq
    }
}

impl Sane for View {
    fn is_sane(&self) -> bool {
        self.number.is_sane()
            && self.next_member.is_sane()
            && self.lease.is_sane()
            && self.members.keys().all(Sane::is_sane)
    }
}

impl Sane for ViewState {
    fn is_sane(&self) -> bool {
        self.current.is_sane() && self.previous.as_ref().is_none_or(|view| view.is_sane())
    }
}

impl Sane for Value {
    fn is_sane(&self) -> bool {
        let body = match &self.body {
            Body::Noop => true,
            Body::Start { establishes } => establishes.as_ref().is_none_or(|view| view.is_sane()),
            Body::Commands(commands) => commands.is_sane(),
            Body::Reconfig(view) => view.is_sane(),
        };
        body && self.made_in.is_sane() && self.stamp_ms.is_sane()
    }
}

impl<T: Sane> Sane for Arc<T> {
    fn is_sane(&self) -> bool {
        self.as_ref().is_sane()
    }
}

impl<T: Sane> Sane for Vec<T> {
    fn is_sane(&self) -> bool {
        self.iter().all(Sane::is_sane)
    }
}

impl<T: Sane> Sane for Option<T> {
    fn is_sane(&self) -> bool {
        self.as_ref().is_none_or(Sane::is_sane)
    }
}

impl Sane for PValue {
    fn is_sane(&self) -> bool {
        self.slot.is_sane() && self.ballot.is_sane() && self.value.is_sane()
    }
}

impl Sane for P1b {
    fn is_sane(&self) -> bool {
        self.ballot.is_sane()
            && self.promised.is_sane()
            && self.from_slot.is_sane()
            && self.watermark.is_sane()
            && self.accepted.is_sane()
            && self.accepted.iter().all(|pvalue| self.reaches(pvalue.slot))
            && self.more_from.is_sane()
            && self.reconfig.is_sane()
            && self.reconfig.as_ref().is_none_or(|pvalue| matches!(pvalue.slot, Slot::Reconfig(_)))
            && self.view.is_sane()
            && self.clock.master.is_sane()
            && self.clock.stamp_ms.is_sane()
            && self.clock.estimate_ms.is_sane()
    }
}

impl P1b {
    /// No acceptor accepts further ahead of its node's decisions than this: a leader never has to fill a longer gap.
    fn reaches(&self, slot: Slot) -> bool {
        matches!(slot, Slot::Data(number) if number <= self.watermark + ACCEPT_AHEAD_LIMIT)
    }
}

impl Sane for Heartbeat {
    fn is_sane(&self) -> bool {
        self.ballot.is_sane()
            && self.seq.is_sane()
            && self.sent_at.is_sane()
            && self.commit.slot.is_sane()
            && self.commit.ballot.is_sane()
            && self.view.is_sane()
            && self.cluster_ms.is_sane()
            && self.read_index.is_sane()
            && self.echo.is_none_or(|echo| echo.life.is_sane() && echo.seq.is_sane())
    }
}

impl Sane for Change {
    fn is_sane(&self) -> bool {
        match self {
            Change::Add { .. } => true,
            Change::Promote(node) | Change::Remove(node) => node.is_sane(),
            Change::Down(nodes) => nodes.iter().all(Sane::is_sane),
            Change::Lease(lease) => lease.is_sane(),
        }
    }
}

impl Message {
    /// Whether an honest peer could have said this.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        match self {
            Message::Probe { ballot } | Message::Release { ballot, .. } => ballot.is_sane(),
            Message::ProbeAnswer { ballot, promised, wait } => {
                ballot.is_sane() && promised.is_sane() && wait.is_sane()
            }
            Message::P1a { ballot, from_slot, view } => {
                ballot.is_sane() && from_slot.is_sane() && view.is_sane()
            }
            Message::P1b(answer) => answer.is_sane(),
            Message::Refused { ballot, wait } => ballot.is_sane() && wait.is_sane(),
            Message::P2a { pvalue, commit, sent_at, lease, may_wait: _ } => {
                pvalue.is_sane()
                    && commit.slot.is_sane()
                    && commit.ballot.is_sane()
                    && sent_at.is_sane()
                    && lease.is_sane()
            }
            Message::P2b { ballot, slot, promised, sent_at, .. } => {
                ballot.is_sane() && slot.is_sane() && promised.is_sane() && sent_at.is_sane()
            }
            Message::Commit { commit } => commit.slot.is_sane() && commit.ballot.is_sane(),
            Message::Heartbeat(heartbeat) => heartbeat.is_sane(),
            Message::HeartbeatAnswer { ballot, seq, sent_at, promised, life, .. } => {
                life.is_sane() && ballot.is_sane() && seq.is_sane() && sent_at.is_sane() && promised.is_sane()
            }
            Message::Request { commands } => commands.is_sane(),
            Message::OutOfOrder { origin, expected, ballot } => {
                origin.is_sane() && expected.is_sane() && ballot.is_sane()
            }
            Message::ReadIndex { reader, seq } => reader.is_sane() && seq.is_sane(),
            Message::ReadIndexAt { reader, seq, slot } => reader.is_sane() && seq.is_sane() && slot.is_sane(),
            Message::Progress { ballot, applied, durable } => {
                ballot.is_sane() && applied.is_sane() && durable.is_sane()
            }
            Message::Fetch { from_slot } => from_slot.is_sane(),
            Message::Log { first, values, decided } => {
                first.is_sane() && values.is_sane() && decided.is_sane()
            }
            Message::SnapshotFetch { slot, offset } => slot.is_sane() && offset.is_sane(),
            Message::SnapshotChunk { slot, offset, total, .. } => {
                slot.is_sane() && offset.is_sane() && total.is_sane()
            }
            Message::ViewIs(view) | Message::Dismissed(view) => view.is_sane(),
            Message::Reconfigure { change, .. } => change.is_sane(),
            Message::Transfer { to, .. } => to.is_sane(),
            Message::AdminAnswer { .. } | Message::MayIStop => true,
            // Said inside one node: the numbers come from the roles themselves.
            Message::Adopted(adopted) => is_adopted_sane(adopted),
            local => local.is_local(),
        }
    }
}

fn is_adopted_sane(adopted: &Adopted) -> bool {
    adopted.ballot.is_sane() && adopted.watermark.is_sane()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ClockReport, PValue};
    use crate::types::{Ballot, NodeId};
    use crate::value::{Body, Value};
    use crate::view::ViewState;
    use std::sync::Arc;

    /// A report of phase 1 with these slots among the accepted values, and this one in the place of the reconfiguration.
    fn report(accepted: &[Slot], reconfig: Slot) -> P1b {
        let ballot = Ballot { view: 1, round: 1, leader: NodeId(1) };
        let value = |slot| PValue {
            slot,
            ballot,
            value: Arc::new(Value { made_in: ballot, stamp_ms: 1, body: Body::Noop }),
        };
        P1b {
            ballot,
            promised: ballot,
            from_slot: 1,
            watermark: 0,
            accepted: accepted.iter().copied().map(value).collect(),
            more_from: None,
            reconfig: Some(value(reconfig)),
            view: ViewState::unknown(),
            clock: ClockReport { master: ballot, stamp_ms: 1, estimate_ms: 1, is_monotonic: true },
        }
    }

    #[test]
    fn nobody_makes_a_leader_fill_a_longer_gap_than_an_acceptor_can_leave() {
        let (last, beyond) = (Slot::Data(ACCEPT_AHEAD_LIMIT), Slot::Data(ACCEPT_AHEAD_LIMIT + 1));
        assert!(report(&[last], Slot::Reconfig(2)).is_sane());
        assert!(!report(&[last, beyond], Slot::Reconfig(2)).is_sane());
        assert!(!report(&[last], beyond).is_sane(), "a data slot in the place of a reconfiguration");
    }
}
