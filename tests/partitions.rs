//! Real partitions: every node in a network namespace of its own, packets lost in both directions or in one.
//!
//! Needs root and iproute2; says so and passes where it cannot run.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::network::Network;
use harness::{Cluster, Options, Recorded, wait_for};

/// A recorded workload through a series of cuts: each is made, lasts until the majority has served for a while, and is healed.
#[test]
fn partitions_in_both_directions_and_in_one() {
    let Some(network) = Network::or_skip(3, "partitions") else { return };
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 3);
    options.places = network.places();
    // A node that is cut off answers after this, so that the cuts are seen to cut.
    let flags = ["--protected-mode", "no", "--request-timeout", "3s"];
    options.flags = flags.map(String::from).to_vec();
    let cluster = Cluster::with(options);
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("SEED={seed}");
    let work = Recorded::start(&cluster.addresses(), 2, seed, "p");
    work.wait_for_answers(200);
    /// What a cut must do to somebody, or it cut nothing.
    enum Victim {
        Master,
        Member,
        Nobody,
    }
    type Cut = fn(&Network, u16, u16, u16);
    let cuts: [(&str, Victim, Cut); 5] = [
        ("the master is cut off", Victim::Master, |network, master, _, _| network.isolate(master)),
        ("a member is cut off", Victim::Member, |network, _, member, _| network.isolate(member)),
        ("the master is not heard, but hears", Victim::Master, |network, master, member, other| {
            network.lose(master, member);
            network.lose(master, other);
        }),
        ("the master hears nobody, but is heard", Victim::Master, |network, master, member, other| {
            network.lose(member, master);
            network.lose(other, master);
        }),
        (
            "the master and one member do not hear each other; both hear the third",
            Victim::Nobody, // a majority can be heard from everywhere, by way of the third
            |network, master, member, _| {
                network.lose(master, member);
                network.lose(member, master);
            },
        ),
    ];
    for (what, victim, cut) in cuts {
        let master = cluster.master();
        let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
        eprintln!("{what}: the master is node {master}, the member node {}", others[0]);
        cut(&network, master, others[0], others[1]);
        let cut_off = match victim {
            Victim::Master => Some(master),
            Victim::Member => Some(others[0]),
            Victim::Nobody => None,
        };
        if let Some(node) = cut_off {
            let answer = cluster.client(node).must(&["INCR", "through the cut"]);
            let is_cut = ["CLUSTERDOWN", "TRYAGAIN", "UNCERTAIN"].iter().any(|word| answer.is_error(word));
            assert!(is_cut, "{what}: node {node} still serves, so nothing is cut: {answer}");
        }
        work.wait_for_answers(200);
        network.heal();
        for node in cluster.all() {
            let mut client = cluster.client(node);
            wait_for(&format!("node {node} to serve after '{what}'"), || {
                client.must(&["INCR", "healed"]).integer()
            });
        }
    }
    work.finish(&cluster.address(1)).must_be_linearizable();
    cluster.wait_for_agreement();
}
