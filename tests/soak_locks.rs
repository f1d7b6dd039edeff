//! Many clients fight for one lock of a real cluster while nodes are killed, stopped, cut off from each other and their clocks set; a resource that
//! they may touch only with it looks on.
//!
//! The resource knows real time, because everybody is in this process. It checks, at every touch:
//! * nobody else is inside whose hold is certainly not over (mutual exclusion of token holders);
//! * tokens never fall for those who are certain, and a late one, whose holder slept past its time, is turned away once a newer one was there (fencing);
//! * a token is given to one holder only.
//!
//! Partitions need root and iproute2 (every node in a network namespace of its own); without them a line says that they are left out.
//!
//! 60 s in `make test`; `make soak-locks MINUTES=10` for longer. The seed of the faults is printed; `SOAK_SEED` sets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::network::Network;
use harness::{Client, Cluster, Options, Reply, wait_for};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const WORKERS: usize = 6;
const TTL: Duration = Duration::from_millis(1_500);

/// What is certainly ours of a hold that was asked for at `asked`: as `warlock lock` counts it.
fn certain_until(asked: Instant) -> Instant {
    asked + TTL.mul_f64(1.0 - 0.0045) - Duration::from_millis(10)
}

#[derive(Default)]
struct Seen {
    inside: Option<(i64, Instant)>,
    last: i64,
    owners: BTreeMap<i64, usize>,
    entered: u64,
    turned_away: u64,
    violations: Vec<String>,
}

/// What the lock protects.
#[derive(Default)]
struct Resource(Mutex<Seen>);

impl Resource {
    /// A holder that is certain comes in. False: its time was over before it came to it.
    fn enter(&self, worker: usize, token: i64, until: Instant) -> bool {
        let mut seen = self.0.lock().unwrap();
        let now = Instant::now();
        if now >= until {
            return false;
        }
        if let Some((other, other_until)) = seen.inside
            && now < other_until
        {
            seen.violations.push(format!(
                "token {token} of worker {worker} came in while {other} was certain for {:?}",
                other_until - now
            ));
        }
        if token < seen.last {
            let last = seen.last;
            seen.violations.push(format!("token {token} of worker {worker} came after {last}"));
        }
        let owner = *seen.owners.entry(token).or_insert(worker);
        if owner != worker {
            seen.violations.push(format!("token {token} was given to workers {owner} and {worker}"));
        }
        (seen.inside, seen.last) = (Some((token, until)), token);
        seen.entered += 1;
        true
    }

    fn leave(&self, token: i64) {
        let mut seen = self.0.lock().unwrap();
        if seen.inside.is_some_and(|(inside, _)| inside == token) {
            seen.inside = None;
        }
    }

    /// A holder that may be late: only its token counts.
    fn write_late(&self, token: i64) {
        let mut seen = self.0.lock().unwrap();
        if token < seen.last {
            seen.turned_away += 1;
        } else {
            seen.last = token;
        }
    }
}

/// Takes the lock again and again, through any node.
fn work(
    worker: usize,
    addresses: &[String],
    resource: &Resource,
    stop: &AtomicBool,
    seed: u64,
) -> (u64, u64, u64) {
    let mut random = StdRng::seed_from_u64(seed ^ worker as u64);
    let (mut granted, mut lost, mut unknown) = (0, 0, 0);
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let address = &addresses[random.random_range(0..addresses.len())];
        let Ok(mut client) = Client::try_connect(address) else { continue };
        if client.set_patience(Duration::from_secs(4)).is_err() {
            continue;
        }
        while !stop.load(Ordering::Relaxed) {
            round += 1;
            let owner = format!("worker{worker}:{round}");
            let Ok(reply) =
                client.ask(&["LOCK.ACQUIRE", "soak", &owner, &TTL.as_millis().to_string(), "WAIT", "2000"])
            else {
                unknown += 1;
                break;
            };
            let Some(token) = reply.items().first().and_then(Reply::integer) else { continue };
            granted += 1;
            let token_text = token.to_string();
            let asked = Instant::now();
            match client.ask(&["LOCK.RENEW", "soak", &token_text, &TTL.as_millis().to_string()]) {
                Ok(Reply::Integer(_)) => {}
                Ok(_) => {
                    lost += 1;
                    continue;
                }
                Err(_) => {
                    unknown += 1;
                    break;
                }
            }
            if resource.enter(worker, token, certain_until(asked)) {
                std::thread::sleep(Duration::from_millis(random.random_range(0..20)));
                resource.leave(token);
            }
            // Now and then a holder sleeps past its time and wakes up with its old token.
            if random.random_range(0..20) == 0 {
                std::thread::sleep(TTL + Duration::from_millis(random.random_range(0..1_000)));
                resource.write_late(token);
                continue;
            }
            match client.ask(&["LOCK.RELEASE", "soak", &token_text]) {
                Ok(Reply::Error(text)) if text.starts_with("LOCKLOST") => lost += 1,
                Ok(_) => {}
                Err(_) => {
                    unknown += 1;
                    break;
                }
            }
        }
    }
    (granted, lost, unknown)
}

