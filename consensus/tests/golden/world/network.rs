//! The network: what is under way, what is held or lost, and how it is delivered.
//!
//! Messages travel in flights: everything under way that may be delivered is delivered in the order in which it was sent; what that
//! causes makes up the next flight.

use super::World;
use crate::words;
use std::collections::{BTreeSet, VecDeque};
use warlock_consensus::*;

/// More flights than this without time passing are an endless conversation.
const FLIGHTS_MAX: usize = 1_000;

pub(super) struct Mail {
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) message: Message,
}

/// Picks messages between nodes. What roles of one node tell each other is picked only by its kind.
#[derive(Clone, Default)]
pub struct Filter {
    pub from: Option<BTreeSet<NodeId>>,
    pub to: Option<BTreeSet<NodeId>>,
    pub kinds: Option<BTreeSet<String>>,
    /// Its wording contains this.
    pub text: Option<String>,
    /// A p2a or p2b of this data slot.
    pub slot: Option<u64>,
    /// Both ends lie among these.
    pub among: Option<BTreeSet<NodeId>>,
    /// One end lies among these, the other does not.
    pub across: Option<BTreeSet<NodeId>>,
}

impl Filter {
    fn picks(&self, mail: &Mail) -> bool {
        let (from, to) = (&mail.from.node, &mail.to.node);
        let is_kind = |kinds: &BTreeSet<String>| kinds.contains(words::kind(&mail.message));
        if self.slot.is_some() && self.slot != words::slot_of(&mail.message) {
            return false;
        }
        if self.text.as_ref().is_some_and(|text| !words::message(&mail.message).contains(text)) {
            return false;
        }
        if from == to {
            return self.kinds.as_ref().is_some_and(is_kind)
                && self.from.as_ref().is_none_or(|set| set.contains(from))
                && self.to.as_ref().is_none_or(|set| set.contains(to));
        }
        self.from.as_ref().is_none_or(|set| set.contains(from))
            && self.to.as_ref().is_none_or(|set| set.contains(to))
            && self.kinds.as_ref().is_none_or(is_kind)
            && self.among.as_ref().is_none_or(|set| set.contains(from) && set.contains(to))
            && self.across.as_ref().is_none_or(|set| set.contains(from) != set.contains(to))
    }
}

impl World {
    pub fn hold(&mut self, filter: Filter) {
        self.held.push(filter);
    }

    pub fn lose(&mut self, filter: Filter) {
        self.lost.push(filter);
    }

    /// The network is whole again, and nothing is held.
    pub fn heal(&mut self) {
        self.held.clear();
        self.lost.clear();
    }

    /// Loses what is under way. Says how much.
    pub fn drop_mail(&mut self, filter: &Filter) {
        let (goes, stays) = std::mem::take(&mut self.queue).into_iter().partition(|mail| filter.picks(mail));
        self.queue = stays;
        self.list("lost", &goes);
    }

    pub fn duplicate(&mut self, filter: &Filter) {
        let copies: VecDeque<Mail> = self
            .queue
            .iter()
            .filter(|mail| filter.picks(mail))
            .map(|mail| Mail { from: mail.from, to: mail.to, message: mail.message.clone() })
            .collect();
        self.list("duplicated", &copies);
        self.queue.extend(copies);
    }

    fn list(&mut self, what: &str, mails: &VecDeque<Mail>) {
        for mail in mails {
            if self.is_verbose || !words::is_routine(&mail.message, mail.from.node == mail.to.node) {
                let text = format!("{} — {what}", words::message(&mail.message));
                self.log.say(mail.from.node, &[mail.to.node], text);
            }
        }
        self.log.end_round();
    }

    /// Delivers what may be delivered and is picked, flight after flight.
    pub fn deliver(&mut self, picked: Option<&Filter>, flights_max: Option<usize>) {
        for _ in 0..flights_max.unwrap_or(FLIGHTS_MAX) {
            let mut flight = Vec::new();
            for mail in std::mem::take(&mut self.queue) {
                if self.lost.iter().any(|filter| filter.picks(&mail)) {
                    continue;
                }
                let is_held = self.held.iter().any(|filter| filter.picks(&mail));
                let is_within_node = mail.from.node == mail.to.node;
                if is_held || picked.is_some_and(|filter| !is_within_node && !filter.picks(&mail)) {
                    self.queue.push_back(mail);
                } else {
                    flight.push(mail);
                }
            }
            if flight.is_empty() {
                return;
            }
            for mail in flight {
                self.receive(mail);
            }
            self.log.end_round();
        }
        assert!(flights_max.is_some(), "the cluster talks without end");
    }

    fn receive(&mut self, mail: Mail) {
        let Mail { from, to, message } = mail;
        let now = self.now;
        let Some(process) = self.hosts.get_mut(&to.node).and_then(|host| host.process.as_mut()) else {
            return;
        };
        if to.role == RoleId::Host {
            return;
        }
        let before = process.node.leader().state_name();
        let adopted = match &message {
            Message::Adopted(adopted) => Some(words::adopted(adopted)),
            Message::Preempted { .. } | Message::ScoutRefused { .. } => {
                self.log.fact(to.node, words::message(&message));
                None
            }
            _ => None,
        };
        let outputs = process.node.deliver(from, to.role, message, now);
        if let Some(text) = adopted
            && process.node.leader().state_name() == "leading"
        {
            self.log.fact(to.node, text);
        }
        self.note_state(to.node, before);
        self.perform(to.node, to.role, outputs);
        self.note_masters();
    }
}
