//! Measures locks of a real three-node cluster: what a held lock costs in memory, what ten thousand waiters cost and how often each is woken, how many slots
//! a hand-over takes, and the CPU of an acquire and release, as a native pair and as SET NX PX with compare-and-delete.
//!
//! `locks [--held 1000000] [--waiters 10000] [--handovers 1000] [--pairs 200000] [--binary path]`

#![allow(clippy::expect_used, reason = "a measurement that cannot be made ends")]

use std::fs;
use warlock_harness::report::{measured_binary, option, progress};
use warlock_harness::{Client, Cluster, Reply, wait_for};

const PIPELINE: usize = 500;

fn main() {
    let cluster = Cluster::start(measured_binary(), 3);
    let mut is_met = true;
    let mut goal = |holds: bool, text: String| {
        is_met &= holds;
        println!("{} {text}", if holds { "ok  " } else { "MISS" });
    };
    let waiters: usize = option("--waiters", 10_000);
    let (bytes, woken, slots) = crowd(&cluster, waiters);
    goal(
        bytes < 100 << 20,
        format!(
            "{waiters} waiters on one key of one node: {} KB more on that node (goal: below 100 MB)",
            bytes >> 10
        ),
    );
    goal(woken == waiters, format!("wake-ups: {woken} replies for {waiters} waiters (goal: one each)"));
    println!("     {slots:.2} slots for each hand-over in this crowd");
    let handovers: u64 = option("--handovers", 1_000);
    let slots = hand_over(&cluster, handovers);
    goal(
        slots <= 2.0,
        format!(
            "a contended lock, two nodes in turn: {slots:.2} slots from one holder to the next (goal: at most 2)"
        ),
    );
    let pairs: usize = option("--pairs", 200_000);
    let (mut native, mut old) = (Vec::new(), Vec::new());
    for round in 1..=4 {
        native.push(pair_cost(&cluster, pairs / 4, &native_pair));
        old.push(pair_cost(&cluster, pairs / 4, &old_pair));
        progress("pairs", round, 4, "");
    }
    let (native, old) = (median(native), median(old));
    goal(
        native <= old,
        format!(
            "CPU of three nodes per acquire + release: {native:.1} µs native, {old:.1} µs as SET NX PX + DELIFEQ ({:.2}; goal: at most 1)",
            native / old
        ),
    );
    let held: usize = option("--held", 1_000_000);
    let bytes = hold_many(&cluster, held);
    goal(
        bytes < 1_024,
        format!("{held} held locks with a time to live: {bytes} bytes each on a node (goal: below 1,024)"),
    );
    if !is_met {
        std::process::exit(1);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn status_field(cluster: &Cluster, node: u16, field: &str) -> u64 {
    let pid = cluster.pid(node).expect("the node runs");
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the system tells");
    let line = text.lines().find(|line| line.starts_with(field)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

fn resident(cluster: &Cluster, node: u16) -> u64 {
    status_field(cluster, node, "VmRSS:") * 1_024
}

/// CPU time of all nodes, in microseconds.
fn cpu_us(cluster: &Cluster) -> u64 {
    let of = |node: u16| -> u64 {
        let pid = cluster.pid(node).expect("the node runs");
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the system tells");
        let after = text.rsplit(')').next().unwrap_or("");
        let ticks = |index: usize| -> u64 {
            after.split_whitespace().nth(index).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
        };
        (ticks(11) + ticks(12)) * 10_000
    };
    cluster.all().into_iter().map(of).sum()
}

fn applied(client: &mut Client) -> i64 {
    let status = client.must(&["WARLOCK", "STATUS"]);
    status.field("applied").and_then(Reply::integer).unwrap_or_else(|| panic!("no slot in {status}"))
}

fn token(reply: &Reply) -> String {
    reply.items().first().and_then(Reply::integer).unwrap_or_else(|| panic!("no grant: {reply}")).to_string()
}

/// Many wait on one key, then it goes from hand to hand: memory, replies, and slots for each hand-over.
fn crowd(cluster: &Cluster, waiters: usize) -> (u64, usize, f64) {
    let node = cluster.all().into_iter().find(|node| !cluster.is_master(*node)).unwrap_or(1);
    let mut holder = cluster.client(cluster.master());
    let mut held = token(&holder.must(&["LOCK.ACQUIRE", "crowd", "holder", "600000"]));
    let before = resident(cluster, node);
    let mut clients: Vec<Client> = Vec::with_capacity(waiters);
    for number in 0..waiters {
        let mut client = cluster.client(node);
        let owner = format!("waiter{number}");
        client
            .send(&["LOCK.ACQUIRE", "crowd", &owner, "600000", "WAIT", "3600000"])
            .unwrap_or_else(|error| panic!("waiter {number}: {error}"));
        clients.push(client);
        if number % 1_000 == 999 {
            progress("waiters", number + 1, waiters, "");
        }
    }
    wait_for("everybody to wait in line", || {
        let info = holder.must(&["LOCK.LIST", "WAITED"]);
        (count_waiters(&info) >= waiters).then_some(())
    });
    let bytes = resident(cluster, node).saturating_sub(before);
    let slots_before = applied(&mut holder);
    let mut woken = 0;
    for (index, client) in clients.iter_mut().enumerate() {
        holder.must(&["LOCK.RELEASE", "crowd", &held]);
        held =
            token(&client.receive().unwrap_or_else(|error| panic!("waiter {index} was not woken: {error}")));
        woken += 1;
    }
    let slots = (applied(&mut holder) - slots_before) as f64 / waiters as f64;
    holder.must(&["LOCK.RELEASE", "crowd", &held]);
    // Whoever was woken twice has a second reply before that of its next request.
    for client in &mut clients {
        let pong = client.must(&["PING"]);
        woken += usize::from(pong.text().as_deref() != Some("PONG"));
    }
    (bytes, woken, slots)
}

/// How many wait for a lock, from LOCK.LIST.
fn count_waiters(list: &Reply) -> usize {
    let numbers = list.items().iter().map(|lock| {
        lock.field("waiters").or_else(|| lock.items().last()).and_then(Reply::integer).unwrap_or(0)
    });
    numbers.map(|count| usize::try_from(count).unwrap_or(0)).sum()
}

/// Two clients on two nodes hand one lock to each other: slots for each hand-over, the request of the next holder included.
fn hand_over(cluster: &Cluster, count: u64) -> f64 {
    let mut both = [cluster.client(1), cluster.client(2)];
    let acquire =
        |owner: &str| ["LOCK.ACQUIRE", "hands", owner, "600000", "WAIT", "600000"].map(String::from);
    let mut held = token(&both[0].must(&acquire("a")));
    both[1].send(&acquire("b")).unwrap_or_else(|error| panic!("{error}"));
    wait_for("the second to wait", || {
        (count_waiters(&both[0].must(&["LOCK.LIST", "WAITED"])) == 1).then_some(())
    });
    let before = applied(&mut both[0]);
    for round in 0..count {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        // Given back and asked for again in one breath, so that somebody waits all the time.
        let owner = if from == 0 { "a" } else { "b" };
        both[from].send(&["LOCK.RELEASE", "hands", &held]).unwrap_or_else(|error| panic!("{error}"));
        both[from].send(&acquire(owner)).unwrap_or_else(|error| panic!("{error}"));
        both[from].receive().unwrap_or_else(|error| panic!("{error}"));
        held = token(&both[to].receive().unwrap_or_else(|error| panic!("{error}")));
    }
    let slots = (applied(&mut cluster.client(3)) - before) as f64 / count as f64;
    let mut last = cluster.client(3);
    last.must(&["LOCK.REVOKE", "hands"]);
    slots
}

fn native_pair(client: &mut Client, first: usize) {
    let keys: Vec<String> = (first..first + PIPELINE).map(|n| format!("lock:{n}")).collect();
    let acquire: Vec<[&str; 4]> = keys.iter().map(|key| ["LOCK.ACQUIRE", key, "owner", "60000"]).collect();
    let granted = client.pipeline(&acquire).unwrap_or_else(|error| panic!("{error}"));
    let tokens: Vec<String> = granted.iter().map(token).collect();
    let release: Vec<[&str; 3]> =
        keys.iter().zip(&tokens).map(|(key, token)| ["LOCK.RELEASE", key, token]).collect();
    let released = client.pipeline(&release).unwrap_or_else(|error| panic!("{error}"));
    assert!(released.iter().all(|reply| reply.integer() == Some(0)), "a lock was lost");
}

fn old_pair(client: &mut Client, first: usize) {
    let keys: Vec<String> = (first..first + PIPELINE).map(|n| format!("old:{n}")).collect();
    let set: Vec<[&str; 6]> = keys.iter().map(|key| ["SET", key, "owner", "NX", "PX", "60000"]).collect();
    let set = client.pipeline(&set).unwrap_or_else(|error| panic!("{error}"));
    assert!(set.iter().all(Reply::is_ok), "a lock was not taken");
    let delete: Vec<[&str; 3]> = keys.iter().map(|key| ["DELIFEQ", key, "owner"]).collect();
    let deleted = client.pipeline(&delete).unwrap_or_else(|error| panic!("{error}"));
    assert!(deleted.iter().all(|reply| reply.integer() == Some(1)), "a lock was lost");
}

/// CPU of all nodes for one pair, in microseconds.
fn pair_cost(cluster: &Cluster, pairs: usize, pair: &dyn Fn(&mut Client, usize)) -> f64 {
    let mut client = cluster.client(cluster.master());
    pair(&mut client, 0);
    let before = cpu_us(cluster);
    for first in (0..pairs).step_by(PIPELINE) {
        pair(&mut client, first);
    }
    (cpu_us(cluster) - before) as f64 / pairs as f64
}

/// Resident bytes of a node for each of many held locks.
fn hold_many(cluster: &Cluster, held: usize) -> u64 {
    let master = cluster.master();
    let mut client = cluster.client(master);
    let before = resident(cluster, master);
    for first in (0..held).step_by(PIPELINE) {
        let keys: Vec<String> = (first..held.min(first + PIPELINE)).map(|n| format!("held:{n:09}")).collect();
        let acquire: Vec<[&str; 4]> =
            keys.iter().map(|key| ["LOCK.ACQUIRE", key, "owner", "3600000"]).collect();
        let granted = client.pipeline(&acquire).unwrap_or_else(|error| panic!("{error}"));
        granted.iter().for_each(|reply| drop(token(reply)));
        if first % (PIPELINE * 50) == 0 || first + PIPELINE >= held {
            progress("held", (first + PIPELINE).min(held), held, "");
        }
    }
    resident(cluster, master).saturating_sub(before) / held as u64
}