/// Cuts a node off, in both directions or in one, or from one of the others.
fn cut(network: &Network, node: u16, how: u32) {
    let (next, other) = (node % 3 + 1, (node + 1) % 3 + 1);
    match how {
        0 => network.isolate(node),
        1 => {
            network.lose(node, next);
            network.lose(node, other);
        }
        2 => {
            network.lose(next, node);
            network.lose(other, node);
        }
        _ => {
            network.lose(node, next);
            network.lose(next, node);
        }
    }
}

fn seconds() -> u64 {
    std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

#[test]
fn one_token_at_a_time_whatever_happens_to_the_nodes() {
    let seed =
        std::env::var("SOAK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    println!("SOAK_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let network = Network::or_skip(3, "partitions in the soak of locks");
    let mut options = Options::new(WARLOCK, 3);
    options.env.push(("WARLOCK_TEST_FAULTS".into(), "1".into()));
    if let Some(network) = &network {
        options.places = network.places();
        options.flags = vec!["--protected-mode".into(), "no".into()];
    }
    let mut cluster = Cluster::with(options);
    // A clock that was set forward and never back may be one node's only: a majority's wrong wall clocks are the truth after all have restarted.
    let stepped = random.random_range(1..=3);
    let (resource, stop) = (Arc::new(Resource::default()), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (addresses, resource, stop) = (cluster.addresses(), resource.clone(), stop.clone());
            std::thread::spawn(move || work(worker, &addresses, &resource, &stop, seed))
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(seconds());
    let (mut kills, mut pauses, mut both, mut cuts, mut steps) = (0, 0, 0, 0, 0);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(random.random_range(200..2_500)));
        let node = if random.random_range(0..2) == 0 { cluster.master() } else { random.random_range(1..=3) };
        match random.random_range(0..9) {
            0 | 1 => {
                kills += 1;
                cluster.kill(node);
                std::thread::sleep(Duration::from_millis(random.random_range(0..2_500)));
                cluster.run(node);
            }
            2 | 3 => {
                // Past the lease, and often past the time of a hold.
                pauses += 1;
                cluster.stop(node);
                std::thread::sleep(Duration::from_millis(random.random_range(300..4_000)));
                cluster.cont(node);
            }
            5 | 6 if network.is_some() => {
                cuts += 1;
                if let Some(network) = &network {
                    cut(network, node, random.random_range(0..4));
                    std::thread::sleep(Duration::from_millis(random.random_range(300..4_000)));
                    network.heal();
                }
            }
            7 | 8 => {
                let by_ms = if random.random_range(0..2) == 0 {
                    random.random_range(-5_000_i64..0)
                } else {
                    -random.random_range(0_i64..3_600_000)
                };
                let (node, by_ms) =
                    if random.random_range(0..2) == 0 { (stepped, -by_ms) } else { (node, by_ms) };
                let text = by_ms.to_string();
                let answer = Client::try_connect(&cluster.address(node))
                    .and_then(|mut client| client.ask(&["WARLOCK", "DEBUG", "CLOCK", &text]));
                steps += usize::from(answer.is_ok_and(|reply| reply.error().is_none()));
            }
            _ => {
                both += 1;
                let other = node % 3 + 1;
                cluster.stop(other);
                cluster.kill(node);
                std::thread::sleep(Duration::from_millis(random.random_range(300..2_000)));
                cluster.cont(other);
                cluster.run(node);
            }
        }
        cluster.wait_for_master();
        let seen = resource.0.lock().unwrap();
        assert!(seen.violations.is_empty(), "seed {seed}: {:#?}", seen.violations);
    }
    // Healed: everybody gets on.
    let before = resource.0.lock().unwrap().entered;
    wait_for("the lock to change hands after the faults", || {
        (resource.0.lock().unwrap().entered > before + 20).then_some(())
    });
    stop.store(true, Ordering::Relaxed);
    let mut sums = (0, 0, 0);
    for worker in workers {
        let (granted, lost, unknown) = worker.join().unwrap();
        sums = (sums.0 + granted, sums.1 + lost, sums.2 + unknown);
    }
    let seen = resource.0.lock().unwrap();
    assert!(seen.violations.is_empty(), "seed {seed}: {:#?}", seen.violations);
    assert_eq!(cluster.client(cluster.master()).must(&["WARLOCK", "STATUS"]).error(), None);
    println!(
        "{} s: {kills} kills, {pauses} pauses, {both} times both, {cuts} cuts, {steps} clocks set; {} grants, {} entries, {} lost, {} unknown, {} late tokens turned away",
        seconds(),
        sums.0,
        seen.entered,
        sums.1,
        sums.2,
        seen.turned_away
    );
}
