//! Whole clusters without faults: each thing that must simply work.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use bytes::Bytes;
use common::Cluster;
use std::time::Duration;
use warlock_consensus::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn three() -> Cluster {
    let mut cluster = Cluster::new(3, Config::default());
    cluster.run(seconds(3));
    cluster
}

#[test]
fn one_master_is_elected_and_stays() {
    let mut cluster = three();
    let masters = cluster.masters();
    assert_eq!(masters.len(), 1);
    cluster.run(seconds(60));
    assert_eq!(cluster.masters(), masters);
}

#[test]
fn commands_from_every_node_run_everywhere_in_the_same_order() {
    let mut cluster = three();
    for n in 0..100 {
        cluster.submit(n % 3 + 1, &format!("command {n}"));
    }
    cluster.run(seconds(1));
    let first = cluster.nodes[&NodeId(1)].machine.0.clone();
    assert_eq!(first.len(), 100);
    for node in cluster.nodes.values() {
        assert_eq!(node.machine.0, first);
        assert_eq!(node.node.replica().pending_len(), 0);
    }
}

#[test]
fn a_follower_reads_by_read_index() {
    let mut cluster = three();
    let follower = (1..=3).find(|id| !cluster.masters().contains(id)).unwrap();
    cluster.host_says(follower, Message::Read { read: 7 });
    cluster.settle();
    assert_eq!(cluster.nodes[&NodeId(follower)].ready, vec![7]);
}

#[test]
fn the_mastership_is_handed_over_without_waiting_for_the_lease() {
    let mut cluster = three();
    let old = cluster.masters()[0];
    let new = old % 3 + 1;
    cluster.host_says(old, Message::Transfer { to: Some(NodeId(new)), ticket: 1 });
    cluster.run(Duration::from_millis(50));
    assert_eq!(cluster.masters(), vec![new]);
    assert!(matches!(cluster.admin[..], [Message::AdminAnswer { ticket: 1, result: Ok(_) }]));
}

#[test]
fn a_member_is_added_promoted_and_removed() {
    let mut cluster = three();
    cluster.submit(1, "before");
    cluster.run(seconds(1));
    let master = cluster.masters()[0];
    let change = Change::Add { contact: Bytes::from("n4"), observer: false };
    cluster.host_says(master, Message::Reconfigure { change, ticket: 1 });
    cluster.run(Duration::from_millis(100));
    assert!(
        matches!(cluster.admin[..], [Message::AdminAnswer { ticket: 1, result: Ok(2) }]),
        "{:?}",
        cluster.admin
    );
    let view = cluster.nodes[&NodeId(master)].node.leader().view().clone();
    assert!(view.established);
    cluster.start(NodeId(4), Durable { view: Some(view), ..Durable::default() }, Ledger::default());
    cluster.run(seconds(5));
    let view = cluster.nodes[&NodeId(4)].node.leader().view().clone();
    assert!(view.established && view.current.is_voter(NodeId(4)), "{view:?}");
    assert_eq!(cluster.nodes[&NodeId(4)].machine.0, vec![Bytes::from("before")]);

    let master = cluster.masters()[0];
    cluster.host_says(master, Message::Reconfigure { change: Change::Remove(NodeId(master)), ticket: 2 });
    cluster.run(seconds(1));
    let successor = cluster.masters()[0];
    assert_ne!(successor, master);
    cluster.host_says(successor, Message::Reconfigure { change: Change::Remove(NodeId(master)), ticket: 3 });
    cluster.run(seconds(5));
    let view = cluster.nodes[&NodeId(successor)].node.leader().view().clone();
    assert!(view.established && !view.current.is_member(NodeId(master)), "{view:?}");
    cluster.submit(successor, "after");
    cluster.run(seconds(1));
    assert_eq!(cluster.nodes[&NodeId(4)].machine.0.len(), 2);
}
