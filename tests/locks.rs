//! Locks with real processes: who waits is served once, in order, whichever node dies.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Options, Reply, wait_for};

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
fn an_owner_whose_node_died_is_not_behind_itself() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let node = cluster.all().into_iter().find(|node| !cluster.is_master(*node)).unwrap();
    let master = cluster.master();
    let mut holder = cluster.client(master);
    let first = token(&holder.must(&["LOCK.ACQUIRE", "k", "holder", "120000"])).to_string();
    let mut line = Vec::new();
    for (place, (owner, at)) in [("b", node), ("c", master), ("b", master)].into_iter().enumerate() {
        let mut waiter = cluster.client(at);
        waiter.send(&["LOCK.ACQUIRE", "k", owner, "120000", "WAIT", "120000"]).unwrap();
        wait_for_waiters(&mut holder, "k", place + 1);
        line.push(waiter);
    }
    // It is silent first: the requests of a node that is gone are forgotten after seconds, and then nobody could be behind them.
    cluster.stop(node);
    assert_eq!(holder.must(&["LOCK.RELEASE", "k", &first]), Reply::Integer(0));
    let granted = token(&line[2].receive().unwrap()).to_string();
    cluster.kill(node);
    assert_eq!(holder.must(&["LOCK.CHECK", "k", &granted]), Reply::Integer(1));
    assert_eq!(waiters(&mut holder, "k"), 1);
    assert_eq!(line[2].must(&["LOCK.RELEASE", "k", &granted]), Reply::Integer(1));
    assert_eq!(line[2].must(&["LOCK.RELEASE", "k", &granted]), Reply::Integer(0));
    token(&line[1].receive().unwrap());
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
    // Asked again over another connection, as after a lost one: that one is told.
    let mut again = cluster.client(2);
    again.must(&["HELLO", "3"]);
    holder.must(&["LOCK.ACQUIRE", "k", "a", "120000"]);
    again.must(&["LOCK.ACQUIRE", "k", "a", "120000"]);
    assert_eq!(admin.must(&["LOCK.REVOKE", "k"]), Reply::Integer(1));
    assert!(again.receive().unwrap().to_string().starts_with(">[lock, revoked, k, :"));
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

#[test]
fn holders_are_told_when_somebody_empties_or_exchanges_their_database() {
    let cluster = Cluster::start(WARLOCK, 3);
    let (mut holder, mut listener, mut other) = (cluster.client(1), cluster.client(2), cluster.client(3));
    holder.must(&["HELLO", "3"]);
    listener.must(&["SUBSCRIBE", "__lock__:k"]);
    let mut last = 0;
    for takes in [&["DEL", "k"][..], &["FLUSHDB"], &["FLUSHALL"], &["SWAPDB", "0", "1"]] {
        let granted = holder.must(&["LOCK.ACQUIRE", "k", "a", "120000"]);
        let held = granted.field("token").and_then(Reply::integer).unwrap_or_else(|| panic!("{granted}"));
        assert!(held > last, "{takes:?}: token {held} after {last}");
        last = held;
        assert!(other.must(takes).error().is_none(), "{takes:?}");
        let told = holder.receive().unwrap().to_string();
        assert!(told.starts_with(">[lock, revoked, k, :"), "{takes:?}: {told}");
        for told in [format!("acquired {held}"), format!("revoked {held}")] {
            let message = listener.receive().unwrap();
            assert_eq!(message.items().last().and_then(Reply::text), Some(told), "{takes:?}: {message}");
        }
        let late = holder.must(&["LOCK.RELEASE", "k", &held.to_string()]);
        assert!(late.is_error("LOCKLOST"), "{takes:?}: {late}");
    }
}

/// Each of the four answers of docs/locks.md, provoked, and what is written there to do about it.
#[test]
fn the_four_answers() {
    let mut options = Options::new(WARLOCK, 3);
    options.flags = vec!["--request-timeout".into(), "3s".into()];
    let mut cluster = Cluster::with(options);
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    let (mut one, mut two) = (cluster.client(master), cluster.client(master));
    let held = token(&one.must(&["LOCK.ACQUIRE", "k", "one", "120000"]));
    // Busy.
    assert_eq!(two.must(&["LOCK.ACQUIRE", "k", "two", "120000"]).to_string(), "(nil)");
    // Lost: what the token protects is left alone.
    two.must(&["LOCK.REVOKE", "k"]);
    let lost = one.must(&["LOCK.DO", "k", &held.to_string(), "SET", "protected", "late"]);
    assert!(lost.is_error("LOCKLOST"), "{lost}");
    assert_eq!(two.must(&["EXISTS", "protected"]), Reply::Integer(0));
    // Uncertain: the master proposed it, and nobody answers. The same owner asks again, and has one hold, whether it had been done or not.
    others.iter().for_each(|node| cluster.stop(*node));
    let uncertain = one.ask(&["LOCK.ACQUIRE", "k", "one", "120000"]).unwrap();
    assert!(uncertain.is_error("UNCERTAIN"), "{uncertain}");
    // Certainly not done: by now there is no master. To ask again is right.
    let refused = two.ask(&["LOCK.ACQUIRE", "other", "two", "120000"]).unwrap();
    assert!(refused.is_error("CLUSTERDOWN") || refused.is_error("TRYAGAIN"), "{refused}");
    others.iter().for_each(|node| cluster.cont(*node));
    cluster.wait_for_master();
    let granted = wait_for("the lock for the same owner", || {
        one.ask(&["LOCK.ACQUIRE", "k", "one", "120000"]).ok().filter(|reply| reply.error().is_none())
    });
    let info = two.must(&["LOCK.INFO", "k"]);
    let holders = info.field("holders").map_or(0, |holders| holders.items().len());
    assert_eq!(holders, 1, "{info}");
    assert!(token(&granted) > held, "{granted} after {held}");
    assert_eq!(two.must(&["LOCK.INFO", "other"]).field("holders").map_or(0, |h| h.items().len()), 0);
}
