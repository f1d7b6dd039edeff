//! Real partitions: every node in a network namespace of its own, packets lost in both directions or in one.
//!
//! Needs root and iproute2; says so and passes where it cannot run.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::network::Network;
use harness::{Cluster, Options, Recorded};
use std::io::Write;

/// A recorded workload through a series of cuts: each is made, lasts until the majority has served for a while, and is healed.
#[test]
fn partitions_in_both_directions_and_in_one() {
    let network = match Network::new(3) {
        Ok(network) => network,
        Err(why) => {
            // Not by a macro: the test runner hides what those print.
            let _ = writeln!(std::io::stderr(), "SKIPPED partitions: {why}");
            return;
        }
    };
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 3);
    options.places = network.places();
    options.flags = vec!["--protected-mode".into(), "no".into()];
    let cluster = Cluster::with(options);
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("SEED={seed}");
    let work = Recorded::start(&cluster.addresses(), 2, seed, "p");
    work.wait_for_answers(200);
    type Cut = fn(&Network, u16, u16, u16);
    let cuts: [(&str, Cut); 5] = [
        ("the master is cut off", |network, master, _, _| network.isolate(master)),
        ("a member is cut off", |network, _, member, _| network.isolate(member)),
        ("the master is not heard, but hears", |network, master, member, other| {
            network.lose(master, member);
            network.lose(master, other);
        }),
        ("the master hears nobody, but is heard", |network, master, member, other| {
            network.lose(member, master);
            network.lose(other, master);
        }),
        (
            "the master and one member do not hear each other; both hear the third",
            |network, master, member, _| {
                network.lose(master, member);
                network.lose(member, master);
            },
        ),
    ];
    for (what, cut) in cuts {
        let master = cluster.master();
        let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
        eprintln!("{what}: the master is node {master}, the member node {}", others[0]);
        cut(&network, master, others[0], others[1]);
        work.wait_for_answers(200);
        network.heal();
        for node in cluster.all() {
            assert!(
                cluster.client(node).must(&["INCR", "healed"]).integer().is_some(),
                "{what}: node {node}"
            );
        }
    }
    work.finish(&cluster.address(1)).must_be_linearizable();
    cluster.wait_for_agreement();
}
