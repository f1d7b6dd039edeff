//! A2: one value per ballot and slot. R1, C1, L1: what a majority accepted in a ballot is chosen, and stays chosen: no higher ballot
//! proposes anything else for that slot, and only chosen values are applied. What a leader announces as decided are its own proposals, each of them chosen.
//!
//! The observer counts the votes that acceptors said (so their values are durable) among the voters of the ballot's view.

use super::Verdict;
use super::views::Views;
use consensus::{Ballot, Body, NodeId, PValue, Slot, Value, Watermark};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
struct Proposal {
    ballot: Ballot,
    value: Arc<Value>,
    votes: BTreeSet<NodeId>,
}

#[derive(Debug, Default)]
struct Place {
    proposals: Vec<Proposal>,
    chosen: Option<(Ballot, Arc<Value>)>,
}

/// Every proposal, every vote, and what was chosen.
#[derive(Debug, Default)]
pub struct Chosen {
    places: BTreeMap<Slot, Place>,
    forgotten: u64,
    slots: u64,
    /// The newest view whose start entry is chosen; the first needs none.
    established: u64,
    /// How far the leader of each ballot announced its proposals as decided.
    announced: BTreeMap<Ballot, u64>,
}

fn same(a: &Arc<Value>, b: &Arc<Value>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

impl Chosen {
    /// A commander asks acceptors to accept this.
    pub fn proposed(&mut self, pvalue: &PValue, views: &mut Views, verdict: &mut Verdict) {
        let PValue { slot, ballot, value } = pvalue;
        if self.is_forgotten(*slot) {
            return;
        }
        let place = self.places.entry(*slot).or_default();
        if let Some(known) = place.proposals.iter().rev().find(|p| p.ballot == *ballot) {
            verdict.check(same(&known.value, value), || {
                format!("A2: two values for {slot:?} in {ballot}:\n  {:?}\n  {value:?}", known.value)
            });
            return;
        }
        if let Slot::Data(number) = slot {
            let announced = self.announced.get(ballot).copied().unwrap_or_default();
            verdict.check(*number > announced, || {
                format!("L1: {ballot} proposes {slot:?}, but it has announced all up to {announced}")
            });
        }
        if let Slot::Reconfig(number) = slot {
            verdict.check(*number <= self.established.max(1) + 1, || {
                format!(
                    "V1: {ballot} proposes view {number}, but only view {} is established",
                    self.established
                )
            });
        }
        if let Some((chosen_in, chosen)) = &place.chosen {
            verdict.check(ballot < chosen_in || same(chosen, value), || {
                format!(
                    "L1: {slot:?} was chosen in {chosen_in}, and {ballot} proposes something else:\n  {chosen:?}\n  {value:?}"
                )
            });
        }
        verdict
            .check(value.made_in <= *ballot, || format!("L1: {slot:?} was made after {ballot}: {value:?}"));
        place.proposals.push(Proposal { ballot: *ballot, value: value.clone(), votes: BTreeSet::new() });
        let _ = views;
    }

    /// An acceptor says that it accepted.
    pub fn voted(
        &mut self,
        node: NodeId,
        ballot: Ballot,
        slot: Slot,
        views: &mut Views,
        verdict: &mut Verdict,
    ) {
        if self.is_forgotten(slot) {
            return;
        }
        let place = self.places.entry(slot).or_default();
        let Some(proposal) = place.proposals.iter_mut().rev().find(|p| p.ballot == ballot) else {
            verdict.fail(|| format!("A2: {node} accepted {slot:?} in {ballot}, which nobody proposed"));
            return;
        };
        if proposal.votes.insert(node) {
            self.count(slot, ballot, views, verdict);
        }
    }

    /// Whether this proposal establishes the view of its ballot.
    #[must_use]
    pub fn starts_view(&self, ballot: Ballot, slot: Slot) -> bool {
        let proposals = self.places.get(&slot).map(|place| place.proposals.as_slice()).unwrap_or_default();
        proposals.iter().rev().find(|p| p.ballot == ballot).is_some_and(|p| {
            matches!(&p.value.body, Body::Start { establishes: Some(view) } if view.number == ballot.view)
        })
    }

    fn count(&mut self, slot: Slot, ballot: Ballot, views: &mut Views, verdict: &mut Verdict) {
        let Some(place) = self.places.get_mut(&slot) else { return };
        let Some(proposal) = place.proposals.iter().find(|p| p.ballot == ballot) else { return };
        if !views.get(ballot.view).is_some_and(|view| view.is_majority(&proposal.votes)) {
            return;
        }
        let value = proposal.value.clone();
        match &value.body {
            Body::Reconfig(view) => views.is(view, verdict),
            Body::Start { establishes: Some(view) } => self.established = self.established.max(view.number),
            _ => {}
        }
        for other in place.proposals.iter().filter(|p| p.ballot > ballot) {
            verdict.check(same(&other.value, &value), || {
                format!(
                    "L1: {slot:?} is chosen in {ballot}, but {} proposed something else:\n  {value:?}\n  {:?}",
                    other.ballot, other.value
                )
            });
        }
        match &place.chosen {
            Some((earlier, chosen)) => verdict.check(same(chosen, &value), || {
                format!("R1: {slot:?} is chosen twice, in {earlier} and {ballot}:\n  {chosen:?}\n  {value:?}")
            }),
            None => self.slots += 1,
        }
        let place_chosen = place.chosen.get_or_insert((ballot, value.clone()));
        if ballot < place_chosen.0 {
            *place_chosen = (ballot, value);
        }
    }

    /// A leader announces its proposals as decided. Whoever accepted one of them in that very ballot takes it as decided, so each must be what was chosen.
    pub fn announced(&mut self, commit: Watermark, views: &mut Views, verdict: &mut Verdict) {
        let Watermark { ballot, slot } = commit;
        let before = self.announced.get(&ballot).copied().unwrap_or_default().max(self.forgotten);
        if slot <= before {
            return;
        }
        self.announced.insert(ballot, slot);
        let proposed_here = |place: &&Place| place.proposals.iter().any(|p| p.ballot == ballot);
        let slots: Vec<Slot> = self
            .places
            .range(Slot::Data(before + 1)..=Slot::Data(slot))
            .filter_map(|(slot, place)| proposed_here(&place).then_some(*slot))
            .collect();
        for slot in slots {
            self.count(slot, ballot, views, verdict);
            let Some(place) = self.places.get(&slot) else { continue };
            let Some(proposal) = place.proposals.iter().find(|p| p.ballot == ballot) else { continue };
            let is_chosen = place.chosen.as_ref().is_some_and(|(_, chosen)| same(chosen, &proposal.value));
            verdict.check(is_chosen, || {
                format!(
                    "R1: {ballot} announces its proposal for {slot:?} as decided:\n  {:?}\n  chosen is {:?}",
                    proposal.value, place.chosen
                )
            });
        }
    }

    /// A node applies this, so it must have been chosen.
    pub fn applied(
        &mut self,
        node: NodeId,
        slot: u64,
        value: &Arc<Value>,
        views: &mut Views,
        verdict: &mut Verdict,
    ) {
        let slot = Slot::Data(slot);
        if self.is_forgotten(slot) {
            return;
        }
        if self.places.get(&slot).is_none_or(|place| place.chosen.is_none()) {
            let ballots: Vec<Ballot> =
                self.places.get(&slot).iter().flat_map(|p| p.proposals.iter().map(|p| p.ballot)).collect();
            for ballot in ballots {
                self.count(slot, ballot, views, verdict);
            }
        }
        let chosen = self.places.get(&slot).and_then(|place| place.chosen.as_ref());
        match chosen {
            None => verdict.fail(|| format!("C1: {node} applies {slot:?}, which no majority accepted: {value:?}")),
            Some((ballot, chosen)) => verdict.check(same(chosen, value), || {
                format!("R1: {node} applies {slot:?} otherwise than chosen in {ballot}:\n  {chosen:?}\n  {value:?}")
            }),
        }
    }

    /// How many slots were chosen.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Forgets earlier data slots.
    pub fn forget_below(&mut self, slot: Slot) {
        if let Slot::Data(n) = slot {
            self.places.retain(|place, _| matches!(place, Slot::Reconfig(_)) || *place >= slot);
            self.forgotten = n;
        }
    }

    fn is_forgotten(&self, slot: Slot) -> bool {
        matches!(slot, Slot::Data(n) if n < self.forgotten)
    }
}
