//! Disks that are slow or do not answer at all: the others go on, nothing is lost, and what waits for such a disk is bounded.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, Options, Recorded, Reply, wait_for};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
/// What each write of a journal takes, in milliseconds, if it hangs.
const HANGS: &str = "12000";

fn cluster(nodes: u16, flags: &[&str]) -> Cluster {
    let mut options = Options::new(WARLOCK, nodes);
    options.env = vec![("WARLOCK_TEST_FAULTS".into(), "1".into())];
    options.flags = flags.iter().map(ToString::to_string).collect();
    Cluster::with(options)
}

fn delay(cluster: &Cluster, node: u16, ms: &str) {
    cluster.client(node).must(&["WARLOCK", "DEBUG", "JOURNAL", ms]);
}

fn record(cluster: &Cluster, seed: u64) -> Recorded {
    Recorded::start(&cluster.addresses(), 2, seed, "h:")
}

/// Every node in turn has a slow disk, and is killed while it does; all nodes die at once at the end.
#[test]
fn slow_journals_lose_nothing() {
    let seed = std::process::id().into();
    eprintln!("SEED={seed}");
    let mut cluster = cluster(3, &[]);
    let work = record(&cluster, seed);
    for node in 1..=3 {
        for ms in ["2", "40"] {
            delay(&cluster, node, ms);
            work.wait_for_answers(200);
        }
        cluster.kill(node);
        work.wait_for_answers(200);
        cluster.run(node);
        cluster.wait_for_master();
    }
    delay(&cluster, cluster.master(), "40");
    work.wait_for_answers(200);
    for node in cluster.all() {
        cluster.kill(node);
    }
    for node in cluster.all() {
        cluster.run(node);
    }
    cluster.wait_for_master();
    work.wait_for_answers(200);
    work.finish(&cluster.address(1)).must_be_linearizable();
    cluster.wait_for_agreement();
}

#[test]
fn a_master_whose_disk_hangs_goes_on_with_the_disks_of_the_others_and_hands_over() {
    let cluster = cluster(3, &[]);
    let hung = cluster.master();
    let mut client = cluster.client(hung);
    client.must(&["SET", "before", "1"]);
    delay(&cluster, hung, HANGS);
    for n in 0..100 {
        client.must(&["SET", "meanwhile", &n.to_string()]);
    }
    wait_for("another master", || {
        cluster.all().into_iter().find(|node| *node != hung && cluster.is_master(*node))
    });
    assert_eq!(client.must(&["GET", "meanwhile"]).text().unwrap(), "99", "through the member that it is now");
    delay(&cluster, hung, "0");
    cluster.wait_for_agreement();
}

#[test]
fn voters_whose_disks_hang_lose_their_votes() {
    let cluster = cluster(5, &["--down-after", "2s"]);
    let master = cluster.master();
    let hung: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).take(2).collect();
    for node in &hung {
        delay(&cluster, *node, HANGS);
    }
    let mut client = cluster.client(master);
    wait_for("both to be down", || {
        client.must(&["INCR", "counter"]);
        let members = client.must(&["WARLOCK", "MEMBERS"]);
        let is_down = |row: &&Reply| row.field("condition").and_then(Reply::text).unwrap() == "down";
        (members.items().iter().filter(is_down).count() == 2).then_some(())
    });
    for node in &hung {
        delay(&cluster, *node, "0");
    }
    cluster.wait_for_agreement();
}
