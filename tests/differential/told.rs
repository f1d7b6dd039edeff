//! What subscribers of keyspace notifications hear: the same messages in the same order as from Redis, command by command.
//!
//! Behind every command of a sequence a marker is published, so that a difference is known by its command. `expired` is left out: Redis tells it when it
//! happens to find the key, a node when its master sweeps.

use crate::compare::{Comparison, Verdict};
use crate::generate::{Step, Words, sequence};
use crate::sides::Side;
use crate::wire::{Client, Value};
use crate::{Pair, setting, show};

/// Commands in one sequence, without the markers.
const SEQUENCE: usize = 60;
const MARK: &str = "__keymark__:";
const END: &str = "end";

fn text(value: &Value) -> String {
    match value {
        Value::Text(_, text) => String::from_utf8_lossy(text).into_owned(),
        other => other.show(),
    }
}

fn mark(name: &str) -> Words {
    ["PUBLISH", MARK, name].iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Someone who hears everything.
fn listener(side: &Side) -> Client {
    let mut client = side.client();
    let answer = client.ask(&["PSUBSCRIBE", "__key*__:*"]).unwrap();
    assert!(!answer.is_error(), "{}: {answer:?}", side.name);
    client
}

/// Messages up to the marker of that name, markers included.
fn hear(listener: &mut Client, name: &str, until: &str) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        let message = listener
            .read()
            .unwrap_or_else(|error| panic!("{name} told only {heard:?} before the marker {until}: {error}"));
        let Value::List(_, parts) = message else { panic!("{name} told {message:?}") };
        let (channel, message) = (text(&parts[2]), text(&parts[3]));
        if message == "expired" || channel.ends_with(":expired") {
            continue;
        }
        let is_last = channel == MARK && message == until;
        heard.push(format!("{channel} {message}"));
        if is_last {
            return heard;
        }
    }
}

/// Runs a sequence on both; says what was heard differently.
fn difference(pair: &Pair, listeners: &mut [(Client, &'static str); 2], steps: &[Words]) -> Option<String> {
    let mut clients = [pair.redis.client(), pair.ours.client()];
    for client in &mut clients {
        assert!(!client.ask(&["FLUSHALL"]).unwrap().is_error());
    }
    let said: Vec<Words> =
        steps.iter().enumerate().flat_map(|(n, words)| [words.clone(), mark(&n.to_string())]).collect();
    // The last marker must not wait in a transaction.
    let last = [vec![b"DISCARD".to_vec()], mark(END)];
    for client in &mut clients {
        client.send(said.iter().chain(&last).map(Vec::as_slice)).unwrap();
    }
    let (mut comparison, mut compared) = (Comparison::default(), None);
    for (n, words) in said.iter().chain(&last).enumerate() {
        let [redis, ours] = clients.each_mut().map(|client| client.read().unwrap());
        if compared.is_none() && n < said.len() && comparison.of(words, &redis, &ours) != Verdict::Same {
            // Replies are the other test's business; behind a known difference the two hold something else.
            compared = Some(n / 2);
        }
    }
    let [redis, ours] = listeners.each_mut().map(|(listener, name)| hear(listener, name, END));
    // Markers of queued commands come with EXEC, or never: the last one that both told counts.
    let marks = (0..compared.unwrap_or(0)).rev().map(|step| format!("{MARK} {step}"));
    let stop = marks.into_iter().find(|mark| redis.contains(mark) && ours.contains(mark));
    let before = |heard: Vec<String>| match (compared, &stop) {
        (None, _) => heard,
        (Some(_), None) => Vec::new(),
        (Some(_), Some(stop)) => heard.into_iter().take_while(|told| told != stop).collect(),
    };
    let (redis, ours) = (before(redis), before(ours));
    if redis == ours {
        return None;
    }
    let same = redis.iter().zip(&ours).take_while(|(redis, ours)| redis == ours).count();
    let from =
        |heard: &[String]| heard.iter().skip(same.saturating_sub(3)).take(8).cloned().collect::<Vec<_>>();
    Some(format!("redis:   {:?}\nwarlock: {:?}", from(&redis), from(&ours)))
}

#[test]
fn what_happens_to_keys_is_told_as_by_redis() {
    let commands = setting("DIFFERENTIAL_TOLD", 6_000);
    let first_seed = setting("DIFFERENTIAL_SEED", 1);
    let pair = Pair { redis: Side::redis(), ours: Side::warlock() };
    let mut listeners = [&pair.redis, &pair.ours].map(|side| (listener(side), side.name));
    for side in [&pair.redis, &pair.ours] {
        let answer = side.client().ask(&["CONFIG", "SET", "notify-keyspace-events", "AKEmn"]).unwrap();
        assert!(!answer.is_error(), "{}: {answer:?}", side.name);
    }
    let sequences = commands.div_ceil(SEQUENCE as u64);
    println!("seeds {first_seed} to {}", first_seed + sequences - 1);
    let mut told = 0;
    for seed in first_seed..first_seed + sequences {
        let steps = sequence(seed, SEQUENCE);
        if steps.iter().any(|step| matches!(step, Step::UntilGone(_))) {
            continue;
        }
        let mut steps: Vec<Words> = steps
            .into_iter()
            .filter_map(|step| if let Step::Say(words) = step { Some(words) } else { None })
            .collect();
        told += steps.len();
        let Some(mut found) = difference(&pair, &mut listeners, &steps) else { continue };
        let mut size = steps.len() / 2;
        while size > 0 {
            let mut from = 0;
            while from < steps.len() {
                let mut shorter = steps.clone();
                shorter.drain(from..(from + size).min(steps.len()));
                match difference(&pair, &mut listeners, &shorter) {
                    Some(still) => (steps, found) = (shorter, still),
                    None => from += size,
                }
            }
            size /= 2;
        }
        let lines: Vec<_> = steps.iter().map(|words| show(words)).collect();
        panic!(
            "seed {seed} (DIFFERENTIAL_SEED={seed} DIFFERENTIAL_TOLD=1):\n  {}\n{found}",
            lines.join("\n  ")
        );
    }
    println!("{told} commands");
}
