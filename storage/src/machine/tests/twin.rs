//! The machine against a naive twin: a map of strings with deadlines, and commands in a few lines each.

use super::support::{Lab, show};
use crate::commands::sweep;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Entry {
    value: Vec<u8>,
    deadline_ms: Option<u64>,
}

/// Databases of strings.
#[derive(Default)]
struct Twin {
    databases: [BTreeMap<String, Entry>; 3],
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Sweep(u32),
    Say { db: u8, command: String },
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "a-rather-long-key-that-does-not-fit-in-place"])
        .prop_map(String::from)
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![(-20..20_i64).prop_map(|n| n.to_string()), "[a-z]{1,40}"]
}

fn step() -> impl Strategy<Value = Step> {
    let ms = 1..50_u64;
    let command = prop_oneof![
        (key(), value()).prop_map(|(k, v)| format!("SET {k} {v}")),
        (key(), value(), ms.clone()).prop_map(|(k, v, ms)| format!("SET {k} {v} PX {ms}")),
        (key(), value()).prop_map(|(k, v)| format!("SET {k} {v} NX")),
        (key(), value()).prop_map(|(k, v)| format!("SET {k} {v} XX KEEPTTL GET")),
        (key(), value(), value()).prop_map(|(k, v, o)| format!("SET {k} {v} IFEQ {o}")),
        key().prop_map(|k| format!("GET {k}")),
        key().prop_map(|k| format!("DEL {k}")),
        (key(), value()).prop_map(|(k, v)| format!("DELIFEQ {k} {v}")),
        (key(), -5..5_i64).prop_map(|(k, n)| format!("INCRBY {k} {n}")),
        (key(), value()).prop_map(|(k, v)| format!("APPEND {k} {v}")),
        (key(), ms).prop_map(|(k, ms)| format!("PEXPIRE {k} {ms}")),
        key().prop_map(|k| format!("PERSIST {k}")),
        key().prop_map(|k| format!("PTTL {k}")),
        (key(), key()).prop_map(|(k, l)| format!("RENAME {k} {l}")),
        (key(), key()).prop_map(|(k, l)| format!("COPY {k} {l} REPLACE")),
        (key(), 0..3_u8).prop_map(|(k, db)| format!("MOVE {k} {db}")),
        (0..3_u8, 0..3_u8).prop_map(|(a, b)| format!("SWAPDB {a} {b}")),
        Just("FLUSHDB".to_string()),
        Just("KEYS *".to_string()),
    ];
    prop_oneof![
        2 => (1..30_u64).prop_map(Step::Wait),
        1 => (0..5_u32).prop_map(Step::Sweep),
        12 => (0..3_u8, command).prop_map(|(db, command)| Step::Say { db, command }),
    ]
}

impl Twin {
    fn drop_expired(&mut self, now_ms: u64) {
        for database in &mut self.databases {
            database.retain(|_, entry| entry.deadline_ms.is_none_or(|deadline_ms| now_ms <= deadline_ms));
        }
    }

