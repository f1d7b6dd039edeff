//! Keys of any type.

mod existence;
mod expiry;
mod moves;
mod scan;

pub(super) use existence::COMMANDS;
pub(super) use expiry::COMMANDS as EXPIRY;
pub(super) use moves::COMMANDS as MOVES;
pub(super) use scan::COMMANDS as SCANS;
