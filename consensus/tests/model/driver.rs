//! The thin leader: scouts, adopts, proposes, hears decisions and announces them, as `begin_reign`, `commit` and `enter_view` of `leader/reign` do.
//!
//! Scouts and commanders are the real ones. What they hear changes nothing for others until they report, so hearing is part of the report.

use super::setups::Plan;
use super::state::{Packet, Phase, State, mask, members};
use super::{Model, NOW, SLOTS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use warlock_consensus::commander::Commander;
use warlock_consensus::message::Adopted;
use warlock_consensus::planted::Bug;
use warlock_consensus::scout::Scout;
use warlock_consensus::*;

/// What a leader does in one adopted ballot.
pub(super) struct Reign {
    pub(super) phase1_watermark: u64,
    pub(super) commanders: BTreeMap<usize, Commander>,
    /// What is proposed in each slot, interned.
    pub(super) values: [Option<u8>; SLOTS],
    pub(super) packets: Vec<u16>,
}

/// A ballot, what its leader inherits, how far its replica is, and what it knows of the views.
pub(super) type ReignKey = (usize, Adopted, u64, ViewState);

pub(super) type P1bs = Vec<u16>;

impl Model {
    pub(super) fn start_scout(&mut self, state: &mut State, ballot: usize) -> bool {
        let node = self.leader_of(ballot);
        let id = self.ballots[ballot];
        if self.setup.plans[ballot].waits && !self.is_told(state, node, (id.view, true)) {
            return false;
        }
        let known = self.host(state, node).replica.view().clone();
        if known.current.number != id.view || !known.current.is_voter(id.leader) {
            return false; // L3: only of a view that is known to be chosen
        }
        // A leader gives an older attempt of its own up when it makes a new one; and never goes back to an older ballot.
        let later = ballot + 1..self.ballots.len();
        if id.view > 1
            && later.into_iter().any(|b| self.leader_of(b) == node && state.ballots[b] != Phase::Idle)
        {
            return false;
        }
        let p1a = self.p1a_by(ballot, &known);
        state.add(p1a);
        let view = self.intern_view(known);
        state.ballots[ballot] = Phase::Scouting(view);
        true
    }

    /// Some node knows this of the views, and tells this one, as a heartbeat would.
    fn is_told(&mut self, state: &mut State, node: usize, view: (u64, bool)) -> bool {
        let Some(knows) = (0..self.setup.nodes).find(|node| self.facts(state, *node).view == view) else {
            return false;
        };
        let message = Message::ViewIs(self.host(state, knows).replica.view().clone());
        let from = Address { node: NodeId(knows as u64 + 1), role: RoleId::Acceptor };
        let packet = self.intern_packet(Packet { from, to: 1 << node, role: RoleId::Replica, message });
        self.deliver(state, node, packet);
        true
    }

    pub(super) fn p1a(&mut self, ballot: usize) -> u16 {
        let first = ViewState::first((*self.setup.views[0]).clone());
        self.p1a_by(ballot, &first)
    }

    fn p1a_by(&mut self, ballot: usize, known: &ViewState) -> u16 {
        let id = self.ballots[ballot];
        let mut scout = Scout::new(id.leader, self.config.clone(), id, known.clone());
        let sends = scout.start(NOW).sends;
        let to = sends.iter().fold(0, |to, send| to | mask(send.to.nodes()));
        let Envelope { from, role, message, .. } = sends.into_iter().next().expect("a view has voters");
        self.intern_packet(Packet { from, to, role, message })
    }

    pub(super) fn answers(&self, state: &State, ballot: usize) -> P1bs {
        let wanted = self.ballots[ballot];
        let is_answer = |packet: &&u16| matches!(&self.packets[usize::from(**packet)].message, Message::P1b(answer) if answer.ballot == wanted);
        state.net.iter().filter(is_answer).copied().collect()
    }

    /// What the ballot's scout may report: for every order in which it may hear these answers.
    pub(super) fn outcomes(&mut self, state: &State, ballot: usize, answers: &P1bs) -> Vec<Adopted> {
        let Phase::Scouting(view) = state.ballots[ballot] else { return Vec::new() };
        let key = (ballot, view, answers.clone());
        if !self.outcomes.contains_key(&key) {
            let id = self.ballots[ballot];
            let known = self.views[usize::from(view)].clone();
            let mut scout = Scout::new(id.leader, self.config.clone(), id, known);
            let _ = scout.start(NOW);
            let mut found = BTreeSet::new();
            self.hear(&scout, answers, &mut found);
            self.outcomes.insert(key.clone(), found.into_iter().collect());
        }
        self.outcomes[&key].clone()
    }

    fn hear(&self, scout: &Scout, answers: &[u16], found: &mut BTreeSet<Adopted>) {
        for (index, answer) in answers.iter().enumerate() {
            let Packet { from, message, .. } = self.packets[usize::from(*answer)].clone();
            let mut scout = scout.clone();
            let outputs = scout.on_message(from, message, NOW);
            let adopted = outputs.sends.into_iter().find_map(|send| match send.message {
                Message::Adopted(adopted) => Some(*adopted),
                _ => None,
            });
            match adopted {
                Some(adopted) => {
                    // Who holds the watermark, and the clocks, do not matter here.
                    found.insert(Adopted { holder: NodeId(0), clocks: Vec::new(), ..adopted });
                }
                None => {
                    let mut rest = answers.to_vec();
                    rest.remove(index);
                    self.hear(&scout, &rest, found);
                }
            }
        }
    }

    /// The driver's `on_adopted` and `begin_reign`.
    pub(super) fn adopt(&mut self, state: &mut State, ballot: usize, adopted: Adopted) -> bool {
        let replica = &self.host(state, self.leader_of(ballot)).replica;
        let (applied, mut known) = (replica.applied(), replica.view().clone());
        known.learn(&adopted.view);
        let id = self.ballots[ballot];
        if known.current.number != id.view {
            return false; // a newer view was chosen meanwhile
        }
        let key = (ballot, adopted, applied, known);
        let reign = match self.reign_ids.get(&key) {
            Some(reign) => *reign,
            None => {
                let reign = self.begin_reign(&key);
                self.reigns.push(reign);
                let number = u16::try_from(self.reigns.len() - 1).expect("few reigns");
                self.reign_ids.insert(key, number);
                number
            }
        };
        state.ballots[ballot] = Phase::Leading(reign);
        for answer in self.answers(state, ballot) {
            state.net.retain(|packet| *packet != answer);
        }
        for packet in &self.reigns[usize::from(reign)].packets {
            state.add(*packet);
        }
        true
    }

    fn begin_reign(&mut self, (ballot, adopted, applied, known): &ReignKey) -> Reign {
        let (id, plan) = (self.ballots[*ballot], self.setup.plans[*ballot].clone());
        let mut phase1_watermark = adopted.watermark;
        if self.config.has_bug(Bug::ProposeBelowWatermark) {
            phase1_watermark = adopted.watermark.min(*applied);
        }
        let last = adopted.accepted.last_key_value().map_or(adopted.watermark, |(slot, _)| *slot);
        let make = |body| Arc::new(Value { made_in: id, stamp_ms: 0, body });
        let mut proposals: Vec<(Slot, Arc<Value>)> = Vec::new();
        for slot in phase1_watermark + 1..=last {
            let value = adopted.accepted.get(&slot).map(|pvalue| pvalue.value.clone());
            proposals.push((Slot::Data(slot), value.unwrap_or_else(|| make(Body::Noop))));
        }
        for slot in last + 1..=last + plan.own {
            let body = match slot == last + 1 {
                true => Body::Start { establishes: (!known.established).then(|| known.current.clone()) },
                false => Body::Commands(Vec::new()),
            };
            proposals.push((Slot::Data(slot), make(body)));
        }
        let inherited = adopted.reconfig.clone().filter(|_| !self.config.has_bug(Bug::ReconfigForgotten));
        match (inherited, &plan.reconfigures) {
            (Some(pvalue), _) => proposals.push((pvalue.slot, pvalue.value)),
            (None, Some(next)) => {
                proposals.push((Slot::Reconfig(next.number), make(Body::Reconfig(next.clone()))));
            }
            (None, None) => {}
        }
        let mut reign = Reign {
            phase1_watermark,
            commanders: BTreeMap::new(),
            values: [None; SLOTS],
            packets: Vec::new(),
        };
        let targets: Arc<[NodeId]> = known.current.followers().collect();
        let commit = self.commit(*ballot, phase1_watermark, *applied);
        for (slot, value) in proposals {
            if matches!(slot, Slot::Data(number) if number > self.setup.slots) {
                continue;
            }
            let pvalue = PValue { slot, ballot: id, value: value.clone() };
            let (view, to) = (known.current.clone(), (targets.clone(), Arc::default()));
            let mut commander = Commander::new(id.leader, self.config.clone(), pvalue, view, to, commit);
            for Envelope { from, to, role, message } in commander.start(NOW).sends {
                let to = mask(to.nodes());
                reign.packets.push(self.intern_packet(Packet { from, to, role, message }));
            }
            let index = self.slot_index(slot);
            reign.commanders.insert(index, commander);
            reign.values[index] = Some(self.intern_value(&value));
        }
        reign
    }

    /// Whether a commander may tell its leader now that a majority accepted.
    pub(super) fn is_news(&mut self, state: &State, ballot: usize, reign: u16, slot: usize) -> bool {
        let is_reconfig = slot == self.setup.slots as usize;
        state.decided[ballot] & (1 << slot) == 0
            && (is_reconfig || (self.setup.decisions && self.setup.plans[ballot].announces))
            && self.reports(reign, slot, state.accepts[ballot][slot])
    }

    /// The driver's `on_decided`.
    pub(super) fn decide(&mut self, state: &mut State, ballot: usize, reign: u16, slot: usize) {
        state.decided[ballot] |= 1 << slot;
        let node = self.leader_of(ballot);
        let value = self.reigns[usize::from(reign)].values[slot].expect("decided, so proposed");
        let value = self.values[usize::from(value)].clone();
        let id = self.ballots[ballot];
        let from = Address { node: id.leader, role: RoleId::Leader };
        let to = mask(&[id.leader]);
        let Body::Reconfig(next) = &value.body else {
            let message = Message::Decision { slot: slot as u64 + 1, value };
            let decision = self.intern_packet(Packet { from, to, role: RoleId::Replica, message });
            self.deliver(state, node, decision);
            return;
        };
        let mut known = self.host(state, node).replica.view().clone();
        if known.chosen(next) {
            // `enter_view`: it tells its siblings and, as its heartbeats would, those that may lead in the new view.
            let message = Message::ViewIs(known);
            for role in [RoleId::Replica, RoleId::Acceptor] {
                let news = self.intern_packet(Packet { from, to, role, message: message.clone() });
                self.deliver(state, node, news);
            }
            let leads = |plan: &&Plan| plan.view == next.number && plan.node != id.leader.0;
            let heirs: Vec<NodeId> =
                self.setup.plans.iter().filter(leads).map(|plan| NodeId(plan.node)).collect();
            if !heirs.is_empty() {
                let to = mask(&heirs);
                let news = self.intern_packet(Packet { from, to, role: RoleId::Replica, message });
                state.add(news);
            }
        }
    }

    /// Whether the commander of this slot reports a decision when these acceptors have answered.
    pub(super) fn reports(&mut self, reign: u16, slot: usize, voters: u8) -> bool {
        let Some(commander) = self.reigns[usize::from(reign)].commanders.get(&slot) else { return false };
        let key = u64::from(reign) << 16 | (slot as u64) << 8 | u64::from(voters);
        *self.reports.entry(key).or_insert_with(|| {
            let mut commander = commander.clone();
            let (ballot, slot) = (commander.ballot(), commander.slot());
            let mut reported = false;
            for node in members(voters) {
                let from = Address { node, role: RoleId::Acceptor };
                let answer = Message::P2b { ballot, slot, promised: ballot, sent_at: NOW.at, granted: true };
                let sends = commander.on_message(from, answer, NOW).sends;
                reported |= sends.iter().any(|send| matches!(send.message, Message::Decided { .. }));
            }
            reported
        })
    }

    /// The driver's `commit`.
    fn commit(&self, ballot: usize, decided_through: u64, applied: u64) -> Watermark {
        let slot = match self.config.has_bug(Bug::WatermarkOverreach) {
            true => applied,
            false => applied.min(decided_through),
        };
        Watermark { ballot: self.ballots[ballot], slot }
    }

    /// Whatever a leader of this node may announce, it announces.
    pub(super) fn announce(&mut self, state: &mut State, node: usize) {
        if !self.setup.decisions {
            return;
        }
        for ballot in 0..self.ballots.len() {
            let Phase::Leading(reign) = state.ballots[ballot] else { continue };
            if self.leader_of(ballot) != node {
                continue;
            }
            let applied = self.facts(state, node).applied.len() as u64;
            let mut through = self.reigns[usize::from(reign)].phase1_watermark;
            while through < self.setup.slots && state.decided[ballot] & (1 << through) != 0 {
                through += 1;
            }
            let commit = self.commit(ballot, through, applied);
            if commit.slot == 0 {
                continue;
            }
            let key = (ballot as u64) << 32 | commit.slot;
            let packet = self.commits.get(&key).copied().unwrap_or_else(|| {
                let id = self.ballots[ballot];
                let from = Address { node: id.leader, role: RoleId::Leader };
                let view = &self.setup.views[id.view as usize - 1];
                let to = mask(&view.followers().collect::<Vec<_>>()) & self.setup.hearers;
                let (role, message) = (RoleId::Acceptor, Message::Commit { commit });
                let packet = self.intern_packet(Packet { from, to, role, message });
                self.commits.insert(key, packet);
                packet
            });
            state.add(packet);
        }
    }
}
