//! Tests of the machine.

mod cleaning;
mod determinism;
mod failing;
pub(crate) mod support;
mod transactions;
mod twin;
mod versions;
