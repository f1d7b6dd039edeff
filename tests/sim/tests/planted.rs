//! A checker is trusted after it caught a planted bug: each one is planted in turn, and the simulator has to notice.
//!
//! Run with `cargo test --profile sim -p warlock-sim --features planted-bugs --test planted -- --nocapture`.
#![cfg(feature = "planted-bugs")]

use consensus::planted::Bug;
use storage::planted::Bug as LockBug;
use warlock_sim::run::{Plan, first_catch, install_panic_hook};

/// Seeds that may be needed.
const SEEDS_MAX: u64 = 2_000;

#[test]
fn every_planted_bug_is_noticed() {
    install_panic_hook();
    let mut missed = Vec::new();
    let engine = Bug::ALL.iter().map(|bug| (format!("{bug:?}"), Plan { bug: Some(*bug), ..Plan::default() }));
    let locks = LockBug::ALL
        .iter()
        .map(|bug| (format!("{bug:?}"), Plan { has_locks: true, lock_bug: Some(*bug), ..Plan::default() }));
    for (name, plan) in engine.chain(locks) {
        match first_catch(plan, SEEDS_MAX) {
            Some((seeds, violation)) => {
                let law = violation.split(':').next().unwrap_or_default();
                println!("{name:<28} {seeds:>5} seeds  {law}");
            }
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "not noticed within {SEEDS_MAX} seeds: {missed:?}");
}
