//! The tokio host of the roles: one thread, one turn at a time.

pub mod apply;
pub mod backend;
pub mod boundaries;
pub mod calls;
pub mod clock;
pub mod core;
pub mod durability;
pub mod early;
pub mod faults;
pub mod gathering;
pub mod handshake;
pub mod links;
pub mod log;
pub mod meters;
pub mod outbox;
pub mod parked;
pub mod perform;
pub mod riders;
pub mod shortcut;
pub mod waiters;
pub mod waiting;

#[cfg(test)]
mod tests;
