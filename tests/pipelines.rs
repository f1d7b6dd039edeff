//! Reads and writes in one pipeline: each read sees the writes before it and none behind it, on every node, and holds nothing up.
#![allow(missing_docs, clippy::unwrap_used)]

use harness::network::Network;
use harness::{Client, Cluster, Options, Reply, wait_for};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::Write;

const KEYS: u64 = 4;
const PIPELINES: usize = 60;

/// A command on one of few keys that begin with `prefix`.
fn command(rng: &mut StdRng, prefix: &str) -> Vec<String> {
    let key = format!("{prefix}{}", rng.random_range(0..KEYS));
    let number = rng.random_range(0..100).to_string();
    let words: &[&str] = match rng.random_range(0..20) {
        0 => &["SET", &key, &number],
        1 => &["APPEND", &key, &number],
        2 => &["INCR", &key],
        3 => &["DEL", &key],
        4 => &["RPUSH", &key, &number, "x"],
        5 => &["LPOP", &key],
        6 => &["HSET", &key, &number, "y"],
        7 => &["PEXPIRE", &key, "1000000"],
        8 => &["LOCK.ACQUIRE", &key, "me", "100000"],
        9 => &["LOCK.REVOKE", &key],
        10 => &["LOCK.CHECK", &key, "7"],
        11 => &["TYPE", &key],
        12 => &["EXISTS", &key, &key],
        13 => &["LRANGE", &key, "0", "-1"],
        14 => &["HGETALL", &key],
        15 => &["PERSIST", &key],
        16 => &["STRLEN", &key],
        _ => &["GET", &key],
    };
    words.iter().map(ToString::to_string).collect()
}

/// What says the same in two runs. Tokens differ; a time that is left does, too.
fn comparable(words: &[String], reply: &Reply) -> String {
    match words[0].as_str() {
        "LOCK.ACQUIRE" | "LOCK.CHECK" => reply.error().unwrap_or("done").to_string(),
        _ => reply.to_string(),
    }
}

#[test]
fn a_pipeline_says_what_its_commands_say_one_by_one() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 3);
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 0..PIPELINES {
        let node = cluster.all()[round % 3];
        let mut client = cluster.client(node);
        let length = rng.random_range(1..=120);
        let start = rng.clone();
        let commands = |rng: &mut StdRng, prefix: &str| -> Vec<Vec<String>> {
            (0..length).map(|_| command(rng, prefix)).collect()
        };
        let together = commands(&mut rng, &format!("together{round}:"));
        let replies = client.pipeline(&together).unwrap();
        let one_by_one = commands(&mut start.clone(), &format!("alone{round}:"));
        for (index, (words, reply)) in one_by_one.iter().zip(&replies).enumerate() {
            let alone = client.ask(words).unwrap();
            assert_eq!(
                comparable(words, reply),
                comparable(words, &alone),
                "n{node}, round {round}, command {index} of {length}: {words:?}"
            );
        }
    }
}

/// A short request for gigabytes, behind a write, from a client that does not read.
#[test]
fn reads_behind_a_write_are_not_all_done_at_once_when_they_are_large() {
    let cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 1);
    let mut client = cluster.client(1);
    client.must(&["SET", "big", &"x".repeat(15 << 20)]);
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid(1).unwrap())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let before = resident();
    let mut greedies = Vec::new();
    for known in [false, true] {
        let mut greedy = cluster.client(1);
        if known {
            greedy.pipeline(&[vec!["SET", "x", "1"], vec!["GET", "x"]]).unwrap(); // the node thinks that replies are small
        }
        let mut requests = Vec::new();
        harness::client::encode(&["SET", "x", "1"], &mut requests);
        for _ in 0..31 {
            harness::client::encode(&["MGET", "big", "big", "big", "big"], &mut requests);
        }
        greedy.raw().write_all(&requests).unwrap();
        wait_for("the first replies", || {
            let clients = client.must(&["CLIENT", "LIST"]).text()?;
            let held = |line: &str| line.split("omem=").nth(1)?.split(' ').next()?.parse::<u64>().ok();
            clients.lines().filter_map(held).max().filter(|bytes| *bytes > 50 << 20)
        });
        greedies.push(greedy);
    }
    let grown = resident() - before;
    assert!(grown < 700, "{grown} MB for two clients that do not read");
}

fn mailed(client: &mut Client) -> u64 {
    let info = client.must(&["INFO", "warlock"]).text().unwrap();
    info.lines().find_map(|line| line.strip_prefix("warlock_mailed:")).unwrap().parse().unwrap()
}

#[test]
fn a_read_behind_a_write_asks_nobody() {
    let cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 3);
    for node in cluster.all() {
        let mut client = cluster.client(node);
        let pairs: Vec<Vec<String>> = (0..16)
            .flat_map(|number| {
                [vec!["SET".into(), "key".into(), format!("{number}")], vec!["GET".into(), "key".into()]]
            })
            .collect();
        // How large replies are is not known before the first: it rides alone.
        client.pipeline(&pairs[..2]).unwrap();
        let before = mailed(&mut client);
        let replies = client.pipeline(&pairs).unwrap();
        for (number, pair) in replies.chunks(2).enumerate() {
            assert!(pair[0].is_ok() && pair[1].text() == Some(number.to_string()), "{pair:?}");
        }
        assert_eq!(mailed(&mut client) - before, 16, "only the writes went to the node's mailbox");
    }
}

/// A write of a member is decided, but the member does not know it yet. Meanwhile another client is told that it wrote; a read that comes to the member after that must see it, so it
/// must not be done where the member's own write stands in the log.
#[test]
fn a_read_behind_a_write_that_has_left_sees_what_others_were_told_since() {
    let Some(network) = Network::or_skip(3, "a read behind a write that has left") else { return };
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 3);
    options.places = network.places();
    options.flags = ["--protected-mode", "no"].map(String::from).to_vec();
    let cluster = Cluster::with(options);
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    let (deaf, other) = (others[0], others[1]);
    let (mut at_master, mut at_deaf, mut watcher) =
        (cluster.client(master), cluster.client(deaf), cluster.client(deaf));
    assert!(at_deaf.must(&["CLIENT", "SETNAME", "slow"]).is_ok());
    assert!(at_deaf.must(&["SET", "theirs", "old"]).is_ok());
    network.lose(master, deaf);
    network.lose(other, deaf);
    at_deaf.send(&["SET", "mine", "1"]).unwrap();
    wait_for("the write to be decided", || at_master.must(&["GET", "mine"]).text());
    assert!(at_master.must(&["SET", "theirs", "new"]).is_ok());
    at_deaf.send(&["GET", "theirs"]).unwrap();
    wait_for("the member to have taken the read", || {
        let clients = watcher.must(&["CLIENT", "LIST"]).text()?;
        clients.lines().any(|line| line.contains("name=slow") && line.contains("cmd=get")).then_some(())
    });
    network.heal();
    assert!(at_deaf.receive().unwrap().is_ok());
    assert_eq!(at_deaf.receive().unwrap().text().as_deref(), Some("new"));
}
