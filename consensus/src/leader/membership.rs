//! Which members the master hears, and which changes of the member set follow from it.

use crate::config::Config;
use crate::message::Echo;
use crate::types::{NodeId, Time};
use crate::view::{Change, Condition, View};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the master knows of one member.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// When it last answered.
    pub at: Time,
    /// Whether it has answered in this ballot at all.
    pub in_ballot: bool,
    /// Its last answer to a heartbeat.
    pub answer: Option<Echo>,
    /// How far it has applied.
    pub applied: u64,
    /// How far its decisions are durable.
    pub durable: u64,
    /// By how much it lagged when it last told how far it is, behind what the newest heartbeat had announced then. (What was decided since
    /// then is no lag: members tell it once per heartbeat, and thousands of slots may be decided between two.)
    behind: Option<u64>,
}

/// What the master knows of all members.
#[derive(Clone, Debug, Default)]
pub struct Hearing {
    members: BTreeMap<NodeId, Heard>,
}

impl Hearing {
    /// Every member has the benefit of the doubt when a ballot begins.
    #[must_use]
    pub fn new(view: &View, now: Time) -> Hearing {
        let start = Heard { at: now, in_ballot: false, answer: None, applied: 0, durable: 0, behind: None };
        Hearing { members: view.members.keys().map(|id| (*id, start)).collect() }
    }

    /// A member answered a heartbeat.
    pub fn answered(&mut self, node: NodeId, answer: Echo, now: Time) {
        if let Some(heard) = self.members.get_mut(&node) {
            heard.at = heard.at.max(now);
            heard.in_ballot = true;
            heard.answer = heard.answer.max(Some(answer));
        }
    }

    /// A member told how far it is; the newest heartbeat announced `commit`.
    pub fn progressed(&mut self, node: NodeId, applied: u64, durable: u64, commit: u64) {
        if let Some(heard) = self.members.get_mut(&node) {
            heard.applied = heard.applied.max(applied);
            heard.durable = heard.durable.max(durable);
            heard.behind = Some(commit.saturating_sub(heard.applied));
        }
    }

    /// What is known of a member.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<&Heard> {
        self.members.get(&node)
    }

    /// Whether `node` answered within `within` and lagged by at most `slots` when it last told.
    #[must_use]
    pub fn is_in_step(&self, node: NodeId, now: Time, within: Duration, slots: u64) -> bool {
        self.members.get(&node).is_some_and(|heard| {
            let keeps_up = heard.behind.is_some_and(|behind| behind <= slots);
            heard.in_ballot && now.since(heard.at) <= within && keeps_up
        })
    }

    /// The change that the master should make by itself: give a vote to a member that is in step, or take it from those that
    /// were not heard for long, when that makes the majority smaller.
    #[must_use]
    pub fn due_change(&self, view: &View, now: Time, config: &Config) -> Option<Change> {
        let returning = view.members.iter().find(|(id, member)| {
            matches!(member.condition, Condition::Join | Condition::Down)
                && self.is_in_step(**id, now, view.lease, config.in_step)
        });
        if let Some((id, _)) = returning {
            return Some(Change::Promote(*id));
        }
        let is_silent =
            |id: &NodeId| self.members.get(id).is_some_and(|h| now.since(h.at) > config.down_after);
        let silent: BTreeSet<NodeId> = view.voters().filter(is_silent).collect();
        let spare = view.voters().count().saturating_sub(3);
        // As many as the rule allows, and never so many that fewer than three voters are left.
        (1..=silent.len().min(spare)).rev().find_map(|count| {
            let change = Change::Down(silent.iter().take(count).copied().collect());
            view.after(&change).is_ok().then_some(change)
        })
    }
}
