//! Tests of the RESP layer through its public face: examples, and properties against an oracle.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod feed;
mod garbage;
mod malformed;
mod memory;
mod replies;
mod requests;
