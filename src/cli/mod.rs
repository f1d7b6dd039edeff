//! The command line: what stands on it, and who does it.

pub mod form;
pub mod server;

/// What becomes of a command.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;