    fn say(&mut self, db: u8, command: &str, now_ms: u64) -> String {
        self.drop_expired(now_ms);
        let bulk = |entry: &Entry| format!("\"{}\"", entry.value.escape_ascii());
        let words: Vec<&str> = command.split(' ').collect();
        let here = usize::from(db);
        let map = &mut self.databases[here];
        let entry = |value: &str, deadline_ms| Entry { value: value.into(), deadline_ms };
        let flag = |yes: bool| i32::from(yes).to_string();
        match words[..] {
            ["SET", k, v] => {
                map.insert(k.into(), entry(v, None));
                "OK".into()
            }
            ["SET", k, v, "PX", ms] => {
                map.insert(k.into(), entry(v, Some(now_ms + ms.parse::<u64>().unwrap())));
                "OK".into()
            }
            ["SET", k, v, "NX"] => {
                if map.contains_key(k) {
                    return "nil".into();
                }
                map.insert(k.into(), entry(v, None));
                "OK".into()
            }
            ["SET", k, v, "XX", "KEEPTTL", "GET"] => {
                let Some(old) = map.get_mut(k) else { return "nil".into() };
                let reply = bulk(old);
                old.value = v.into();
                reply
            }
            ["SET", k, v, "IFEQ", o] => {
                if map.get(k).is_none_or(|old| old.value != o.as_bytes()) {
                    return "nil".into();
                }
                map.insert(k.into(), entry(v, None));
                "OK".into()
            }
            ["GET", k] => map.get(k).map_or("nil".into(), bulk),
            ["DEL", k] => flag(map.remove(k).is_some()),
            ["DELIFEQ", k, v] => {
                let equal = map.get(k).is_some_and(|old| old.value == v.as_bytes());
                if equal {
                    map.remove(k);
                }
                flag(equal)
            }
            ["INCRBY", k, n] => {
                let old = map.get(k).map_or("0".into(), |old| String::from_utf8(old.value.clone()).unwrap());
                let is_regular = old.parse::<i64>().is_ok_and(|n| n.to_string() == old);
                if !is_regular {
                    return "-ERR value is not an integer or out of range".into();
                }
                let new = (old.parse::<i64>().unwrap() + n.parse::<i64>().unwrap()).to_string();
                let deadline_ms = map.get(k).and_then(|old| old.deadline_ms);
                map.insert(k.into(), entry(&new, deadline_ms));
                new
            }
            ["APPEND", k, v] => {
                let old = map.entry(k.into()).or_insert_with(|| entry("", None));
                old.value.extend_from_slice(v.as_bytes());
                old.value.len().to_string()
            }
            ["PEXPIRE", k, ms] => {
                let Some(old) = map.get_mut(k) else { return "0".into() };
                old.deadline_ms = Some(now_ms + ms.parse::<u64>().unwrap());
                "1".into()
            }
            ["PERSIST", k] => flag(map.get_mut(k).is_some_and(|old| old.deadline_ms.take().is_some())),
            ["PTTL", k] => match map.get(k) {
                None => "-2".into(),
                Some(Entry { deadline_ms: None, .. }) => "-1".into(),
                Some(Entry { deadline_ms: Some(deadline_ms), .. }) => (deadline_ms - now_ms).to_string(),
            },
            ["RENAME", k, l] => {
                let Some(old) = map.remove(k) else { return "-ERR no such key".into() };
                map.insert(l.into(), old);
                "OK".into()
            }
            ["COPY", k, l, "REPLACE"] => {
                if k == l {
                    return "-ERR source and destination objects are the same".into();
                }
                let Some(old) = map.get(k).cloned() else { return "0".into() };
                map.insert(l.into(), old);
                "1".into()
            }
            ["MOVE", k, to] => {
                let to: usize = to.parse().unwrap();
                if to == here {
                    return "-ERR source and destination objects are the same".into();
                }
                if self.databases[to].contains_key(k) {
                    return "0".into();
                }
                let Some(old) = self.databases[here].remove(k) else { return "0".into() };
                self.databases[to].insert(k.into(), old);
                "1".into()
            }
            ["SWAPDB", a, b] => {
                self.databases.swap(a.parse().unwrap(), b.parse().unwrap());
                "OK".into()
            }
            ["FLUSHDB"] => {
                map.clear();
                "OK".into()
            }
            ["KEYS", "*"] => {
                format!("[{}]", map.keys().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" "))
            }
            _ => unreachable!("{command}"),
        }
    }
}

/// KEYS has no order.
fn normal(reply: String) -> String {
    let Some(inner) = reply.strip_prefix('[').and_then(|reply| reply.strip_suffix(']')) else { return reply };
    let mut items: Vec<_> = inner.split(' ').collect();
    items.sort_unstable();
    format!("[{}]", items.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn agrees_with_a_naive_twin(steps in prop::collection::vec(step(), 1..120)) {
        let (mut lab, mut twin) = (Lab::new(), Twin::default());
        for step in &steps {
            match step {
                Step::Wait(ms) => lab.now_ms += ms,
                Step::Sweep(limit) => {
                    let removed = show(&lab.apply(&sweep(*limit)));
                    prop_assert!(removed.parse::<u32>().unwrap() <= *limit);
                }
                Step::Say { db, command } => {
                    lab.db = *db;
                    let expected = normal(twin.say(*db, command, lab.now_ms));
                    prop_assert_eq!(normal(lab.say(command)), expected, "{}", command);
                }
            }
        }
        lab.check_invariants();
        // When everything that is over is swept, DBSIZE is the truth.
        while lab.apply(&sweep(1000)) != crate::reply::Reply::Integer(0) {}
        twin.drop_expired(lab.now_ms);
        for db in 0..3 {
            lab.db = db;
            prop_assert_eq!(lab.say("DBSIZE"), twin.databases[usize::from(db)].len().to_string());
        }
    }
}
