//! The model check of configurations that are small enough for every test run; `make model` searches the large ones.
#![allow(missing_docs, clippy::unwrap_used)]

mod model;

use model::Model;
use model::setups::{self, Setup};
use warlock_consensus::Config;

fn search(setup: Setup) {
    let report = Model::new(setup, Config::default()).search(1_000_000, |_| {});
    println!("{report:?}");
    assert!(report.violation.is_none(), "{:#?}", report.violation);
    assert!(report.complete, "the search was cut off");
    assert!(report.chosen.iter().all(|states| *states > 0), "some ballot never chose anything: {report:?}");
}

#[test]
fn two_leaders_agree_on_two_slots() {
    search(setups::two_ballots());
}

#[test]
fn three_ballots_agree_on_a_slot() {
    search(setups::three_ballots());
}

#[test]
fn two_leaders_agree_on_the_next_view() {
    search(setups::rival_views());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn every_covered_bug_is_noticed() {
    for (bug, setup) in setups::covered() {
        let report = Model::new(setup, setups::with_bug(bug)).search(100_000, |_| {});
        println!("{bug:?}: {report:?}");
        assert!(report.violation.is_some(), "{bug:?} was not noticed");
    }
}
