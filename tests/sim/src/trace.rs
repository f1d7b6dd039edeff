//! What happened: a hash of every event, to compare two runs, and on demand the last events as text.

use consensus::{Ballot, Message, RoleId, Slot};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Lines of text that outlive a run that panics.
#[derive(Clone, Debug)]
pub struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// How many lines are kept.
    limit: usize,
}

impl Tail {
    /// Keeps the last `limit` lines.
    #[must_use]
    pub fn new(limit: usize) -> Tail {
        Tail { lines: Arc::new(Mutex::new(VecDeque::new())), limit }
    }

    /// Adds a line.
    pub fn push(&self, line: String) {
        if let Ok(mut lines) = self.lines.lock() {
            if lines.len() == self.limit {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    }

    /// The kept lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().map(|lines| lines.iter().cloned().collect()).unwrap_or_default()
    }
}

/// The run's fingerprint and, when wanted, its story.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    tail: Option<Tail>,
}

impl Trace {
    /// With `tail`, events are also written there.
    #[must_use]
    pub fn new(tail: Option<Tail>) -> Trace {
        Trace { hash: 0xCBF2_9CE4_8422_2325, events: 0, tail }
    }

    /// Takes an event into the hash.
    pub fn mix(&mut self, time: u64, what: u64, detail: u64) {
        self.events += 1;
        for word in [time, what, detail] {
            self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
        }
    }

    /// Writes a line, if anybody wants it.
    pub fn note(&self, time: u64, line: impl FnOnce() -> String) {
        if let Some(tail) = &self.tail {
            tail.push(format!("{:>6}.{:06} {}", time / 1_000_000, time % 1_000_000, line()));
        }
    }

    /// The hash of everything so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many events there were.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }
}

fn of_ballot(ballot: &Ballot) -> u64 {
    ballot.view << 48 ^ ballot.round << 8 ^ ballot.leader.0
}

fn of_slot(slot: &Slot) -> u64 {
    match slot {
        Slot::Data(n) => n << 1,
        Slot::Reconfig(v) => (v << 1) | 1,
    }
}

/// A number for a role.
#[must_use]
pub fn of_role(role: RoleId) -> u64 {
    match role {
        RoleId::Replica => 1,
        RoleId::Leader => 2,
        RoleId::Acceptor => 3,
        RoleId::Scout(ballot) => 4 ^ of_ballot(&ballot) << 3,
        RoleId::Commander(ballot, slot) => 5 ^ of_ballot(&ballot) << 3 ^ of_slot(&slot) << 24,
        RoleId::Host => 6,
    }
}

/// A cheap number for a message: its kind and what tells it from its neighbours.
#[must_use]
pub fn of_message(message: &Message) -> u64 {
    let (kind, detail) = match message {
        Message::Probe { ballot } => (1, of_ballot(ballot)),
        Message::ProbeAnswer { ballot, promised, .. } => (2, of_ballot(ballot) ^ of_ballot(promised) << 1),
        Message::P1a { ballot, from_slot, .. } => (3, of_ballot(ballot) ^ from_slot << 20),
        Message::P1b(p1b) => (4, of_ballot(&p1b.promised) ^ p1b.watermark << 20 ^ p1b.accepted.len() as u64),
        Message::Refused { ballot, .. } => (5, of_ballot(ballot)),
        Message::P2a { pvalue, commit, .. } => {
            (6, of_ballot(&pvalue.ballot) ^ of_slot(&pvalue.slot) << 20 ^ commit.slot << 40)
        }
        Message::P2b { promised, slot, .. } => (7, of_ballot(promised) ^ of_slot(slot) << 20),
        Message::Heartbeat(heartbeat) => (8, of_ballot(&heartbeat.ballot) ^ heartbeat.seq << 20),
        Message::HeartbeatAnswer { promised, seq, .. } => (9, of_ballot(promised) ^ seq << 20),
        Message::Release { ballot, successor } => (10, of_ballot(ballot) ^ successor.0),
        Message::Request { commands } => (11, commands.first().map_or(0, |command| command.id.seq)),
        Message::OutOfOrder { expected, .. } => (12, *expected),
        Message::ReadIndex { seq, .. } => (13, *seq),
        Message::ReadIndexAt { slot, seq, .. } => (14, slot << 32 ^ seq),
        Message::Progress { applied, durable, .. } => (15, applied << 32 ^ durable),
        Message::Fetch { from_slot } => (16, *from_slot),
        Message::Log { first, decided, .. } => (17, first << 32 ^ decided),
        Message::SnapshotFetch { slot, offset } => (18, slot << 32 ^ offset),
        Message::SnapshotChunk { slot, offset, .. } => (19, slot << 32 ^ offset),
        Message::ViewIs(view) => (20, view.current.number),
        Message::Decided { pvalue, .. } => (21, of_slot(&pvalue.slot)),
        Message::Decision { slot, .. } => (22, *slot),
        Message::Applied { slot, .. } => (23, *slot),
        _ => (24, 0),
    };
    kind ^ detail.wrapping_mul(0x2545_F491_4F6C_DD1D)
}
