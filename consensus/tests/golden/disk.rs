//! A node's disk as the script controls it: either every record is durable at once, or it waits for `sync` and is lost in a crash.

use warlock_consensus::{Durable, Envelope, Record, RoleId, Spawn};

/// What waits until the journal is durable up to `position`.
pub struct Waiting {
    position: usize,
    pub role: RoleId,
    pub sends: Vec<Envelope>,
    pub spawns: Vec<Spawn>,
}

/// A journal, folded as far as it is durable.
pub struct Disk {
    pub durable: Durable,
    /// Records wait for `sync`.
    pub is_held: bool,
    unsynced: Vec<Record>,
    synced: usize,
    /// Per long-lived role the position of its last record: what it says waits for that.
    gates: [usize; 4],
    waiting: Vec<Waiting>,
}

impl Disk {
    pub fn new(durable: Durable) -> Disk {
        Disk { durable, is_held: false, unsynced: Vec::new(), synced: 0, gates: [0; 4], waiting: Vec::new() }
    }

    /// Appends what `role` wants persisted, and gives back what may leave at once.
    pub fn append(
        &mut self,
        role: RoleId,
        records: Vec<Record>,
        sends: Vec<Envelope>,
        spawns: Vec<Spawn>,
    ) -> Option<Waiting> {
        let gate = match role {
            RoleId::Replica => 0,
            RoleId::Leader => 1,
            RoleId::Acceptor => 2,
            _ => 3,
        };
        if !records.is_empty() {
            self.unsynced.extend(records);
            self.gates[gate] = self.synced + self.unsynced.len();
        }
        if !self.is_held {
            let _nothing_waits = self.sync();
        }
        let waiting = Waiting { position: self.gates[gate], role, sends, spawns };
        if waiting.position <= self.synced {
            return Some(waiting);
        }
        self.waiting.push(waiting);
        None
    }

    /// Everything appended is durable; what waited for it may leave.
    pub fn sync(&mut self) -> Vec<Waiting> {
        self.synced += self.unsynced.len();
        self.unsynced.drain(..).for_each(|record| self.durable.apply(record));
        std::mem::take(&mut self.waiting)
    }

    /// The machine stops; the first `kept` unsynced records happen to be on the disk. Says how many are lost.
    pub fn crash(&mut self, kept: usize) -> usize {
        let lost = self.unsynced.len().saturating_sub(kept);
        self.unsynced.drain(..).take(kept).for_each(|record| self.durable.apply(record));
        self.waiting.clear();
        (self.synced, self.gates) = (0, [0; 4]);
        lost
    }

    /// Forgets what a durable snapshot up to `slot` covers.
    pub fn compact(&mut self, slot: u64) {
        let mut durable = std::mem::take(&mut self.durable);
        durable.forget_through(slot);
        durable.into_records().into_iter().for_each(|record| self.durable.apply(record));
    }
}
