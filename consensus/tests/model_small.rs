//! The model check of configurations that are small enough for every test run; `make model` searches the large ones.
#![allow(missing_docs, clippy::unwrap_used)]

mod model;

use model::{Model, Setup};
use warlock_consensus::Config;
#[cfg(feature = "planted-bugs")]
use warlock_consensus::planted::Bug;

fn search(setup: Setup) -> model::Report {
    let report = Model::new(setup, Config::default()).search(1_000_000, |_| {});
    println!("{report:?}");
    assert!(report.violation.is_none(), "{:#?}", report.violation);
    assert!(report.complete, "the search was cut off");
    assert!(report.chosen.iter().all(|states| *states > 0), "some ballot never chose anything: {report:?}");
    report
}

#[test]
fn two_leaders_agree_on_two_slots() {
    assert!(search(model::two_ballots()).states > 1_000);
}

#[test]
fn two_leaders_agree_on_the_next_view() {
    search(model::rival_views());
}
