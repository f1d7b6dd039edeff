//! A node's disk: a journal with group commit, and snapshots.
//!
//! A record is durable once a sync that began after its append has ended. A crash keeps what is durable and a random prefix of the rest (a
//! torn tail). What a role says waits for everything that this role asked to persist before; other roles do not wait for it.

use crate::rng::Rng;
use bytes::Bytes;
use consensus::{Ballot, Durable, Envelope, Record, RoleId, Spawn};
use std::collections::VecDeque;
use std::time::Duration;

/// Messages and roles that wait until the journal is durable up to `position`.
#[derive(Debug)]
pub struct Waiting {
    /// The journal position, counted from the node's start.
    pub position: u64,
    /// Who wants it.
    pub role: RoleId,
    /// What leaves then.
    pub sends: Vec<Envelope>,
    /// What starts then.
    pub spawns: Vec<Spawn>,
}

/// A snapshot as it lies on the disk.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The slot that it covers.
    pub slot: u64,
    /// Its content.
    pub bytes: Bytes,
}

/// A node's disk.
#[derive(Debug, Default)]
pub struct Disk {
    /// The fold of everything that is durable.
    folded: Durable,
    /// How many records that is on disk.
    records: usize,
    unsynced: Vec<Record>,
    /// Records appended and synced since the node's start.
    appended: u64,
    synced: u64,
    /// The position that the sync under way will have made durable.
    syncing: Option<u64>,
    waiting: VecDeque<Waiting>,
    /// Per long-lived role the position of its last record.
    gates: [u64; 4],
    /// The last position of something that an answer to a heartbeat claims: promise, longest lease, view.
    promise_gate: u64,
    /// The highest promise and the longest lease of all records, durable or not.
    claimed: (Ballot, Duration),
    /// The newest durable snapshot.
    pub snapshot: Option<Stored>,
}

fn gate_of(role: RoleId) -> usize {
    match role {
        RoleId::Replica => 0,
        RoleId::Leader => 1,
        RoleId::Acceptor => 2,
        _ => 3,
    }
}

/// The promise and the lease that a record stands for.
fn claims(record: &Record) -> (Ballot, Duration) {
    match record {
        Record::Promise(ballot) => (*ballot, Duration::ZERO),
        Record::Accept { pvalue, .. } => (pvalue.ballot, Duration::ZERO),
        Record::Lease(lease) => (Ballot::ZERO, *lease),
        _ => (Ballot::ZERO, Duration::ZERO),
    }
}

impl Disk {
    /// A disk that holds these records.
    #[must_use]
    pub fn with(records: Vec<Record>) -> Disk {
        let mut disk = Disk::default();
        disk.replace(records);
        disk
    }

    fn replace(&mut self, records: Vec<Record>) {
        self.records = records.len();
        self.folded = Durable::default();
        for record in records {
            self.folded.apply(record);
        }
        self.claimed = (self.claimed.0.max(self.folded.promise), self.claimed.1.max(self.folded.lease_max));
    }

    /// Appends what a role wants persisted. The position that its messages have to wait for, if they have to.
    pub fn append(&mut self, role: RoleId, records: Vec<Record>) -> Option<u64> {
        let gate = &mut self.gates[gate_of(role)];
        if !records.is_empty() {
            self.appended += records.len() as u64;
            for record in &records {
                let claimed = (self.claimed.0, self.claimed.1);
                let (promise, lease) = claims(record);
                self.claimed = (claimed.0.max(promise), claimed.1.max(lease));
                if self.claimed != claimed || matches!(record, Record::View(_)) {
                    self.promise_gate = self.appended;
                }
            }
            self.unsynced.extend(records);
            *gate = self.appended;
        }
        (*gate > self.synced).then_some(*gate)
    }

    /// Whether all that an answer to a heartbeat claims is durable.
    #[must_use]
    pub fn is_promise_durable(&self) -> bool {
        self.promise_gate <= self.synced
    }

