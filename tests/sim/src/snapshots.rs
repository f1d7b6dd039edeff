//! Snapshots: taken now and then, sent to peers in pieces, loaded when all pieces are there.

use crate::disk::Stored;
use crate::history::State;
use crate::host::Snapshot;
use crate::network::Parcel;
use crate::swarm::MS;
use crate::world::{Event, World};
use bytes::Bytes;
use consensus::planted::Bug;
use consensus::{Address, CommandId, Message, NodeId, RoleId};

impl World {
    pub(crate) fn begin_snapshot(&mut self, id: NodeId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        let (life, stalled) = (host.life, host.stalled_until.saturating_sub(self.now));
        let Some(process) = host.process.as_mut() else { return };
        let slot = process.ledger.applied();
        if process.writing.is_some() || slot < process.snapshot_slot + self.swarm.snapshot_every {
            return;
        }
        process.snapshot_slot = slot;
        let snapshot = Snapshot { ledger: process.ledger.clone(), machine: process.machine.clone() };
        let bytes = postcard::to_allocvec(&snapshot).expect("a snapshot can be encoded");
        process.writing = Some(Stored { slot, bytes: Bytes::from(bytes) });
        if self.config.has_bug(Bug::CompactBeforeSnapshot) {
            host.disk.compact(slot);
        }
        let delay = self.rng.between(MS, self.swarm.snapshot_time);
        self.at(delay.max(stalled), Event::SnapshotWritten(id, life));
    }

    pub(crate) fn snapshot_written(&mut self, id: NodeId, life: u64) {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.life == life) else { return };
        let Some(stored) = host.process.as_mut().and_then(|process| process.writing.take()) else { return };
        let slot = stored.slot;
        self.trace.mix(self.now, id.0, slot << 8 | 0x5A);
        self.trace.note(self.now, || format!("{id} has a durable snapshot of {slot}"));
        self.stats.snapshots += 1;
        host.store(stored);
        host.disk.compact(slot);
        self.mail(id, 0, Message::SnapshotTaken { slot });
    }

    pub(crate) fn send_snapshot(&mut self, id: NodeId, to: NodeId, slot: u64, offset: u64) {
        let Some(host) = self.hosts.get(&id) else { return };
        let stored = [&host.disk.snapshot, &host.older].into_iter().flatten().collect::<Vec<_>>();
        let asked = stored.iter().find(|stored| stored.slot == slot);
        let (stored, offset) = match (asked, stored.first()) {
            (Some(stored), _) => (*stored, offset),
            (None, Some(newest)) => (*newest, 0),
            (None, None) => return,
        };
        let total = stored.bytes.len();
        let start = usize::try_from(offset).unwrap_or(total).min(total);
        let data = stored.bytes.slice(start..(start + self.swarm.chunk).min(total));
        let from = Address { node: id, role: RoleId::Replica };
        let message =
            Message::SnapshotChunk { slot: stored.slot, offset: start as u64, total: total as u64, data };
        self.send(Parcel { from, to, role: RoleId::Replica, message });
    }

    pub(crate) fn store_chunk(&mut self, id: NodeId, slot: u64, offset: u64, data: &Bytes) {
        let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        if offset == 0 {
            process.fetched = (slot, Vec::new());
        }
        let (fetching, bytes) = &mut process.fetched;
        let fits = *fetching == slot && bytes.len() as u64 == offset;
        self.observer.verdict.check(fits, || {
            format!(
                "snapshot: {id} stores a piece of {slot} at {offset}, but has {} of {fetching}",
                bytes.len()
            )
        });
        bytes.extend_from_slice(data);
    }

    /// A fetched snapshot is durable: load it and tell the replica.
    pub(crate) fn installed(&mut self, id: NodeId, life: u64, slot: u64) {
        let is_damaged = self.healed_at.is_none() && self.rng.chance(50_000);
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.life == life) else { return };
        let Some(process) = host.process.as_mut() else { return };
        let bytes = Bytes::from(std::mem::take(&mut process.fetched.1));
        let decoded = postcard::from_bytes::<Snapshot>(&bytes).ok().filter(|_| !is_damaged);
        let Some(snapshot) = decoded else {
            self.observer
                .verdict
                .check(is_damaged, || format!("snapshot: {id} got a damaged copy of {slot}"));
            self.mail(id, 0, Message::InstallFailed { slot });
            return;
        };
        self.trace.mix(self.now, id.0, slot << 8 | 0x1A);
        self.trace.note(self.now, || format!("{id} installs the snapshot of {slot}"));
        self.stats.installs += 1;
        host.store(Stored { slot, bytes });
        host.disk.compact(slot);
        let Some(process) = host.process.as_mut() else { return };
        let view = snapshot.view();
        if process.ledger.applied() < slot {
            self.observer.time.stepped(
                id,
                process.ledger.cluster_ms(),
                snapshot.ledger.cluster_ms(),
                &mut self.observer.verdict,
            );
            process.ledger = snapshot.ledger;
            process.machine = snapshot.machine;
            process.snapshot_slot = process.snapshot_slot.max(slot);
        }
        self.observer.acknowledged.compare(id, &process.ledger, &process.machine, &mut self.observer.verdict);
        let executed_below = process.ledger.executed_below(process.node.origin());
        let stamp_ms = process.ledger.cluster_ms();
        self.answer_from_ledger(id, executed_below);
        self.give_up_missed(id);
        self.mail(id, 0, Message::Installed { slot, stamp_ms, executed_below, view });
    }

    /// Clients whose commands ran in slots that this node skipped are told what the ledger remembers.
    fn answer_from_ledger(&mut self, id: NodeId, executed_below: u64) {
        let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        let ran: Vec<u64> = process.waiting.range(..executed_below).map(|(seq, _)| *seq).collect();
        let origin = process.node.origin();
        for seq in ran {
            let command = CommandId { origin, seq };
            let Some(process) = self.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else {
                return;
            };
            match process.ledger.reply(command).cloned() {
                Some(reply) => self.executed(id, command, &reply, true, None),
                None => {
                    if let Some(operation) = process.waiting.remove(&seq) {
                        self.given_up(operation, State::Unknown);
                    }
                }
            }
        }
    }
}
