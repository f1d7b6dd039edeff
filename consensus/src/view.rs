//! Cluster configurations: who is a member, who votes, and what one change may do.
//!
//! Invariant V1: a view differs from the one before it by one change, its number is one higher, and a member
//! id that was ever given out is never given out again (`next_member` only grows).

use crate::types::NodeId;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A member's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// Votes.
    Valid,
    /// A learner: follows without a vote, and is made valid when it is in step.
    Join,
    /// A learner that stays one: follows and serves reads.
    Observer,
    /// Not heard for long: no vote, until it comes back and has caught up.
    Down,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its standing.
    pub condition: Condition,
    /// How the hosts reach it; opaque here. Unique per member, so that a repeated `Add` is recognised.
    pub contact: Bytes,
}

/// One cluster configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct View {
    /// Counts the configurations from 1.
    pub number: u64,
    /// Every member, voting or not.
    pub members: BTreeMap<NodeId, Member>,
    /// The id that the next new member gets.
    pub next_member: u64,
    /// The length of the master lease in this view.
    pub lease: Duration,
}

/// A change of the member set that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Change {
    /// A new member that follows first; made valid when it is in step, unless it is to stay an observer.
    Add {
        /// How to reach it.
        contact: Bytes,
        /// Stays a learner for ever.
        observer: bool,
    },
    /// A learner or a member that was down gets its vote.
    Promote(NodeId),
    /// A member that was not heard loses its vote. All at once, because only together they make the majority smaller.
    Down(BTreeSet<NodeId>),
    /// A member leaves for good.
    Remove(NodeId),
    /// Another length of the master lease.
    Lease(Duration),
}

/// Why a change makes no sense in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// It is already so.
    AlreadyDone,
    /// No such member.
    Unknown,
    /// Nobody would be left to vote.
    LastVoter,
    /// Taking the vote away would not make the majority smaller, or leave fewer than three voters.
    NoGain,
    /// The lease is too short or too long.
    BadLease,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::AlreadyDone => "it is already so",
            Refusal::Unknown => "there is no such member",
            Refusal::LastVoter => "no voter would be left",
            Refusal::NoGain => {
                "the majority would not become smaller, or fewer than three voters would be left"
            }
            Refusal::BadLease => "the lease must lie between 10 ms and 60 s",
        })
    }
}

impl View {
    /// The first view of a new cluster: everybody votes.
    #[must_use]
    pub fn first(members: impl IntoIterator<Item = (NodeId, Bytes)>, lease: Duration) -> View {
        let members: BTreeMap<_, _> = members
            .into_iter()
            .map(|(id, contact)| (id, Member { condition: Condition::Valid, contact }))
            .collect();
        let next_member = members.keys().map(|id| id.0 + 1).max().unwrap_or(1);
        View { number: 1, members, next_member, lease }
    }

