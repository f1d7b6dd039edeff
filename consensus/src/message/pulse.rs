//! The master's pulse: the heartbeat, the name of an answer to it, and what an acceptor tells its siblings of it.
//!
//! A heartbeat carries the answer that it echoes only while its sender holds the master lease: the age of a local read rests on that (F1).

use crate::types::{Ballot, Time, Watermark};
use crate::view::ViewState;
use serde::{Deserialize, Serialize};

/// The master's pulse.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// Counts this leader's heartbeats in this ballot.
    pub seq: u64,
    /// The leader's clock: the start of the lease that the answer grants.
    pub sent_at: Time,
    /// What is decided.
    pub commit: Watermark,
    /// The configuration.
    pub view: ViewState,
    /// Cluster time.
    pub cluster_ms: u64,
    /// The target's last answer, if the leader holds the master lease right now. Proves to the target that `read_index` is at least as new
    /// as that answer.
    pub echo: Option<Echo>,
    /// Everything that was acknowledged to any client before this was sent lies at or below this slot.
    pub read_index: u64,
}

/// Names an answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Echo {
    /// Which life of the node answered: a late copy of a heartbeat may be answered again by the next.
    pub life: u64,
    /// The heartbeat's number.
    pub seq: u64,
}

/// What an acceptor tells its siblings when it hears a master.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MasterAlive {
    /// The master's ballot.
    pub ballot: Ballot,
    /// What it says is decided.
    pub commit: Watermark,
    /// This acceptor helps nobody else before this time.
    pub bound_until: Time,
    /// The configuration.
    pub view: ViewState,
    /// The number of the heartbeat.
    pub seq: u64,
    /// This node's clock when the acceptor answered it.
    pub answered_at: Time,
    /// The heartbeat's echo.
    pub echo: Option<Echo>,
    /// The heartbeat's read index.
    pub read_index: u64,
}
