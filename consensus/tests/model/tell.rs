//! A search in words: the steps that led to a broken rule, and the sums.

use super::Model;
use super::search::Report;
use super::steps::Action;
use std::fmt::{Debug, Write as _};
use warlock_consensus::*;

impl Model {
    pub(super) fn tell(&self, action: &Action) -> String {
        match action {
            Action::Deliver(packet, node) => {
                let packet = &self.packets[usize::from(*packet)];
                format!("n{} {:?} gets {}", node + 1, packet.role, brief_message(&packet.message))
            }
            Action::Scout(ballot) => format!("{} scouts", self.ballots[*ballot]),
            Action::Adopt(ballot) => format!("{} is adopted and proposes", self.ballots[*ballot]),
            Action::Decide(ballot, slot) => {
                format!("{} hears that index {} is decided", self.ballots[*ballot], slot + 1)
            }
            Action::WriteDown(node) => format!("n{} makes its decisions durable", node + 1),
            Action::CatchUp(node, peer) => format!("n{} catches up from n{}", node + 1, peer + 1),
            Action::Crash(node) => format!("n{} crashes and restarts", node + 1),
        }
    }
}

pub(super) fn brief(value: &Value) -> String {
    let kind = match &value.body {
        Body::Noop => "noop",
        Body::Start { establishes: None } => "start",
        Body::Start { establishes: Some(_) } => "view start",
        Body::Commands(_) => "commands",
        Body::Reconfig(view) => return format!("{:?} of {}", view.members.keys(), value.made_in),
    };
    format!("{kind} of {}", value.made_in)
}

fn brief_message(message: &Message) -> String {
    match message {
        Message::P1a { ballot, .. } => format!("P1a {ballot}"),
        Message::P2a { pvalue: PValue { slot, ballot, value }, commit, .. } => {
            format!("P2a {ballot} slot {slot:?}: {} (commit {})", brief(value), commit.slot)
        }
        Message::Commit { commit } => format!("Commit {} {}", commit.ballot, commit.slot),
        Message::ViewIs(view) => format!("ViewIs {} established {}", view.current.number, view.established),
        other => format!("{other:?}"),
    }
}

impl Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        write!(
            text,
            "{}: {} states, {} steps, depth {}, {} node states; chosen per ballot in {:?} states, view 2 established in {}, watermark in {}",
            self.name,
            self.states,
            self.transitions,
            self.depth,
            self.node_states,
            self.chosen,
            self.established,
            self.watermarked
        )?;
        if !self.complete {
            text.push_str("; not complete");
        }
        f.write_str(&text)
    }
}