    /// The members that vote.
    pub fn voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().filter(|(_, m)| m.condition == Condition::Valid).map(|(id, _)| *id)
    }

    /// Whether `node` votes.
    #[must_use]
    pub fn is_voter(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|m| m.condition == Condition::Valid)
    }

    /// Whether `node` is a member at all.
    #[must_use]
    pub fn is_member(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    /// How many voters make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// Whether `nodes` hold a majority of the voters.
    #[must_use]
    pub fn is_majority(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.voters().filter(|v| nodes.contains(v)).count() >= self.majority()
    }

    /// The members that are sent proposals: all but those that are down.
    pub fn followers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().filter(|(_, m)| m.condition != Condition::Down).map(|(id, _)| *id)
    }

    /// The next view after `change`, or why there is none.
    ///
    /// # Errors
    /// When the change makes no sense in this view.
    pub fn after(&self, change: &Change) -> Result<View, Refusal> {
        let mut next = self.clone();
        next.number += 1;
        match change {
            Change::Add { contact, observer } => {
                if self.members.values().any(|m| m.contact == *contact) {
                    return Err(Refusal::AlreadyDone);
                }
                let condition = if *observer { Condition::Observer } else { Condition::Join };
                next.members.insert(NodeId(next.next_member), Member { condition, contact: contact.clone() });
                next.next_member += 1;
            }
            Change::Promote(node) => {
                let member = next.members.get_mut(node).ok_or(Refusal::Unknown)?;
                if member.condition == Condition::Valid {
                    return Err(Refusal::AlreadyDone);
                }
                member.condition = Condition::Valid;
            }
            Change::Down(nodes) => {
                for node in nodes {
                    let member = next.members.get_mut(node).ok_or(Refusal::Unknown)?;
                    if member.condition != Condition::Valid {
                        return Err(Refusal::AlreadyDone);
                    }
                    member.condition = Condition::Down;
                }
                if next.voters().count() < 3 || next.majority() >= self.majority() {
                    return Err(Refusal::NoGain);
                }
            }
            Change::Remove(node) => {
                next.members.remove(node).ok_or(Refusal::AlreadyDone)?;
                if next.voters().count() == 0 {
                    return Err(Refusal::LastVoter);
                }
            }
            Change::Lease(lease) => {
                if *lease == self.lease {
                    return Err(Refusal::AlreadyDone);
                }
                if *lease < Duration::from_millis(10) || *lease > Duration::from_secs(60) {
                    return Err(Refusal::BadLease);
                }
                next.lease = *lease;
            }
        }
        assert!(next.number == self.number + 1, "V1: a view's number is one higher than the one before it");
        assert!(next.next_member >= self.next_member, "V1: member ids are never given out again");
        Ok(next)
    }
}

/// What a node knows for certain about the configuration: only decided member sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ViewState {
    /// The newest view known to be chosen.
    pub current: Arc<View>,
    /// Whether a `Start` that establishes it is known to be decided. Until then a leader needs a majority of `previous` too.
    pub established: bool,
    /// The view before, while `current` is not established.
    pub previous: Option<Arc<View>>,
}

impl ViewState {
    /// A cluster's first view is established by definition: there is nothing before it to inherit.
    #[must_use]
    pub fn first(view: View) -> ViewState {
        ViewState { current: Arc::new(view), established: true, previous: None }
    }

    /// What a node knows that knows nothing: no members, so nobody to lead or to follow.
    #[must_use]
    pub fn unknown() -> ViewState {
        let nobody =
            View { number: 0, members: BTreeMap::new(), next_member: 1, lease: Duration::from_secs(1) };
        ViewState { current: Arc::new(nobody), established: true, previous: None }
    }

    /// Takes over what `other` knows better. True if that changed anything.
    pub fn learn(&mut self, other: &ViewState) -> bool {
        let known = (self.current.number, self.established);
        if (other.current.number, other.established) <= known {
            return false;
        }
        *self = other.clone();
        if self.established {
            self.previous = None;
        }
        true
    }

    /// `next` was chosen by the voters of the current view. True if that is news.
    pub fn chosen(&mut self, next: &Arc<View>) -> bool {
        if next.number != self.current.number + 1 {
            return false;
        }
        let previous = std::mem::replace(&mut self.current, next.clone());
        self.previous = Some(previous);
        self.established = false;
        true
    }

    /// A `Start` that establishes `view` was decided. True if that is news.
    pub fn establish(&mut self, view: &Arc<View>) -> bool {
        self.learn(&ViewState { current: view.clone(), established: true, previous: None })
    }

    /// Whether `nodes` are enough for phase 1 in the current view: a majority of it and, until it is established, one of
    /// the view before.
    #[must_use]
    pub fn is_phase1_quorum(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.current.is_majority(nodes)
            && (self.established || self.previous.as_ref().is_none_or(|p| p.is_majority(nodes)))
    }

    /// Everyone whose promise may matter for phase 1 in the current view.
    #[must_use]
    pub fn phase1_voters(&self) -> BTreeSet<NodeId> {
        let mut all: BTreeSet<NodeId> = self.current.voters().collect();
        if let (false, Some(previous)) = (self.established, &self.previous) {
            all.extend(previous.voters());
        }
        all
    }
}
