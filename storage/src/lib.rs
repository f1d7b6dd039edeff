//! Rows, the machine and its commands, the journal and snapshots. Knows nothing of Paxos, sockets or RESP.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod commands;
pub mod journal;
pub mod machine;
pub mod planted;
pub mod reply;
pub mod row;
pub mod script;
pub mod snapshot;
pub mod store;
mod varint;
