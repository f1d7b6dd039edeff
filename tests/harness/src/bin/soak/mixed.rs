//! Requests of many kinds on a bounded set of data: what is written takes the place of something, is trimmed, or expires.

use sim::rng::Rng;

/// Plain values that are always there, and are written over.
const VALUES: u64 = 20_000;
const VALUE_BYTES_MAX: u64 = 1_000;
/// Of each other kind.
const KEYS: u64 = 200;
const FIELDS: u64 = 50;
const LIST_LONGEST: &str = "-50";
const FILL_PIPELINE: u64 = 500;

/// What must be right about a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It is no error.
    NoError,
    /// One more than the last of this connection.
    OneMore,
}

/// One request of a connection that has `counter` for itself.
pub fn request(rng: &mut Rng, counter: &str) -> (Vec<String>, Expected) {
    let n = rng.between(1, KEYS);
    let words: Vec<String> = match rng.between(0, 11) {
        0..=2 => vec!["GET".into(), value_key(rng)],
        3 => vec!["SET".into(), value_key(rng), value(rng)],
        4 => return (vec!["INCR".into(), counter.into()], Expected::OneMore),
        5 => vec!["HSET".into(), format!("hash:{n}"), rng.between(1, FIELDS).to_string(), value(rng)],
        6 => vec!["HGET".into(), format!("hash:{n}"), rng.between(1, FIELDS).to_string()],
        7 => vec!["RPUSH".into(), format!("list:{n}"), value(rng)],
        8 => vec!["LTRIM".into(), format!("list:{n}"), LIST_LONGEST.into(), "-1".into()],
        9 => vec!["SET".into(), format!("text:{n}"), value(rng), "PX".into(), "5000".into()],
        10 => ["SET", &format!("lock:{n}"), counter, "NX", "PX", "500"].map(String::from).to_vec(),
        _ => vec!["DELIFEQ".into(), format!("lock:{n}"), counter.into()],
    };
    (words, Expected::NoError)
}

/// All plain values, in pipelines.
pub fn fill(rng: &mut Rng) -> impl Iterator<Item = Vec<[String; 3]>> {
    (0..VALUES / FILL_PIPELINE).map(|group| {
        let keys = group * FILL_PIPELINE + 1..=(group + 1) * FILL_PIPELINE;
        keys.map(|n| ["SET".into(), format!("value:{n}"), value(rng)]).collect()
    })
}

fn value_key(rng: &mut Rng) -> String {
    format!("value:{}", rng.between(1, VALUES))
}

fn value(rng: &mut Rng) -> String {
    "x".repeat(usize::try_from(rng.skewed(1, VALUE_BYTES_MAX)).unwrap_or(1))
}
