//! Probes and metrics of real nodes.
#![allow(missing_docs, clippy::unwrap_used)]

use harness::{Cluster, wait_for};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

fn value(page: &str, sample: &str) -> f64 {
    let line = page.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no {sample} in:\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_node_is_ready_while_it_has_a_master_and_alive_without() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    for node in cluster.all() {
        let alive = wait_for("a node that answers its probe", || cluster.http(node, "/healthz"));
        assert_eq!(alive, (200, "ok\n".to_string()));
        wait_for("a node that knows its master", || (cluster.http(node, "/readyz")?.0 == 200).then_some(()));
    }
    let last = cluster.all().into_iter().find(|node| !cluster.is_master(*node)).unwrap();
    for node in cluster.all().into_iter().filter(|node| *node != last) {
        cluster.kill(node);
    }
    let why = wait_for("a node without a quorum that says so", || {
        cluster.http(last, "/readyz").filter(|(status, _)| *status == 503)
    });
    assert!(why.1.contains("no master"), "{why:?}");
    assert_eq!(cluster.http(last, "/healthz").unwrap().0, 200);
}

#[test]
fn metrics_tell_what_the_node_did() {
    let cluster = Cluster::start(WARLOCK, 3);
    let master = cluster.master();
    let mut client = cluster.client(master);
    for _ in 0..10 {
        client.must(&["INCR", "counter"]);
    }
    let (status, page) = cluster.http(master, "/metrics").unwrap();
    assert_eq!(status, 200);
    assert!(value(&page, "warlock_commit_seconds_count") >= 10.0);
    assert!(value(&page, "warlock_sync_seconds_count") >= 10.0);
    assert!(value(&page, "warlock_batch_commands_sum") >= 10.0);
    assert!((value(&page, "warlock_master") - 1.0).abs() < f64::EPSILON);
    assert!(value(&page, "warlock_lease_left_seconds") > 0.0);
    assert!(value(&page, "warlock_connections") >= 1.0);
    assert!(value(&page, "warlock_applied_slot") >= 10.0);
    // Every family is described before its first sample, and every sample is a number.
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(
            page.contains(&format!("# TYPE {family} ")) || page.contains(&format!("# TYPE {name} ")),
            "{name} is not described"
        );
        assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
    }
    assert_eq!(cluster.http(master, "/nothing").unwrap().0, 404);
}
