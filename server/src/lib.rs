//! The Redis face: RESP bytes, connections, dispatch. Knows nothing of ballots.
//!
//! A [`Face`] takes connections and hands what clients want to an [`Engine`], the node behind it. Everything runs on the node's one thread: a read
//! on the master is answered without leaving the connection's task.

mod breath;
pub mod commands;
pub mod config;
mod connection;
mod engine;
mod face;
pub mod pubsub;
mod reply;
pub mod resp;
pub mod stats;
pub mod tracking;

pub use connection::Connection;
pub use engine::{Answer, Engine, Facts, Ticket};
pub use face::{Face, Settings};
pub use tracking::Change;
