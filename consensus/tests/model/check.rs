//! What must hold in every state.
//!
//! R1: no slot has two chosen values, and no machine got another one. C1: a commander reports exactly what a majority accepted. And a view counts as
//! established only when its start entry is chosen; from then on each of its majorities can tell every chosen value.

use super::search::Report;
use super::state::{Phase, State};
use super::tell::brief;
use super::{Model, SLOTS};
use warlock_consensus::*;

impl Model {
    pub(super) fn check(&mut self, state: &State, report: &mut Report) -> Option<String> {
        let mut chosen = [None; SLOTS];
        let mut is_established = false;
        for ballot in 0..self.ballots.len() {
            let reign = match state.ballots[ballot] {
                Phase::Leading(reign) => Some(reign),
                Phase::Over => None,
                Phase::Idle | Phase::Scouting(_) => continue,
            };
            let majority = &self.majorities[self.ballots[ballot].view as usize - 1];
            let is_majority: [bool; SLOTS] =
                std::array::from_fn(|slot| majority[usize::from(state.accepts[ballot][slot])]);
            for slot in 0..=self.setup.slots as usize {
                let voters = state.accepts[ballot][slot];
                if reign.is_some_and(|reign| self.reports(reign, slot, voters) != is_majority[slot]) {
                    return Some(format!("the commander of index {} miscounts", slot + 1));
                }
                if !is_majority[slot] {
                    continue;
                }
                let value = self.proposed(state, ballot, slot).expect("accepted, so proposed");
                is_established |= self.starts_view(value);
                let known = *chosen[slot].get_or_insert(value);
                if known != value {
                    let is_reconfig = slot == self.setup.slots as usize;
                    let slot = if is_reconfig { "view 2".into() } else { format!("slot {}", slot + 1) };
                    let [one, two] = [known, value].map(|value| brief(&self.values[usize::from(value)]));
                    let ballot = self.ballots[ballot];
                    return Some(format!(
                        "{slot} has two chosen values: {one}, and {two} in ballot {ballot}"
                    ));
                }
            }
            report.chosen[ballot] += usize::from(is_majority.contains(&true));
        }
        let (mut knows_established, mut holds_watermark) = (false, false);
        for node in 0..self.setup.nodes {
            let facts = self.facts(state, node);
            for (slot, value) in facts.applied.iter().enumerate() {
                if chosen[slot] != Some(*value) {
                    let value = brief(&self.values[usize::from(*value)]);
                    return Some(format!("{} applied {value} in slot {}, not chosen", facts.id, slot + 1));
                }
            }
            knows_established |= facts.view == (2, true);
            holds_watermark |= facts.watermark > 0;
        }
        if knows_established && !is_established {
            return Some("a view is taken as established, but its start entry was not chosen".into());
        }
        report.established += usize::from(knows_established);
        report.watermarked += usize::from(holds_watermark);
        if is_established { self.check_nothing_is_lost(state, &chosen) } else { None }
    }

    /// The start entry of view 2 is chosen: every majority of view 2 must be able to tell each chosen value.
    fn check_nothing_is_lost(&self, state: &State, chosen: &[Option<u8>; SLOTS]) -> Option<String> {
        for (set, _) in self.majorities[1].iter().enumerate().filter(|(_, is_majority)| **is_majority) {
            let among = |node: &usize| set & (1 << node) != 0;
            let nodes = || (0..self.setup.nodes).filter(among).map(|node| self.facts(state, node));
            let watermark = nodes().map(|facts| facts.watermark).max().unwrap_or(0) as usize;
            let data = chosen.iter().enumerate().take(self.setup.slots as usize);
            for (slot, value) in data.skip(watermark) {
                let Some(value) = *value else { continue };
                let accepted = nodes().flat_map(|facts| &facts.accepted).filter(|(at, ..)| *at == slot);
                if accepted.max_by_key(|(_, ballot, _)| *ballot).is_none_or(|(.., known)| *known != value) {
                    let who: Vec<NodeId> = nodes().map(|facts| facts.id).collect();
                    let slot = slot + 1;
                    return Some(format!(
                        "view 2 is established, but {who:?} cannot tell what slot {slot} holds"
                    ));
                }
            }
        }
        None
    }

    fn starts_view(&self, value: u8) -> bool {
        matches!(self.values[usize::from(value)].body, Body::Start { establishes: Some(_) })
    }

    fn proposed(&self, state: &State, ballot: usize, slot: usize) -> Option<u8> {
        if let Phase::Leading(reign) = state.ballots[ballot] {
            return self.reigns[usize::from(reign)].values[slot];
        }
        let id = self.ballots[ballot];
        let value =
            state.net.iter().find_map(|packet| match &self.packets[usize::from(*packet)].message {
                Message::P2a { pvalue, .. }
                    if pvalue.ballot == id && self.slot_index(pvalue.slot) == slot =>
                {
                    Some(&pvalue.value)
                }
                _ => None,
            })?;
        self.values.iter().position(|known| known == value).map(|place| place as u8)
    }
}
