//! Random sequences of commands, on a real Redis and on a real node: every reply must be the same, in RESP2 and RESP3.
//!
//! A sequence begins with FLUSHALL in database 0 and is sent in one piece, so that its cost is not one round trip per command. When
//! replies differ, the sequence is made shorter as long as they still do, and printed with its seed.
//!
//! `DIFFERENTIAL_COMMANDS` (default 30,000) says how many, `DIFFERENTIAL_SEED` where to begin.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod caches;
mod compare;
mod generate;
mod random;
mod sides;
mod told;
mod wire;

use compare::{Comparison, Verdict};
use generate::{NOT_GENERATED, Step, makers, sequence};
use sides::Side;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::{Client, PATIENCE, Value};

/// Commands in one sequence.
const SEQUENCE: usize = 80;

/// The first reply that differs.
struct Difference {
    /// Which step.
    at: usize,
    redis: Value,
    ours: Value,
}

struct Pair {
    redis: Side,
    ours: Side,
}

impl Pair {
    /// Runs a sequence on both.
    fn run(&self, steps: &[Step], protocol: u8) -> Option<Difference> {
        let mut clients = [(self.redis.client(), self.redis.name), (self.ours.client(), self.ours.name)];
        let protocol = protocol.to_string();
        for (client, name) in &mut clients {
            for command in [&["HELLO", &protocol][..], &["FLUSHALL"]] {
                let answer =
                    client.ask(command).unwrap_or_else(|error| panic!("{name} to {command:?}: {error}"));
                assert!(!answer.is_error(), "{name} to {command:?}: {answer:?}");
            }
        }
        let mut comparison = Comparison::default();
        let mut at = 0;
        for part in steps.split_inclusive(|step| matches!(step, Step::UntilGone(_))) {
            let said = || {
                part.iter().filter_map(|step| if let Step::Say(words) = step { Some(words) } else { None })
            };
            for (client, name) in &mut clients {
                client
                    .send(said().map(Vec::as_slice))
                    .unwrap_or_else(|error| panic!("{name} takes no commands: {error}"));
            }
            // All replies are read, so that nothing of this sequence runs into the next.
            let (mut found, mut is_over) = (None, false);
            for (n, words) in said().enumerate() {
                let [redis, ours] = clients.each_mut().map(|(client, name)| {
                    client
                        .read()
                        .unwrap_or_else(|error| panic!("{name} does not answer to {}: {error}", show(words)))
                });
                if !is_over {
                    let verdict = comparison.of(words, &redis, &ours);
                    is_over = verdict != Verdict::Same;
                    if verdict == Verdict::Different {
                        found = Some(Difference { at: at + n, redis, ours });
                    }
                }
            }
            if is_over {
                return found;
            }
            at += part.len();
            if let Some(Step::UntilGone(key)) = part.last() {
                for (client, name) in &mut clients {
                    until_gone(client, name, key);
                }
            }
        }
        None
    }

    /// The shortest sequence found that still shows a difference.
    fn shorten(&self, steps: &[Step], protocol: u8, difference: &Difference) -> Vec<Step> {
        let mut shortest = steps[..=difference.at].to_vec();
        let mut size = shortest.len() / 2;
        while size > 0 {
            let mut from = 0;
            while from < shortest.len() {
                let mut shorter = shortest.clone();
                shorter.drain(from..(from + size).min(shortest.len()));
                match self.run(&shorter, protocol) {
                    Some(difference) => shortest = shorter[..=difference.at].to_vec(),
                    None => from += size,
                }
            }
            size /= 2;
        }
        shortest
    }
}

