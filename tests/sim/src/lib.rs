//! A deterministic simulator that tries to break the consensus engine.
//!
//! A run is a whole cluster with clients, drawn from one number: the nodes' limits, the faults, the clients' wishes. Virtual time, one
//! thread, one generator, so the same number always gives the same run. Laws are checked after every step and on everything that is said.
#![allow(clippy::expect_used, reason = "a broken assumption of the simulator itself ends the run")]

pub mod clock;
pub mod disk;
/// The real host's own rule, the same file: what is simulated is what runs.
#[path = "../../../src/host/early.rs"]
pub mod early;
pub mod history;
pub mod host;
pub mod invariants;
pub mod locks;
pub mod long;
pub mod machine;
pub mod nemesis;
pub mod network;
pub mod process;
pub mod rng;
pub mod run;
pub mod snapshots;
pub mod stats;
pub mod swarm;
pub mod trace;
pub mod wgl;
pub mod workload;
pub mod world;
