//! Multi-Paxos as five pure state machines.
//!
//! Replica, leader, acceptor, scout and commander are plain structs: a message or a timeout goes in, [`Outputs`] come out. They
//! never read a clock, a random source, a socket or a file (`clippy.toml` beside this crate's manifest bans it), so the same code runs in a
//! server, in the simulator, in golden scripts and in a model check.
//!
//! Start with [`role`] (the contract with a host), [`message`] (who says what), then the roles. [`Node`] holds all roles of one
//! node; [`Ledger`] applies what was decided, exactly once. `ARCHITECTURE.md` at the top of the repository has the protocol's
//! sequence charts and the table of invariants.
//!
//! What this crate does not do: it moves no bytes, keeps no files, and does not know what a command means.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod acceptor;
pub mod commander;
pub mod config;
pub mod leader;
pub mod ledger;
pub mod message;
pub mod node;
pub mod planted;
pub mod random;
pub mod record;
pub mod replica;
pub mod role;
mod sanity;
pub mod scout;
pub mod types;
pub mod value;
pub mod view;

pub use config::Config;
pub use ledger::{Ledger, Machine, Outcome, Stamp};
pub use message::{Address, AdminError, Envelope, Message, PValue, RoleId, Targets};
pub use node::{Node, Standing};
pub use record::{Durable, Record};
pub use role::{HostCall, Outputs, Role, Spawn};
pub use types::{Ballot, NodeId, Now, Slot, Time, Watermark};
pub use value::{Body, Command, CommandId, Origin, Value};
pub use view::{Change, Condition, Member, View, ViewState};
