//! Giving decisions and snapshots to a peer that misses them, and getting them from one.
//!
//! Here R5 of the [replica](super) is kept. From whom and when: [`super::catchup`].

use super::Replica;
use super::catchup::Piece;
use crate::message::{Address, Message, RoleId};
use crate::role::{HostCall, Outputs};
use crate::types::{NodeId, Now};
use crate::view::ViewState;
use bytes::Bytes;
use std::time::Duration;

impl Replica {
    pub(super) fn on_fetch(&self, from: NodeId, from_slot: u64) -> Outputs {
        let mut out = Outputs::default();
        if from_slot <= self.floor {
            if self.snapshot >= from_slot {
                out.calls.push(HostCall::SendSnapshot { to: from, slot: 0, offset: 0 });
            }
            return out;
        }
        let (mut values, mut bytes) = (Vec::new(), 0);
        for (_, entry) in self.log.range(from_slot..).take_while(|(slot, _)| **slot <= self.applied) {
            bytes += entry.value.weight();
            if !values.is_empty() && bytes > self.config.page_bytes_max {
                break;
            }
            values.push(entry.value.clone());
        }
        let to = Address { node: from, role: RoleId::Replica };
        out.send(self.me, to, Message::Log { first: from_slot, values, decided: self.applied });
        out
    }

    pub(super) fn on_chunk(
        &mut self,
        from: NodeId,
        slot: u64,
        offset: u64,
        total: u64,
        data: Bytes,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        let length = data.len() as u64;
        let piece =
            self.catch_up.piece(self.handed.max(self.decided), slot, (offset, length, total), from, now.at);
        if piece == Piece::Ignore {
            return out;
        }
        self.catch_up.answered(now.at, self.config.retry);
        out.calls.push(HostCall::StoreChunk { slot, offset, data });
        match piece {
            Piece::Keep { next } => {
                let to = Address { node: from, role: RoleId::Replica };
                out.send(self.me, to, Message::SnapshotFetch { slot, offset: next });
            }
            Piece::Last => {
                self.catch_up.install(slot);
                out.calls.push(HostCall::Install { slot });
            }
            Piece::Ignore => {}
        }
        out
    }

    pub(super) fn on_installed(
        &mut self,
        slot: u64,
        stamp_ms: u64,
        executed_below: u64,
        view: Option<&ViewState>,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        self.catch_up.installed();
        if slot > self.applied {
            self.applied = slot;
            self.handed = slot;
            self.decided = self.decided.max(slot);
            self.note_snapshot(slot, slot, &mut out);
            self.count_decided();
            self.after_apply(stamp_ms, executed_below, now, &mut out);
        }
        if let Some(view) = view {
            self.learn_view(view, &mut out);
        }
        self.advance(now, &mut out);
        out
    }

    pub(super) fn on_snapshot_taken(&mut self, slot: u64) -> Outputs {
        let mut out = Outputs::default();
        if slot > self.snapshot && slot <= self.applied {
            let kept = self.worth_keeping(slot);
            self.note_snapshot(slot, slot - kept, &mut out);
        }
        out
    }

    /// How many of the values up to `slot`, which a snapshot covers, are kept for peers that lag a little.
    fn worth_keeping(&self, slot: u64) -> u64 {
        let least = slot.saturating_sub(self.config.log_keep);
        let values = self.log.range(least + 1..slot + 1).rev();
        let weights = values.scan(0, |sum: &mut usize, (_, entry)| {
            *sum = sum.saturating_add(entry.value.weight());
            Some(*sum)
        });
        weights.take_while(|sum| *sum <= self.config.log_keep_bytes).map(|_| 1).sum()
    }

    pub(super) fn on_catch_up(&mut self, slot: u64, holder: Option<NodeId>, now: Now) -> Outputs {
        self.commit_seen = self.commit_seen.max(slot);
        if self.decided < slot {
            if let Some(holder) = holder {
                self.catch_up.prefer(holder);
                self.catch_up.hurry(now.at);
            }
            self.catch_up.want(now.at, Duration::ZERO);
        }
        let mut out = Outputs::default();
        if self.applied >= slot {
            // The leader has not heard that this is applied.
            out.send(self.me, self.sibling(RoleId::Leader), self.applied_message(0));
        }
        out
    }

    pub(super) fn fetch(&mut self, now: Now, out: &mut Outputs) {
        let (me, master) = (self.me.node, self.master());
        let resumes = self.catch_up.snapshot();
        let view = self.view.current.clone();
        let Some(peer) = self.catch_up.next_peer(me, master, &view, now.at, &self.config) else {
            return;
        };
        let to = Address { node: peer, role: RoleId::Replica };
        let message = match resumes.filter(|_| self.catch_up.snapshot().is_some()) {
            Some((slot, offset)) => Message::SnapshotFetch { slot, offset },
            None => Message::Fetch { from_slot: self.decided + 1 },
        };
        out.send(self.me, to, message);
    }
}
