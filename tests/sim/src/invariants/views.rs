//! V1: one member set per view number, whoever speaks of it.

use super::Verdict;
use consensus::{Change, Condition, View, ViewState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a view came out of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A member was added.
    Add,
    /// A learner got its vote.
    Promote,
    /// A member that was down got its vote back.
    Comeback,
    /// Members lost their votes.
    Down,
    /// A member left.
    Remove,
    /// The lease changed.
    Lease,
}

/// Every chosen view that was spoken of.
#[derive(Debug)]
pub struct Views {
    known: BTreeMap<u64, Arc<View>>,
    newest: Arc<View>,
}

impl Views {
    /// The first view is known from the start.
    #[must_use]
    pub fn new(first: &Arc<View>) -> Views {
        Views { known: BTreeMap::from([(first.number, first.clone())]), newest: first.clone() }
    }

    /// Somebody says what is chosen.
    pub fn seen(&mut self, state: &ViewState, verdict: &mut Verdict) {
        self.is(&state.current, verdict);
        if let Some(previous) = &state.previous {
            self.is(previous, verdict);
        }
    }

    /// This view is chosen.
    pub fn is(&mut self, view: &Arc<View>, verdict: &mut Verdict) {
        if Arc::ptr_eq(view, &self.newest) {
            return;
        }
        if let Some(known) = self.known.get(&view.number) {
            verdict.check(Arc::ptr_eq(known, view) || known == view, || {
                format!("V1: two member sets for view {}:\n  {known:?}\n  {view:?}", view.number)
            });
            return;
        }
        self.known.insert(view.number, view.clone());
        if view.number > self.newest.number {
            self.newest = view.clone();
        }
    }

    /// The view with this number, if anybody spoke of it.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Arc<View>> {
        self.known.get(&number)
    }

    /// The newest one.
    #[must_use]
    pub fn newest(&self) -> &Arc<View> {
        &self.newest
    }

    /// What each change was; complains about two changes at once.
    pub fn kinds(&self, verdict: &mut Verdict) -> Vec<Kind> {
        let pairs = self.known.values().zip(self.known.values().skip(1));
        pairs
            .filter(|(before, after)| after.number == before.number + 1)
            .map(|(before, after)| {
                let (kind, change) = change_between(before, after);
                verdict.check(before.after(&change).as_ref() == Ok(after), || {
                    format!("V1: view {} is not one change away from view {}", after.number, before.number)
                });
                kind
            })
            .collect()
    }
}

fn change_between(before: &View, after: &View) -> (Kind, Change) {
    if let Some((_, member)) = after.members.iter().find(|(id, _)| !before.is_member(**id)) {
        let observer = member.condition == Condition::Observer;
        return (Kind::Add, Change::Add { contact: member.contact.clone(), observer });
    }
    if let Some(id) = before.members.keys().find(|id| !after.is_member(**id)) {
        return (Kind::Remove, Change::Remove(*id));
    }
    if let Some(id) = after.voters().find(|id| !before.is_voter(*id)) {
        let was_down = before.members.get(&id).is_some_and(|m| m.condition == Condition::Down);
        return (if was_down { Kind::Comeback } else { Kind::Promote }, Change::Promote(id));
    }
    let gone: std::collections::BTreeSet<_> = before.voters().filter(|id| !after.is_voter(*id)).collect();
    if !gone.is_empty() {
        return (Kind::Down, Change::Down(gone));
    }
    (Kind::Lease, Change::Lease(after.lease))
}
