//! Locks with real processes: who waits is served once, in order, whichever node dies.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Reply, wait_for};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

fn token(reply: &Reply) -> i64 {
    reply.items().first().and_then(Reply::integer).unwrap_or_else(|| panic!("no grant: {reply}"))
}

fn waiters(client: &mut Client, key: &str) -> usize {
    client.must(&["LOCK.INFO", key]).field("waiters").map_or(0, |waiters| waiters.items().len())
}

fn wait_for_waiters(client: &mut Client, key: &str, count: usize) {
    wait_for(&format!("{count} waiters on {key}"), || (waiters(client, key) == count).then_some(()));
}

#[test]
fn waiters_on_every_node_are_served_in_order_although_the_master_is_killed() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    let mut holder = cluster.client(others[0]);
    let first = token(&holder.must(&["LOCK.ACQUIRE", "k", "holder", "120000"]));
    let mut line = Vec::new();
    for place in 0..6 {
        let mut waiter = cluster.client(others[place % 2]);
        let owner = format!("waiter{place}");
        waiter.send(&["LOCK.ACQUIRE", "k", &owner, "120000", "WAIT", "120000"]).unwrap();
        wait_for_waiters(&mut holder, "k", place + 1);
        line.push(waiter);
    }
    // Its client hears nothing any more; it must not stop the line.
    let mut doomed = cluster.client(master);
    doomed.send(&["LOCK.ACQUIRE", "k", "doomed", "2000", "WAIT", "120000"]).unwrap();
    wait_for_waiters(&mut holder, "k", 7);
    let mut last = cluster.client(others[1]);
    last.send(&["LOCK.ACQUIRE", "k", "last", "120000", "WAIT", "120000"]).unwrap();
    wait_for_waiters(&mut holder, "k", 8);

    cluster.kill(master);
    assert_eq!(holder.must(&["LOCK.RELEASE", "k", &first.to_string()]), Reply::Integer(0));
    let mut before = first;
    for waiter in &mut line {
        let granted = token(&waiter.receive().unwrap());
        assert!(granted > before, "token {granted} after {before}");
        assert_eq!(waiters_ahead(&mut holder), None);
        before = granted;
        assert_eq!(waiter.must(&["LOCK.RELEASE", "k", &granted.to_string()]), Reply::Integer(0));
    }
    // The killed node's client was next: the new master forgets it, or its time passes.
    let granted = token(&last.receive().unwrap());
    assert!(granted > before);
    let info = holder.must(&["LOCK.INFO", "k"]);
    assert_eq!(info.field("holders").unwrap().items().len(), 1, "{info}");
    assert_eq!(info.field("holders").unwrap().items()[0].field("owner").unwrap().text().unwrap(), "last");
}

/// Nobody but the next in line was told anything: a reply that came too early would be read here as the answer to PING.
fn waiters_ahead(client: &mut Client) -> Option<Reply> {
    let reply = client.must(&["PING"]);
    (reply != Reply::Simple("PONG".into())).then_some(reply)
}

#[test]
fn a_client_that_is_gone_gets_nothing_and_its_grant_goes_to_the_next() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut holder = cluster.client(1);
    let first = token(&holder.must(&["LOCK.ACQUIRE", "k", "holder", "120000"]));
    for node in [1, 2, 3] {
        let mut gone = cluster.client(node);
        gone.send(&["LOCK.ACQUIRE", "k", "gone", "120000", "WAIT", "120000"]).unwrap();
        wait_for_waiters(&mut holder, "k", 1);
        drop(gone);
        wait_for_waiters(&mut holder, "k", 0);
    }
    // Gone before its command could run: whether it came to wait or was granted the lock, the lock comes free again.
    let mut gone = cluster.client(2);
    gone.send(&["LOCK.ACQUIRE", "free", "gone", "120000"]).unwrap();
    gone.send(&["LOCK.ACQUIRE", "k", "gone", "120000", "WAIT", "120000"]).unwrap();
    drop(gone);
    wait_for_waiters(&mut holder, "k", 0);
    assert_eq!(holder.must(&["LOCK.RELEASE", "k", &first.to_string()]), Reply::Integer(0));
    let mut next = cluster.client(3);
    token(&next.must(&["LOCK.ACQUIRE", "k", "next", "120000", "WAIT", "60000"]));
}

