//! The replicated machine of the runs: a few registers and one lock with a token and a time to live; in runs about locks, the machine that ships, too.
//!
//! A register holds one number. What an append leaves depends on the order of appends, so a lost or doubled command shows in every
//! later answer. The machine watches over its own exactly-once rule (E1), apart from the ledger that is under test.

use crate::locks::ask::Ask;
use crate::locks::real::{Real, Said};
use bytes::Bytes;
use consensus::{CommandId, Machine, NodeId, Stamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a client may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Sets a register.
    Put(u64),
    /// Sets a register to the second number if it holds the first; answers whether it did.
    CompareAndSet(u64, u64),
    /// Adds one; answers the new number.
    Increment,
    /// Mixes a number in; answers the new number.
    Append(u64),
    /// Reads; never goes through the log.
    Get,
    /// Takes the lock for so many milliseconds of cluster time; answers the token, or 0 if it is taken.
    Acquire(u64),
    /// Gives the lock with this token back; answers whether it was held.
    Release(u64),
    /// Something for the machine that ships.
    Lock(Ask),
}

/// What an append leaves in a register.
#[must_use]
pub fn mix(held: u64, with: u64) -> u64 {
    (held ^ with).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_add(with)
}

/// The first byte of what goes to the machine that ships.
const REAL: u8 = 7;

/// A command of the machine that ships, as a payload.
#[must_use]
pub fn wrap(payload: &Bytes) -> Bytes {
    [&[REAL], &payload[..]].concat().into()
}

/// The payload of a command.
#[must_use]
pub fn encode(key: u16, request: Request) -> Bytes {
    let (kind, a, b) = match request {
        Request::Lock(ask) => return wrap(&ask.payload()),
        Request::Put(value) => (0_u8, value, 0),
        Request::CompareAndSet(expected, value) => (1, expected, value),
        Request::Increment => (2, 0, 0),
        Request::Append(value) => (3, value, 0),
        Request::Get => (4, 0, 0),
        Request::Acquire(ttl_ms) => (5, ttl_ms, 0),
        Request::Release(token) => (6, token, 0),
    };
    let mut bytes = [0_u8; 19];
    bytes[0] = kind;
    bytes[1..3].copy_from_slice(&key.to_le_bytes());
    bytes[3..11].copy_from_slice(&a.to_le_bytes());
    bytes[11..19].copy_from_slice(&b.to_le_bytes());
    Bytes::copy_from_slice(&bytes)
}

fn number(bytes: &[u8]) -> u64 {
    let mut eight = [0_u8; 8];
    let length = bytes.len().min(8);
    eight[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(eight)
}

/// The number in a reply.
#[must_use]
pub fn answer(reply: &Bytes) -> u64 {
    number(reply)
}

/// A held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    token: u64,
    until_ms: u64,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    registers: BTreeMap<u16, u64>,
    lock: Option<Held>,
    token: u64,
    /// Per node its incarnation and the last number that ran.
    ran: BTreeMap<NodeId, (u64, u64)>,
    /// The machine that ships, in runs about locks.
    pub real: Option<Real>,
    /// The first broken rule, if any. Not part of the replicated state.
    #[serde(skip)]
    pub broken: Option<String>,
}

impl Registers {
    /// A new machine; `has_locks`: with the one that ships inside.
    #[must_use]
    pub fn new(has_locks: bool) -> Registers {
        Registers { real: has_locks.then(Real::default), ..Registers::default() }
    }

    /// The slot is complete: what commands of the machine that ships said in it.
    pub fn finish_slot(&mut self, slot: u64) -> Vec<Said> {
        self.real.as_mut().map_or_else(Vec::new, |real| real.finish_slot(slot))
    }

    /// What a register holds; 0 if it was never set.
    #[must_use]
    pub fn get(&self, key: u16) -> u64 {
        self.registers.get(&key).copied().unwrap_or(0)
    }

