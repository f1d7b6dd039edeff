//! Every role survives every message: in any order, duplicated, late, or absurd.
//!
//! Whole clusters of real nodes talk as usual, while a seeded generator throws in peer messages with numbers from the ends of their ranges,
//! ballots of nobody, empty views, contradicting values, and things that only a broken host would say. Nothing may panic (this
//! is a debug build: overflows do). `ABSURD_SEEDS=n` tries more seeds, `ABSURD_SEED=x` replays one.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

#[path = "absurd/cluster.rs"]
mod cluster;
#[path = "absurd/dice.rs"]
mod dice;
#[path = "absurd/nonsense.rs"]
mod nonsense;

use cluster::{Cluster, Mail};
use dice::Dice;
use nonsense::{Malice, Scene};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;
use warlock_consensus::{Config, NodeId};

/// The cluster survives crashes, not lies: a node that is told two decisions for one slot stops, by the name of the invariant, rather
/// than go on with a state that its peers do not have.
const LIES: &[&str] = &["R1: slot # is decided twice"];

/// Returns how many slots were decided in spite of everything.
fn run(seed: u64, malice: Malice, bold: bool, told: &mut BTreeMap<String, u64>) -> u64 {
    let mut dice = Dice(seed);
    let config =
        Config { durable_every: 4, log_keep: 8, window: 16, accept_ahead_max: 64, ..Config::default() };
    let mut cluster = Cluster::new(config);
    let mut late: Vec<Mail> = Vec::new();
    // Before that the cluster is left alone: nodes are fresh, in the middle of an election, or led.
    let first = dice.pick(&[0, 2, 10, 40]);
    for round in 0..100 {
        if dice.below(3) == 0 {
            cluster.submit(NodeId(1 + dice.below(3)));
        }
        if dice.below(60) == 0 {
            let id = NodeId(1 + dice.below(3));
            attempt(told, seed, || cluster.restart(id));
        }
        for _ in 0..300 {
            let dices = dice.below(if cluster.mail.is_empty() { 2 } else { 16 });
            let mail = match dices {
                0 if round >= first => {
                    Scene::of(&cluster, seed.is_multiple_of(2)).mail(&mut dice, malice, bold)
                }
                // Late and duplicated: what was said before is said again.
                1 if !late.is_empty() => dice.pick(&late),
                _ => match cluster.mail.pop_front() {
                    Some(mail) => mail,
                    None => break,
                },
            };
            if dices < 3 {
                late.push(mail.clone());
            }
            attempt(told, seed, || cluster.deliver(mail));
        }
        cluster.mail.truncate(1_000);
        late.drain(..late.len().saturating_sub(100));
        let time = Duration::from_millis(dice.below(400));
        attempt(told, seed, || cluster.pass(time));
    }
    cluster.nodes.values().map(|hosted| hosted.ledger.applied()).max().unwrap_or(0)
}

fn attempt(told: &mut BTreeMap<String, u64>, seed: u64, act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err() {
        let what = LAST_PANIC.with(std::cell::Cell::take);
        if !LIES.iter().any(|lie| what.contains(lie)) {
            told.entry(what).or_insert(seed);
        }
    }
}

thread_local! {
    static LAST_PANIC: std::cell::Cell<String> = const { std::cell::Cell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Keeps the place and the text of a panic, without the numbers in it, instead of printing them.
fn note_panics() {
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let mut place =
                info.location().map_or(String::new(), |at| format!("{}:{}", at.file(), at.line()));
            if place.starts_with("/rustc") {
                let trace = std::backtrace::Backtrace::force_capture().to_string();
                let line = trace.lines().find(|line| line.contains("src/") && !line.contains("/rustc"));
                place = line.map_or(place, |line| line.trim().trim_start_matches("at ").to_string());
            }
            let payload = info.payload();
            let text = match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
                (Some(text), _) => text.as_str(),
                (None, text) => text.copied().unwrap_or_default(),
            };
            if place.contains("tests/absurd") && !text.starts_with("work:") {
                return print(info);
            }
            let mut plain = text.replace(|c: char| c.is_ascii_digit(), "#");
            while plain.contains("##") {
                plain = plain.replace("##", "#");
            }
            // The names of invariants have digits, too.
            let name = text.split_once(": ").map_or("", |(name, _)| name);
            if name.len() == 2 {
                plain.replace_range(..2, name);
            }
            LAST_PANIC.with(|last| last.set(format!("{place}: {plain}")));
        }));
    });
}

/// Runs seeds, and tells each place where something panicked once.
fn survive(malice: Malice, bold: bool) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("ABSURD_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("ABSURD_SEEDS").unwrap_or(40),
    };
    note_panics();
    let mut told = BTreeMap::new();
    let decided: Vec<u64> = seeds.map(|seed| run(seed, malice, bold, &mut told)).collect();
    println!("slots decided per seed: {decided:?}");
    let lines: Vec<String> = told.iter().map(|(what, seed)| format!("seed {seed}: {what}")).collect();
    assert!(lines.is_empty(), "{} panics:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn roles_survive_peers_that_talk_nonsense() {
    survive(Malice::Peers, false);
}

#[test]
fn roles_survive_peers_that_talk_absurdly_large_nonsense() {
    survive(Malice::Peers, true);
}

#[test]
fn roles_survive_a_confused_host() {
    survive(Malice::Host, false);
}

#[test]
fn roles_survive_everything_at_once() {
    survive(Malice::Both, true);
}
