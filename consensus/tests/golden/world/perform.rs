//! What roles want done: records written, messages sent, roles started, values applied, snapshots sent and installed.
//!
//! A role's messages leave only when everything that it asked to persist before is durable (the disk holds them back), and agreement (R1) is
//! checked at every value that any machine is given.

use super::World;
use super::network::Mail;
use crate::disk::Waiting;
use crate::words;
use bytes::Bytes;
use std::sync::Arc;
use warlock_consensus::*;

impl World {
    pub(super) fn perform(&mut self, id: NodeId, role: RoleId, outputs: Outputs) {
        let Outputs { persist, sends, spawns, calls, may_wait: _, retires: _ } = outputs;
        for call in calls {
            self.call(id, call);
        }
        let host = self.host(id);
        if host.disk.is_held || self.is_verbose {
            let unsynced = if self.host(id).disk.is_held { " (not synced)" } else { "" };
            for record in &persist {
                self.log.fact(id, format!("wrote {}{unsynced}", words::record(record)));
            }
        }
        let wrote = !persist.is_empty();
        if let Some(waiting) = self.host(id).disk.append(role, persist, sends, spawns) {
            self.release(id, waiting, wrote);
        }
    }

    pub(super) fn release(&mut self, id: NodeId, waiting: Waiting, wrote: bool) {
        for spawn in waiting.spawns {
            let now = self.now;
            let (role, outputs) = self.process(id).node.spawn(spawn, now);
            self.perform(id, role, outputs);
        }
        let is_acceptor = waiting.role == RoleId::Acceptor;
        for envelope in waiting.sends {
            self.say(id, envelope, wrote && is_acceptor);
        }
    }

    fn say(&mut self, id: NodeId, envelope: Envelope, wrote: bool) {
        let Envelope { from, to, role, message } = envelope;
        let is_within_node = to.nodes() == [id];
        if self.is_verbose || !words::is_routine(&message, is_within_node) {
            let is_answer = matches!(message, Message::P1b(_) | Message::P2b { .. });
            let durable = if wrote && is_answer { " (durable)" } else { "" };
            self.log.say(id, to.nodes(), format!("{}{durable}", words::message(&message)));
        }
        for node in to.nodes() {
            let to = Address { node: *node, role };
            self.queue.push_back(Mail { from, to, message: message.clone() });
        }
    }

    pub(super) fn mail_to_replica(&mut self, id: NodeId, message: Message) {
        let from = Address { node: id, role: RoleId::Host };
        self.queue.push_back(Mail { from, to: Address { node: id, role: RoleId::Replica }, message });
    }

    fn call(&mut self, id: NodeId, call: HostCall) {
        match call {
            HostCall::Apply { slot, value } => self.apply(id, slot, &value),
            HostCall::ReadReady { reads } => {
                for read in reads {
                    let process = self.process(id);
                    let name = process.reads[usize::try_from(read).unwrap()].clone();
                    let seen: Vec<_> =
                        process.machine.0.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
                    let text = format!("answered read {name}: [{}]", seen.join(" "));
                    self.log.fact(id, text);
                }
            }
            HostCall::Abandoned { seq, certain } => {
                let sure = if certain { "certainly did not run" } else { "may have run" };
                self.log.fact(id, format!("command {seq} {sure}"));
            }
            HostCall::SendSnapshot { to, slot, offset } => self.send_snapshot(id, to, slot, offset),
            HostCall::StoreChunk { offset, data, .. } => {
                let fetched = &mut self.process(id).fetched;
                fetched.truncate(usize::try_from(offset).unwrap());
                assert_eq!(fetched.len() as u64, offset, "pieces come without gaps");
                fetched.extend_from_slice(&data);
            }
            HostCall::Install { slot } => self.install(id, slot),
            HostCall::ViewChanged(view) => self.log.fact(id, format!("learned {}", words::view_state(&view))),
            HostCall::Removed => self.log.fact(id, "is removed"),
            HostCall::MayStop => self.log.fact(id, "may stop"),
        }
    }

    fn apply(&mut self, id: NodeId, slot: u64, value: &Arc<Value>) {
        let known = self.chosen.entry(slot).or_insert_with(|| value.clone());
        assert_eq!(known, value, "R1: slot {slot} is decided twice");
        let config = self.config.clone();
        let process = self.process(id);
        let mut outcomes = Vec::new();
        process.ledger.apply(slot, value, &mut process.machine, &config, &mut outcomes);
        let origin = process.node.origin();
        let (mut kinds, mut answered) = (Vec::new(), Vec::new());
        for (command, outcome) in outcomes {
            if command.origin == origin && outcome != Outcome::Skipped {
                answered.extend(process.waiting.remove(&command.seq));
            }
            kinds.push(outcome);
        }
        let message = Message::Applied {
            slot,
            stamp_ms: process.ledger.cluster_ms(),
            executed_below: process.ledger.executed_below(origin),
        };
        self.log.fact(id, format!("applied {slot}:{}", words::applied(value, &kinds)));
        for payload in answered {
            self.log.fact(id, format!("answered {payload}"));
        }
        self.mail_to_replica(id, message);
    }

    fn send_snapshot(&mut self, id: NodeId, to: NodeId, slot: u64, offset: u64) {
        let chunk = self.chunk;
        let Some(snapshot) = &self.host(id).snapshot else { return };
        let (bytes, newest) = (snapshot.bytes(), snapshot.ledger.applied());
        let offset = if newest == slot { usize::try_from(offset).unwrap().min(bytes.len()) } else { 0 };
        let data = bytes.slice(offset..(offset + chunk).min(bytes.len()));
        let total = bytes.len() as u64;
        let message = Message::SnapshotChunk { slot: newest, offset: offset as u64, total, data };
        let from = Address { node: id, role: RoleId::Replica };
        self.say(id, Envelope { from, to: Targets::One(to), role: RoleId::Replica, message }, false);
    }

    fn install(&mut self, id: NodeId, slot: u64) {
        let bytes = Bytes::from(std::mem::take(&mut self.process(id).fetched));
        let Some(snapshot) = self.snapshots.get(&bytes).cloned() else {
            self.log.fact(id, format!("got a damaged snapshot of {slot}"));
            return self.mail_to_replica(id, Message::InstallFailed { slot });
        };
        self.store(id, snapshot.clone());
        self.log.fact(id, format!("installed the snapshot of {slot}"));
        let process = self.process(id);
        let (stamp_ms, view) = (snapshot.ledger.cluster_ms(), snapshot.view());
        let executed_below = snapshot.ledger.executed_below(process.node.origin());
        (process.ledger, process.machine) = (snapshot.ledger, snapshot.machine);
        self.mail_to_replica(id, Message::Installed { slot, stamp_ms, executed_below, view });
    }
}
