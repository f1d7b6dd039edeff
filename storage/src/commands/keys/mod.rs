//! Keys of any type.

mod existence;
mod expiry;
mod moves;
mod object;
mod scan;
mod sort;

pub(super) use existence::COMMANDS;
pub(super) use expiry::COMMANDS as EXPIRY;
pub(super) use moves::COMMANDS as MOVES;
pub(super) use object::COMMANDS as OBJECT;
pub(super) use scan::COMMANDS as SCANS;
pub(super) use sort::COMMANDS as SORT;
