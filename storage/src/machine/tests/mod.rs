//! Tests of the machine.

mod cleaning;
mod determinism;
pub(crate) mod support;
mod transactions;
mod twin;
mod versions;
