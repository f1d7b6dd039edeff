//! The command line: what stands on it, and who does it.

pub mod access;
pub mod admin;
pub mod backup;
pub mod bench;
pub mod dev;
pub mod elect;
pub mod form;
pub mod hold;
pub mod lock;
pub mod restore;
pub mod say;
pub mod server;
pub mod shell;
pub mod status;

/// What becomes of a command.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;
