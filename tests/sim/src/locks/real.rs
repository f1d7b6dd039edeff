//! The machine that ships, inside the replicated machine of a run: the same commands, rows and waits as in a node.

use bytes::Bytes;
use consensus::CommandId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::ControlFlow;
use storage::machine::{Caller, Event, Machine, Stamp};
use storage::reply::Reply;
use storage::row::{RowKey, RowRange, RowValue};
use storage::store::{MemoryStore, Order, Rows, StoreError};

/// A command's id, as the machine knows it.
#[must_use]
pub fn caller(id: CommandId) -> Caller {
    Caller { node: id.origin.node.0, incarnation: id.origin.incarnation, seq: id.seq }
}

/// What one command of the log said.
#[derive(Clone, Debug)]
pub struct Said {
    /// The only time that it saw.
    pub at_ms: u64,
    /// Who sent it.
    pub caller: Caller,
    /// What it replied.
    pub reply: Reply,
    /// What else it said, in order.
    pub events: Vec<Event>,
}

/// See the module's description. Snapshots are its rows, as in a node.
#[derive(Default, Serialize, Deserialize)]
#[serde(from = "Vec<(Vec<u8>, Vec<u8>)>", into = "Vec<(Vec<u8>, Vec<u8>)>")]
pub struct Real {
    machine: Machine<MemoryStore>,
    said: Vec<Said>,
}

impl Real {
    /// Runs a command of the log.
    pub fn apply(&mut self, stamp: &consensus::Stamp, id: CommandId, payload: &Bytes) -> Bytes {
        let at = Stamp { slot: stamp.slot, index: stamp.index, at_ms: stamp.at_ms };
        let reply = self.machine.apply_for(&at, caller(id), payload);
        let events = self.machine.take_events();
        let bytes = reply.to_bytes();
        self.said.push(Said { at_ms: stamp.at_ms, caller: caller(id), reply, events });
        bytes
    }

    /// The slot is complete: what its commands said.
    pub fn finish_slot(&mut self, slot: u64) -> Vec<Said> {
        self.machine.finish_slot(slot).expect("rows in memory can be written");
        std::mem::take(&mut self.said)
    }

    /// The machine, to be asked what a node asks it.
    #[must_use]
    pub fn machine(&self) -> &Machine<MemoryStore> {
        &self.machine
    }

    fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        let read = self.machine.store().scan(&RowRange::all(), Order::Ascending, &mut |key, value| {
            let mut bytes = Vec::new();
            key.write_to(&mut bytes);
            rows.push((bytes, value.to_vec()));
            ControlFlow::Continue(())
        });
        read.expect("rows in memory can be read");
        rows
    }
}

impl From<Vec<(Vec<u8>, Vec<u8>)>> for Real {
    fn from(rows: Vec<(Vec<u8>, Vec<u8>)>) -> Real {
        let mut real = Real::default();
        let rows = rows.iter().map(|(key, value)| Ok((RowKey::new(key), RowValue::new(value))));
        real.machine.install::<StoreError>(rows).expect("rows of a snapshot can be read");
        real
    }
}

impl From<Real> for Vec<(Vec<u8>, Vec<u8>)> {
    fn from(real: Real) -> Self {
        real.rows()
    }
}

impl Clone for Real {
    fn clone(&self) -> Real {
        Real::from(self.rows())
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.rows() == other.rows()
    }
}

impl Eq for Real {}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Real at slot {}", self.machine.applied())
    }
}
