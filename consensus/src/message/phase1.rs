//! What phase 1 brings to light: an acceptor's answer, and a quorum's answers summed up.
//!
//! Both keep to one rule: nothing is said of slots at or below the watermark, because those decisions are durable on the node that reported it (A5).

use super::PValue;
use crate::types::{Ballot, NodeId};
use crate::view::ViewState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an acceptor knows of cluster time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClockReport {
    /// The newest master whose stamps it has seen: each master's clock is a line of its own.
    pub master: Ballot,
    /// That master's last stamp; 0: no stamp was ever seen.
    pub stamp_ms: u64,
    /// What that master's cluster time should be now: its last stamp plus what has passed since.
    pub estimate_ms: u64,
    /// Whether a monotonic clock says so; after a restart it is the wall clock.
    pub is_monotonic: bool,
}

/// An acceptor's answer in phase 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct P1b {
    /// The scout's ballot.
    pub ballot: Ballot,
    /// The acceptor's promise.
    pub promised: Ballot,
    /// Echo of the request: this page starts here.
    pub from_slot: u64,
    /// Decisions up to here are durable on the acceptor's node; it reports no values at or below.
    pub watermark: u64,
    /// Accepted values above the watermark, by rising slot: one page.
    pub accepted: Vec<PValue>,
    /// There are more, from this slot on.
    pub more_from: Option<u64>,
    /// An accepted value of the next reconfiguration slot.
    pub reconfig: Option<PValue>,
    /// The configuration that the acceptor knows.
    pub view: ViewState,
    /// What it knows of cluster time.
    pub clock: ClockReport,
}

/// A quorum's promises, summed up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Adopted {
    /// The ballot.
    pub ballot: Ballot,
    /// The highest watermark seen.
    pub watermark: u64,
    /// A node that holds the decisions up to the watermark.
    pub holder: NodeId,
    /// For each slot above it, the accepted value with the highest ballot.
    pub accepted: BTreeMap<u64, PValue>,
    /// The same for the next reconfiguration slot.
    pub reconfig: Option<PValue>,
    /// The configuration in which the quorum was counted (it may have turned out to be established).
    pub view: ViewState,
    /// What the quorum knows of cluster time.
    pub clocks: Vec<ClockReport>,
}
