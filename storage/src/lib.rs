//! Rows, the machine and its commands, the journal and snapshots. Knows nothing of Paxos, sockets or RESP.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod journal;