    /// Lets something wait for its position.
    pub fn wait(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Starts a sync, if one is needed and none is under way. True if it started.
    pub fn start_sync(&mut self) -> bool {
        if self.syncing.is_some() || self.appended == self.synced {
            return false;
        }
        self.syncing = Some(self.appended);
        true
    }

    /// The sync has ended: everything appended before it began is durable.
    pub fn end_sync(&mut self) {
        let Some(position) = self.syncing.take() else { return };
        let count = usize::try_from(position - self.synced).unwrap_or(usize::MAX).min(self.unsynced.len());
        for record in self.unsynced.drain(..count) {
            self.folded.apply(record);
        }
        self.records += count;
        self.synced = position;
    }

    /// What need not wait any more, in the order in which it was asked for.
    pub fn released(&mut self) -> Vec<Waiting> {
        let synced = self.synced;
        if self.waiting.iter().all(|waiting| waiting.position <= synced) {
            return self.waiting.drain(..).collect();
        }
        let (goes, stays) = std::mem::take(&mut self.waiting).into_iter().partition(|w| w.position <= synced);
        self.waiting = stays;
        Vec::from(goes)
    }

    /// Whether nothing waits for a sync.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.appended == self.synced
    }

    /// What is durable.
    #[must_use]
    pub fn durable(&self) -> &Durable {
        &self.folded
    }

    /// How many records the journal holds.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records + self.unsynced.len()
    }

    /// A snapshot is durable.
    pub fn store(&mut self, snapshot: Stored) {
        if self.snapshot.as_ref().is_none_or(|known| known.slot < snapshot.slot) {
            self.snapshot = Some(snapshot);
        }
    }

    /// Rewrites the durable part of the journal without what a snapshot up to `slot` covers.
    pub fn compact(&mut self, slot: u64) {
        let mut folded = std::mem::take(&mut self.folded);
        folded.forget_through(slot);
        self.replace(folded.into_records());
    }

    /// The machine stops. A random prefix of what was not synced happens to be on the disk.
    pub fn crash(&mut self, rng: &mut Rng) {
        let kept = usize::try_from(rng.between(0, self.unsynced.len() as u64)).unwrap_or(0);
        for record in self.unsynced.drain(..).take(kept) {
            self.folded.apply(record);
        }
        self.records += kept;
        self.waiting.clear();
        (self.appended, self.synced, self.syncing, self.gates) = (0, 0, None, [0; 4]);
        (self.promise_gate, self.claimed) = (0, (self.folded.promise, self.folded.lease_max));
    }

    /// The disk is lost, and with it everything.
    pub fn wipe(&mut self) {
        *self = Disk::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::NodeId;

    fn ballot(round: u64) -> Ballot {
        Ballot { view: 1, round, leader: NodeId(1) }
    }

    fn waiting(position: u64) -> Waiting {
        Waiting { position, role: RoleId::Acceptor, sends: Vec::new(), spawns: Vec::new() }
    }

    #[test]
    fn a_sync_covers_what_was_appended_before_it_began() {
        let mut disk = Disk::default();
        assert_eq!(disk.append(RoleId::Acceptor, Vec::new()), None);
        assert_eq!(disk.append(RoleId::Acceptor, vec![Record::Promise(ballot(1))]), Some(1));
        assert_eq!(disk.append(RoleId::Leader, Vec::new()), None, "other roles do not wait");
        disk.wait(waiting(1));
        assert!(disk.start_sync());
        assert_eq!(disk.append(RoleId::Acceptor, vec![Record::Promise(ballot(2))]), Some(2));
        assert_eq!(disk.append(RoleId::Acceptor, Vec::new()), Some(2), "the same role waits, in order");
        disk.wait(waiting(2));
        assert!(!disk.start_sync());
        disk.end_sync();
        assert_eq!(disk.released().len(), 1);
        assert_eq!(disk.durable().promise, ballot(1));
        assert!(disk.start_sync());
        disk.end_sync();
        assert_eq!(disk.released().len(), 1);
        assert_eq!(disk.durable().promise, ballot(2));
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest() {
        let mut kept = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut disk = Disk::with(vec![Record::Promise(ballot(1))]);
            let _ = disk.append(RoleId::Acceptor, vec![Record::Round(ballot(2)), Record::Promise(ballot(3))]);
            disk.crash(&mut Rng::new(seed));
            kept.insert((disk.durable().round.round, disk.durable().promise.round));
        }
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(0, 1), (2, 1), (2, 3)]);
    }
}
