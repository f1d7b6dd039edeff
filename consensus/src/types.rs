//! The small words of the protocol: node, time, ballot, slot.
//!
//! Everything here is plain data with a total order. Nothing here reads a clock: a [`Time`] is what the
//! host read for us.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A member of the cluster. Given out by the cluster, never reused: a node that lost its data comes back
/// under a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct NodeId(pub u64);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// Microseconds on one node's own clock, which only goes forward and counts suspended time. Times of
/// different nodes are not comparable; a node may echo another's time back to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// This time plus `duration`; saturates at the end of time.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How much time lies between `earlier` and this; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// What a host's clocks say when it calls a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock that counts suspended time (CLOCK_BOOTTIME). Every timeout and lease uses it.
    pub at: Time,
    /// The wall clock, in milliseconds since 1970. May jump; only cluster time looks at it, and cautiously.
    pub wall_ms: u64,
}

/// Whose turn it is. Ordered by view, then round, then leader, so that a promise in a newer view fences off
/// every leader of an older one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    /// The number of the cluster configuration in which this ballot counts its majorities.
    pub view: u64,
    /// Grows with each attempt to lead.
    pub round: u64,
    /// The node whose leader owns this ballot.
    pub leader: NodeId,
}

impl Ballot {
    /// Below every ballot that a leader may use.
    pub const ZERO: Ballot = Ballot { view: 0, round: 0, leader: NodeId(0) };
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.view, self.round, self.leader)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A place for which one value is chosen. Data slots start at 1; 0 means "before the first".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// The n-th position of the decided sequence.
    Data(u64),
    /// The member set of view v. Chosen by the voters of view v - 1, beside the data slots.
    Reconfig(u64),
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Data(n) => write!(f, "{n}"),
            Slot::Reconfig(v) => write!(f, "view{v}"),
        }
    }
}

/// "Everything up to `slot` is decided", as said by the leader of `ballot`.
///
/// **Safe:** it covers only slots up to that leader's phase-1 watermark and slots decided in `ballot` itself, so a node may take its
/// own accepted value as the decision only if it accepted it in exactly `ballot`: the leader proposed it, hence above its phase-1
/// watermark, hence it was decided in `ballot`. (A value accepted in a higher ballot may have lost against one chosen in a ballot higher
/// still, which the phase-1 watermark of a leader whose last promise came late can cover.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Watermark {
    /// The ballot of the leader that says so.
    pub ballot: Ballot,
    /// The last data slot that it covers.
    pub slot: u64,
}
