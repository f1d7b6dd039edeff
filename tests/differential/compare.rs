//! When two replies are the same: what has no order is sorted, what is random is compared by its shape, what counts the time is compared roughly.
//! Everything else is compared as it stands.

use crate::generate::Words;
use crate::wire::Value;

/// What the two replies to a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Same,
    /// They differ as is said in [`KNOWN`]. What is stored may differ from now on, so the rest of the sequence is not compared.
    Known(&'static str),
    Different,
}

/// A difference that is meant to be.
pub struct Known {
    /// Also in the column of docs/commands.md.
    pub reason: &'static str,
    /// Whether both sides still hold the same afterwards.
    pub keeps_state: bool,
    /// Whether the two replies (Redis's, ours) differ in this way.
    pub applies: fn(&Words, &Value, &Value) -> bool,
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known {
        reason: "SORT refuses good numbers when an earlier command met one out of range: Redis looks at a stale errno",
        keeps_state: false,
        applies: |words, redis, ours| {
            let refusal = b"ERR One or more scores can't be converted into double";
            (words[0].eq_ignore_ascii_case(b"SORT") || words[0].eq_ignore_ascii_case(b"SORT_RO"))
                && matches!(redis, Value::Line('-', text) if text == refusal)
                && !ours.is_error()
        },
    },
    Known {
        reason: "SORT ALPHA compares bytes, also those behind a NUL, where the locale's comparison ends",
        keeps_state: true,
        applies: |words, redis, ours| {
            let is_alpha = words.iter().any(|word| word.eq_ignore_ascii_case(b"ALPHA"));
            let has_nul = |value: &Value| matches!(value, Value::List(_, items) if items.iter().any(|item| matches!(item, Value::Text(_, text) if text.contains(&0))));
            (words[0].eq_ignore_ascii_case(b"SORT") || words[0].eq_ignore_ascii_case(b"SORT_RO"))
                && is_alpha
                && has_nul(redis)
                && sorted(redis, 1) == sorted(ours, 1)
        },
    },
    Known {
        reason: "OBJECT ENCODING is what Redis would choose for the value as it is now; its own depends on the value's past",
        keeps_state: true,
        applies: |words, redis, ours| {
            let (Value::Text('$', redis), Value::Text('$', ours)) = (redis, ours) else { return false };
            let both = |names: &[&[u8]]| [redis, ours].iter().all(|encoding| names.contains(&&encoding[..]));
            words[0].eq_ignore_ascii_case(b"OBJECT")
                && (both(&[b"int", b"embstr", b"raw"]) || both(&[b"listpack", b"hashtable"]))
        },
    },
    Known {
        reason: "OBJECT REFCOUNT is 1 and IDLETIME 0: nothing is shared, nothing is evicted",
        keeps_state: true,
        applies: |words, redis, ours| {
            let is = |name: &[u8]| words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(name));
            words[0].eq_ignore_ascii_case(b"OBJECT")
                && redis.integer().is_some()
                && (is(b"REFCOUNT") && ours.integer() == Some(1)
                    || is(b"IDLETIME") && ours.integer() == Some(0))
        },
    },
    Known {
        reason: "a wrong subcommand of OBJECT or MEMORY is found by EXEC, not when it is queued",
        keeps_state: false,
        applies: |words, redis, ours| {
            let is_container =
                words[0].eq_ignore_ascii_case(b"OBJECT") || words[0].eq_ignore_ascii_case(b"MEMORY");
            is_container && redis.is_error() && matches!(ours, Value::Line('+', text) if text == b"QUEUED")
        },
    },
    Known {
        reason: "MEMORY USAGE of a key whose time has passed is nothing; Redis counts it until it is removed",
        keeps_state: true,
        applies: |words, redis, ours| {
            words[0].eq_ignore_ascii_case(b"MEMORY")
                && redis.integer().is_some()
                && matches!(ours, Value::Null(_))
        },
    },
    Known {
        reason: "INCRBYFLOAT and HINCRBYFLOAT take no hexadecimal numbers",
        keeps_state: false,
        applies: |words, redis, ours| {
            let is_float = |name: &[u8]| words[0].eq_ignore_ascii_case(name);
            let is_refused = matches!(ours, Value::Line('-', text)
                if text.ends_with(b" is not a valid float") || text.ends_with(b" is not a float"));
            (is_float(b"INCRBYFLOAT") || is_float(b"HINCRBYFLOAT")) && !redis.is_error() && is_refused
        },
    },
];

/// How much two remaining times may differ, in the unit of the command.
const SECONDS_SLACK: i64 = 30;

/// Compares the replies to one command after the other; remembers what waits for EXEC.
#[derive(Default)]
pub struct Comparison {
    queued: Vec<Words>,
    /// Whether a database was flushed or exchanged since the last EXEC.
    is_flushed: bool,
}

