//! Clusters of the real `warlock` binary, for tests and measurements: start them, hurt them, ask them.
//!
//! - [`Cluster`]: nodes as child processes on free ports, with their data in a temporary directory.
//! - [`Client`]: a Redis client that shows what was said, not a library's opinion of it.
//! - [`Recorded`]: a workload whose history is checked for linearizability.
//! - [`libraries`]: client libraries of other languages.
//! - [`wait_for`]: patience that says what it waited for when it gives up.
//!
//! The invariant of this crate: **no node survives the process that started it**, however that ends (return, panic, Ctrl-C, kill -9).
//!
//! It is written for tests: what cannot go on panics, and the message says what was tried.
#![allow(clippy::expect_used, clippy::missing_panics_doc)]

pub mod client;
pub mod cluster;
pub mod counting;
pub mod libraries;
pub mod network;
pub mod patience;
pub mod ports;
pub mod process;
pub mod recorded;
pub mod report;

pub use client::{Client, Reply};
pub use cluster::{Cluster, Options, binary};
pub use patience::{PATIENCE, wait_for};
pub use recorded::Recorded;
pub use rustix::process::Signal;
