//! The Redis face over a real machine and real sockets, without a cluster: what one client sees.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod clients;
#[allow(dead_code, reason = "not every test needs everything")]
mod lone;
mod operators;
mod pubsub;
mod scripts;
mod slow;
mod tracking;
mod transactions;