/// A version of every key of the database changes then, also of keys that were absent and still are.
const SPURIOUS_ABORT: &str =
    "EXEC may refuse where a watched key was absent before and after FLUSHDB or SWAPDB";

impl Comparison {
    /// Whether a reply of Redis and one of ours are the same for a client.
    pub fn of(&mut self, words: &Words, redis: &Value, ours: &Value) -> Verdict {
        if matches!(redis, Value::Line('+', text) if text == b"QUEUED") {
            self.queued.push(words.clone());
        } else if words[0].eq_ignore_ascii_case(b"EXEC") {
            if !redis.is_error()
                && std::mem::take(&mut self.is_flushed)
                && matches!((redis, ours), (Value::List(..), Value::Null(_)))
            {
                return Verdict::Known(SPURIOUS_ABORT);
            }
            let queued = std::mem::take(&mut self.queued);
            if let (Value::List('*', redis), Value::List('*', ours)) = (redis, ours)
                && redis.len() == ours.len()
                && redis.len() == queued.len()
            {
                let verdicts =
                    queued.iter().zip(redis).zip(ours).map(|((words, redis), ours)| one(words, redis, ours));
                return verdicts.max().unwrap_or(Verdict::Same);
            }
        } else if words[0].eq_ignore_ascii_case(b"DISCARD") {
            self.queued.clear();
        }
        let flushes: [&[u8]; 3] = [b"FLUSHDB", b"FLUSHALL", b"SWAPDB"];
        self.is_flushed |= flushes.iter().any(|name| words[0].eq_ignore_ascii_case(name));
        one(words, redis, ours)
    }
}

fn one(words: &Words, redis: &Value, ours: &Value) -> Verdict {
    if same(words, redis, ours) {
        return Verdict::Same;
    }
    let known = KNOWN.iter().find(|known| (known.applies)(words, redis, ours));
    match known {
        None => Verdict::Different,
        Some(known) if known.keeps_state => Verdict::Same,
        Some(known) => Verdict::Known(known.reason),
    }
}

fn same(words: &Words, redis: &Value, ours: &Value) -> bool {
    if redis == ours {
        return true;
    }
    let name = words[0].to_ascii_uppercase();
    match &name[..] {
        b"TTL" | b"EXPIRETIME" => roughly(redis, ours, SECONDS_SLACK),
        b"PTTL" | b"PEXPIRETIME" => roughly(redis, ours, SECONDS_SLACK * 1000),
        b"KEYS" | b"HKEYS" | b"HVALS" => sorted(redis, 1) == sorted(ours, 1),
        b"HGETALL" => sorted(redis, 2) == sorted(ours, 2),
        b"SCAN" => scanned(words, redis, ours, 1),
        b"HSCAN" => scanned(words, redis, ours, 2),
        b"MEMORY" => redis.integer().is_some() && ours.integer().is_some(),
        b"RANDOMKEY" => shape(redis) == shape(ours),
        b"HRANDFIELD" => {
            // All fields, or some of them.
            sorted(redis, 1) == sorted(ours, 1)
                || sorted(redis, 2) == sorted(ours, 2)
                || (words.get(2).is_none_or(|count| &count[..] != b"10000") && shape(redis) == shape(ours))
        }
        _ => false,
    }
}

fn roughly(a: &Value, b: &Value, slack: i64) -> bool {
    matches!((a.integer(), b.integer()), (Some(a @ 0..), Some(b @ 0..)) if a.abs_diff(b) <= slack.unsigned_abs())
}

/// A list as groups of `size`, sorted.
fn sorted(value: &Value, size: usize) -> Option<(char, Vec<Vec<Value>>)> {
    let Value::List(kind, items) = value else { return None };
    let mut groups: Vec<_> = items.chunks(size).map(<[Value]>::to_vec).collect();
    groups.sort();
    Some((*kind, groups))
}

/// The same without contents: a random answer has the right form, and length.
fn shape(value: &Value) -> Value {
    match value {
        Value::Text(kind, _) => Value::Text(*kind, Vec::new()),
        Value::List(kind, items) => Value::List(*kind, items.iter().map(shape).collect()),
        other => other.clone(),
    }
}

/// Scans that go through everything must find the same; others may stop anywhere.
fn scanned(words: &Words, redis: &Value, ours: &Value, group: usize) -> bool {
    let is_word = |at: Option<&Vec<u8>>, word: &[u8]| at.is_some_and(|at| at == word);
    let is_whole = is_word(words.get(group), b"0") && is_word(words.last(), b"10000");
    match (redis, ours) {
        (Value::List('*', redis), Value::List('*', ours)) => match (&redis[..], &ours[..]) {
            ([_, redis_found], [_, our_found]) if !is_whole => {
                matches!((redis_found, our_found), (Value::List('*', _), Value::List('*', _)))
            }
            ([a, redis_found], [b, our_found]) => {
                a == b && sorted(redis_found, group) == sorted(our_found, group)
            }
            _ => false,
        },
        _ => false,
    }
}
