//! Locks, waits and sessions of the machine that ships, under every fault.
//!
//! In a run of this workload the replicated machine contains the real one ([`real`]), clients take locks instead of writing registers
//! ([`clients`]), and each node does what a node has to do for clients that wait ([`duties`]): deliver, cancel, undo, sweep. The laws are in
//! `invariants::holds`.

pub mod ask;
pub mod clients;
pub mod duties;
pub mod real;