    /// The last token given out.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    fn watch(&mut self, id: CommandId) {
        let (life, last) = self.ran.get(&id.origin.node).copied().unwrap_or((0, 0));
        let now = (id.origin.incarnation, id.seq);
        if now <= (life, last) && self.broken.is_none() {
            self.broken = Some(format!("E1: {id:?} ran after number {last} of life {life}"));
        }
        self.ran.insert(id.origin.node, now.max((life, last)));
    }

    fn run(&mut self, at_ms: u64, payload: &Bytes) -> u64 {
        let (Some(kind), Some(key)) = (payload.first(), payload.get(1..3)) else { return 0 };
        let key = u16::from_le_bytes([key[0], key[1]]);
        let a = number(payload.get(3..11).unwrap_or(&[]));
        let b = number(payload.get(11..19).unwrap_or(&[]));
        match kind {
            0 => {
                self.registers.insert(key, a);
                1
            }
            1 => {
                let held = self.registers.entry(key).or_insert(0);
                let fits = *held == a;
                if fits {
                    *held = b;
                }
                u64::from(fits)
            }
            2 => {
                let held = self.registers.entry(key).or_insert(0);
                *held = held.wrapping_add(1);
                *held
            }
            3 => {
                let held = self.registers.entry(key).or_insert(0);
                *held = mix(*held, a);
                *held
            }
            5 => {
                if self.lock.is_some_and(|held| at_ms < held.until_ms) {
                    return 0;
                }
                self.token += 1;
                self.lock = Some(Held { token: self.token, until_ms: at_ms + a });
                self.token
            }
            6 => {
                let held = self.lock.is_some_and(|held| held.token == a && at_ms < held.until_ms);
                if held {
                    self.lock = None;
                }
                u64::from(held)
            }
            _ => 0,
        }
    }
}

impl Machine for Registers {
    fn apply(&mut self, stamp: &Stamp, id: CommandId, payload: &Bytes) -> Bytes {
        self.watch(id);
        if let (Some((&REAL, rest)), Some(real)) = (payload.split_first(), &mut self.real) {
            return real.apply(stamp, id, &payload.slice_ref(rest));
        }
        Bytes::copy_from_slice(&self.run(stamp.at_ms, payload).to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::Origin;

    fn apply(machine: &mut Registers, seq: u64, at_ms: u64, request: Request) -> u64 {
        let id = CommandId { origin: Origin { node: NodeId(1), incarnation: 1 }, seq };
        let stamp = Stamp { slot: seq, index: 0, at_ms };
        answer(&machine.apply(&stamp, id, &encode(3, request)))
    }

    #[test]
    fn registers_and_the_lock_behave() {
        let mut machine = Registers::default();
        assert_eq!(apply(&mut machine, 1, 10, Request::Put(5)), 1);
        assert_eq!(apply(&mut machine, 2, 10, Request::Increment), 6);
        assert_eq!(apply(&mut machine, 3, 10, Request::CompareAndSet(5, 9)), 0);
        assert_eq!(apply(&mut machine, 4, 10, Request::CompareAndSet(6, 9)), 1);
        assert_eq!(apply(&mut machine, 5, 10, Request::Append(4)), mix(9, 4));
        assert_eq!(apply(&mut machine, 6, 10, Request::Acquire(100)), 1);
        assert_eq!(apply(&mut machine, 7, 109, Request::Acquire(100)), 0);
        assert_eq!(apply(&mut machine, 8, 110, Request::Acquire(100)), 2);
        assert_eq!(apply(&mut machine, 9, 120, Request::Release(1)), 0);
        assert_eq!(apply(&mut machine, 10, 120, Request::Release(2)), 1);
        assert!(machine.broken.is_none());
    }

    #[test]
    fn a_command_that_runs_twice_is_noticed() {
        let mut machine = Registers::default();
        apply(&mut machine, 1, 10, Request::Increment);
        apply(&mut machine, 1, 10, Request::Increment);
        assert!(machine.broken.is_some_and(|what| what.starts_with("E1")));
    }
}
