//! A seed always gives the same run, to the bit.

use warlock_sim::run::{install_panic_hook, run};

#[test]
fn the_same_seed_gives_the_same_trace() {
    install_panic_hook();
    let mut hashes = std::collections::BTreeSet::new();
    for seed in [0, 1, 7, 42, 1_000, 123_456_789] {
        let (first, second) = (run(seed, None, None), run(seed, None, None));
        assert_eq!(first.hash, second.hash, "seed {seed}: two runs differ");
        assert_eq!(first.stats, second.stats, "seed {seed}: two runs counted differently");
        assert_eq!(first.violation, second.violation);
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), 6, "different seeds give different runs");
}

#[test]
fn watching_a_run_does_not_change_it() {
    install_panic_hook();
    let tail = warlock_sim::trace::Tail::new(10);
    let (blind, watched) = (run(5, None, None), run(5, None, Some(tail.clone())));
    assert_eq!(blind.hash, watched.hash);
    assert_eq!(tail.lines().len(), 10);
}

#[test]
fn a_few_seeds_pass_and_do_something() {
    install_panic_hook();
    let mut writes = 0;
    for seed in 0..20 {
        let report = run(seed, None, None);
        assert_eq!(report.violation, None, "seed {seed}");
        writes += report.stats.writes;
    }
    assert!(writes > 1_000, "hardly anything was decided");
}