#[test]
fn a_wait_ends_with_its_time_and_what_comes_behind_it_runs_after_it() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut holder = cluster.client(1);
    holder.must(&["LOCK.ACQUIRE", "k", "holder", "120000"]);
    let mut client = cluster.client(2);
    client.send(&["LOCK.ACQUIRE", "k", "b", "1000", "WAIT", "300"]).unwrap();
    client.send(&["SET", "behind", "1"]).unwrap();
    client.send(&["GET", "behind"]).unwrap();
    wait_for_waiters(&mut holder, "k", 1);
    assert_eq!(holder.must(&["GET", "behind"]), Reply::Nil, "it runs behind the wait, not before its end");
    assert_eq!(client.receive().unwrap(), Reply::Nil);
    assert!(client.receive().unwrap().is_ok());
    assert_eq!(client.receive().unwrap().text().unwrap(), "1");
}

#[test]
fn a_restarted_node_cancels_what_its_former_life_waited_for() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let node = cluster.all().into_iter().find(|node| !cluster.is_master(*node)).unwrap();
    let mut holder = cluster.client(cluster.master());
    holder.must(&["LOCK.ACQUIRE", "k", "holder", "120000"]);
    let mut gone = cluster.client(node);
    gone.send(&["LOCK.ACQUIRE", "k", "gone", "120000", "WAIT", "120000"]).unwrap();
    wait_for_waiters(&mut holder, "k", 1);
    cluster.kill(node);
    cluster.run(node);
    wait_for_waiters(&mut holder, "k", 0);
}

#[test]
fn a_holder_is_told_that_it_lost_its_lock() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut holder = cluster.client(1);
    holder.must(&["HELLO", "3"]);
    let granted = holder.must(&["LOCK.ACQUIRE", "short", "a", "100"]);
    assert_eq!(granted.field("mode").and_then(Reply::text).as_deref(), Some("exclusive"), "{granted}");
    assert!(holder.receive().unwrap().to_string().starts_with(">[lock, expired, short, :"));
    holder.must(&["LOCK.ACQUIRE", "k", "a", "120000"]);
    let mut admin = cluster.client(2);
    assert_eq!(admin.must(&["LOCK.REVOKE", "k"]), Reply::Integer(1));
    assert!(holder.receive().unwrap().to_string().starts_with(">[lock, revoked, k, :"));
    let session = holder.must(&["SESSION.OPEN", "120000"]).integer().unwrap().to_string();
    holder.must(&["LOCK.ACQUIRE", "k", "a", "0", "SESSION", &session]);
    assert_eq!(admin.must(&["SESSION.CLOSE", &session]), Reply::Integer(1));
    assert!(holder.receive().unwrap().to_string().starts_with(">[lock, session, k, :"));
}

#[test]
fn every_change_is_told_on_the_locks_channel_of_every_node() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut listeners: Vec<Client> = cluster.all().into_iter().map(|node| cluster.client(node)).collect();
    for listener in &mut listeners {
        listener.must(&["SUBSCRIBE", "__lock__:k"]);
    }
    let mut client = cluster.client(1);
    let first = token(&client.must(&["LOCK.ACQUIRE", "k", "a", "120000"]));
    client.must(&["LOCK.RELEASE", "k", &first.to_string()]);
    let second = token(&client.must(&["LOCK.ACQUIRE", "k", "a", "120000"]));
    client.must(&["LOCK.REVOKE", "k"]);
    for listener in &mut listeners {
        for told in [
            format!("acquired {first}"),
            format!("released {first}"),
            format!("acquired {second}"),
            format!("revoked {second}"),
        ] {
            let message = listener.receive().unwrap();
            assert_eq!(message.items().last().and_then(Reply::text), Some(told), "{message}");
        }
    }
}
