//! Every command by examples: what is said, and the literal reply.
//!
//! A line is `command -> reply`; `+ms` lets time pass, `db n` changes the database, `hash key` makes a key of another type.
//! Replies were compared with those of Redis 7.0.15.

mod bits;
mod contract;
mod hashes;
mod keys;
mod lists;
mod sorting;
mod strings;
mod transaction;

use crate::machine::tests::support::Lab;

/// Runs a conversation.
fn check(script: &str) {
    let mut lab = Lab::new();
    for line in script.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
        if let Some(ms) = line.strip_prefix('+') {
            lab.now_ms += ms.parse::<u64>().unwrap();
        } else if let Some(db) = line.strip_prefix("db ") {
            lab.db = db.parse().unwrap();
        } else if let Some(key) = line.strip_prefix("hash ") {
            lab.make_hash(key, 3);
        } else {
            let (command, reply) = line.split_once(" -> ").unwrap_or_else(|| panic!("no reply in {line:?}"));
            assert_eq!(lab.say(command), reply, "{command}\nin {script}");
        }
        lab.check_invariants();
    }
}