/// A key's time is over when the server says so; when it sweeps is its own business.
fn until_gone(client: &mut Client, name: &str, key: &[u8]) {
    let exists = [b"EXISTS".to_vec(), key.to_vec()];
    let start = Instant::now();
    loop {
        client
            .send(std::iter::once(&exists[..]))
            .unwrap_or_else(|error| panic!("{name} takes no commands: {error}"));
        match client.read() {
            Ok(reply) if reply.integer() == Some(0) => return,
            other => {
                assert!(start.elapsed() < PATIENCE, "{name}: {} is not gone: {other:?}", key.escape_ascii())
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn show(words: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| {
        if word.is_empty() || word.iter().any(|byte| !byte.is_ascii_graphic()) {
            format!("\"{}\"", word.escape_ascii())
        } else {
            String::from_utf8_lossy(word).into_owned()
        }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[test]
fn replies_are_those_of_redis() {
    let commands = setting("DIFFERENTIAL_COMMANDS", 30_000);
    let first_seed = setting("DIFFERENTIAL_SEED", 1);
    // Several differences at once are more useful than one at a time.
    let failures_max = setting("DIFFERENTIAL_FAILURES", 1);
    let pair = Pair { redis: Side::redis(), ours: Side::warlock() };
    let start = Instant::now();
    let sequences = commands.div_ceil(SEQUENCE as u64);
    println!("seeds {first_seed} to {}", first_seed + sequences - 1);
    let (mut said, mut failures) = (0, String::new());
    let mut failed = 0;
    for seed in first_seed..first_seed + sequences {
        let steps = sequence(seed, SEQUENCE);
        let protocol = 2 + (seed % 2) as u8;
        said += steps.len();
        if let Some(difference) = pair.run(&steps, protocol) {
            failures += &report(&pair, seed, protocol, &steps, &difference);
            failed += 1;
            if failed >= failures_max {
                break;
            }
        }
    }
    println!("{said} commands in {:.1?}", start.elapsed());
    assert!(failures.is_empty(), "{failures}");
}

fn report(pair: &Pair, seed: u64, protocol: u8, steps: &[Step], found: &Difference) -> String {
    let shortest = pair.shorten(steps, protocol, found);
    let again = pair.run(&shortest, protocol);
    let (steps, found) = match &again {
        Some(again) => (&shortest[..], again),
        None => (&steps[..=found.at], found),
    };
    let mut text =
        format!("\nseed {seed} (DIFFERENTIAL_SEED={seed} DIFFERENTIAL_COMMANDS=1), RESP{protocol}:\n");
    for step in steps {
        text += &match step {
            Step::Say(words) => format!("  {}\n", show(words)),
            Step::UntilGone(key) => format!("  (until {} is gone)\n", key.escape_ascii()),
        };
    }
    text + &format!("redis:   {}\nwarlock: {}\n", found.redis.show(), found.ours.show())
}

#[test]
fn every_command_is_generated_or_has_a_reason() {
    let data = storage::commands::all().map(|spec| spec.name);
    let own = server::commands::all().map(|own| own.name);
    let table: BTreeSet<_> = data.chain(own).collect();
    let made: BTreeSet<_> = makers().map(|(name, ..)| *name).collect();
    let left_out: BTreeSet<_> = NOT_GENERATED.iter().flat_map(|(_, names)| *names).copied().collect();
    // Redis has no command with a dot in its name: locks, queues and the like are ours.
    for name in table.iter().filter(|name| !name.contains('.')) {
        assert!(
            made.contains(name) || left_out.contains(name),
            "{name} is in the table, but the differential test does not generate it: add it to tests/differential/generate, or a reason to NOT_GENERATED"
        );
    }
    let both: Vec<_> = made.intersection(&left_out).collect();
    assert!(both.is_empty(), "generated and left out: {both:?}");
}

#[test]
fn a_seed_gives_the_same_sequence() {
    for seed in 0..50 {
        assert_eq!(format!("{:?}", sequence(seed, 100)), format!("{:?}", sequence(seed, 100)));
    }
}

/// Two clients wait, the first goes away; one element comes. The second gets it, even if the first was served before anybody saw that it
/// is gone. (Redis loses the element in that case.)
#[test]
fn a_client_that_is_gone_consumes_nothing() {
    let side = Side::warlock();
    let wait = [b"BLPOP".to_vec(), b"q".to_vec(), b"0".to_vec()];
    for round in 0..20 {
        let (mut gone, mut waits, mut other) = (side.client(), side.client(), side.client());
        gone.send(std::iter::once(&wait[..])).unwrap();
        waits.send(std::iter::once(&wait[..])).unwrap();
        drop(gone);
        assert_eq!(other.ask(&["RPUSH", "q", "x"]).unwrap().integer(), Some(1));
        let served =
            waits.read().unwrap_or_else(|error| panic!("round {round}: who waits is not served: {error}"));
        assert_eq!(served.show(), "*[\"q\" \"x\"]");
    }
}

/// The log's time stands still while nobody writes; what is left of a key's time must not.
#[test]
fn the_time_of_a_key_passes_while_nobody_writes() {
    let side = Side::warlock();
    let mut client = side.client();
    assert!(!client.ask(&["SET", "k", "v", "PX", "1000000"]).unwrap().is_error());
    let start = Instant::now();
    loop {
        let left_ms = client.ask(&["PTTL", "k"]).unwrap().integer().unwrap();
        if left_ms <= 999_500 {
            break;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "after {:?} PTTL says {left_ms} of 1,000,000 ms",
            start.elapsed()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
