//! Random commands: every command of the table, with arguments that are mostly sensible and often on the edge.
//!
//! Times are far away or long past: no answer may depend on how quick a server is. A short time is given only right before a wait
//! (see [`sequence`]). Numbers that make Redis itself allocate gigabytes or run for minutes are left out where they would be
//! *obeyed* (an offset between 100,000 and 512 MB, say); those that it refuses are in.

mod bits;
mod hashes;
mod keys;
mod lists;
mod scripts;
mod strings;
mod transactions;

use crate::random::Random;

/// A command: its name and arguments.
pub type Words = Vec<Vec<u8>>;

/// What happens in a sequence.
#[derive(Clone, Debug)]
pub enum Step {
    Say(Words),
    /// Everything before it is answered, then nothing is said until the key is gone on both sides.
    UntilGone(Vec<u8>),
}

/// How often a command comes, and what makes one.
pub type Maker = (&'static str, usize, fn(&mut Gen));

/// Commands that are not generated, and why. (Those with a dot in their name are not Redis's; see the test.)
pub const NOT_GENERATED: &[(&str, &[&str])] = &[
    ("newer than the reference; examples in storage/src/commands/tests", &["DELIFEQ", "DELEX"]),
    (
        "scripts have a table of their own; read-only ones are no writes here",
        &["EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT"],
    ),
    ("begins every sequence; with arguments it is generated as FLUSHDB", &["FLUSHALL"]),
    ("every run says it at its beginning; its reply names the server", &["HELLO"]),
    ("the servers have no password; examples in the server's tests", &["AUTH"]),
    ("closes the connection", &["QUIT", "SHUTDOWN"]),
    ("changes the protocol of the replies behind it", &["RESET"]),
    ("about the connection; the reference is older than SETINFO", &["CLIENT"]),
    (
        "tells about the server itself: its table, its settings, its clock, its disk",
        &[
            "INFO", "COMMAND", "ROLE", "CONFIG", "TIME", "LASTSAVE", "SAVE", "BGSAVE", "SLOWLOG", "LATENCY",
            "MONITOR", "DEBUG", "ACL",
        ],
    ),
    ("tells about replication", &["WAIT", "WAITAOF", "READONLY", "READWRITE"]),
    ("Redis has no such command", &["WARLOCK"]),
    (
        "replies come in an order of their own; tests of its own",
        &[
            "SUBSCRIBE",
            "UNSUBSCRIBE",
            "PSUBSCRIBE",
            "PUNSUBSCRIBE",
            "PUBLISH",
            "PUBSUB",
            "SSUBSCRIBE",
            "SUNSUBSCRIBE",
            "SPUBLISH",
        ],
    ),
];

/// Every command that is generated.
pub fn makers() -> impl Iterator<Item = &'static Maker> {
    [
        bits::MAKERS,
        strings::MAKERS,
        keys::MAKERS,
        hashes::MAKERS,
        lists::MAKERS,
        transactions::MAKERS,
        scripts::MAKERS,
    ]
    .into_iter()
    .flatten()
}

/// Makes one command after the other.
pub struct Gen {
    pub random: Random,
    /// Whether keys may be written whose time is over already. Redis counts them (DBSIZE) until it finds them by chance, so a sequence has
    /// either those or DBSIZE.
    has_dead_keys: bool,
    words: Words,
}

impl Gen {
    pub fn new(seed: u64) -> Gen {
        let mut random = Random::new(seed);
        Gen { has_dead_keys: random.percent(30), random, words: Vec::new() }
    }

    /// A random command.
    pub fn command(&mut self) -> Words {
        let total: usize = makers().map(|(_, weight, _)| weight).sum();
        let mut at = self.random.below(total);
        let (name, _, make) = makers()
            .find(|(_, weight, _)| {
                let is_it = at < *weight;
                at = at.saturating_sub(*weight);
                is_it
            })
            .unwrap();
        self.make(name, *make)
    }

    /// A command of this name.
    pub fn make(&mut self, name: &str, make: fn(&mut Gen)) -> Words {
        self.words = vec![self.cased(name)];
        make(self);
        self.spoil();
        std::mem::take(&mut self.words)
    }

    /// A few commands get an argument too many or too few, or a wrong one.
    fn spoil(&mut self) {
        // Junk could be a time-out of zero, which is for ever.
        let may_have_junk = !lists::BLOCKING.iter().any(|name| self.words[0].eq_ignore_ascii_case(name));
        match self.random.below(60) {
            0 if self.words.len() > 1 => drop(self.words.pop()),
            1 if may_have_junk => {
                let junk = self.junk();
                self.words.push(junk);
            }
            2 if may_have_junk && self.words.len() > 1 => {
                let at = 1 + self.random.below(self.words.len() - 1);
                self.words[at] = self.junk();
            }
            _ => {}
        }
    }

    fn junk(&mut self) -> Vec<u8> {
        // No large numbers: they would be obeyed in the wrong place. No 1: it could be a very short time.
        let all: [&[u8]; 13] =
            [b"", b"x", b"-1", b"0", b"1.5", b" 1", b"1 ", b"+1", b"01", b"\0", b"\r\n", b"NX", b"COUNT"];
        self.random.pick(&all).to_vec()
    }

    /// Upper, lower or mixed.
    fn cased(&mut self, word: &str) -> Vec<u8> {
        match self.random.below(8) {
            0 => word.to_lowercase().into_bytes(),
            1 => word
                .bytes()
                .map(|b| if self.random.percent(50) { b.to_ascii_lowercase() } else { b })
                .collect(),
            _ => word.as_bytes().to_vec(),
        }
    }

    pub fn raw(&mut self, word: impl AsRef<[u8]>) {
        self.words.push(word.as_ref().to_vec());
    }

    /// A key word of the command.
    pub fn word(&mut self, word: &str) {
        let word = self.cased(word);
        self.words.push(word);
    }

    pub fn one_of(&mut self, words: &[&str]) {
        let word = self.random.pick(words);
        self.word(word);
    }

    pub fn number(&mut self, number: i64) {
        self.raw(number.to_string());
    }

    /// A key; mostly one that this kind of commands uses.
    fn key_like(&mut self, letter: char) {
        let letter = if self.random.percent(8) {
            self.random.pick(&["s", "n", "l", "h"]).to_owned()
        } else {
            letter.to_string()
        };
        match self.random.below(40) {
            0 => self.raw("none"),
            1 => self.raw(""),
            2 => self.raw(format!("{letter}:a key that is longer than what fits in place\r\n\0")),
            _ => {
                let n = self.random.below(3);
                self.raw(format!("{letter}{n}"));
            }
        }
    }

    pub fn string_key(&mut self) {
        self.key_like('s');
    }

    pub fn number_key(&mut self) {
        self.key_like('n');
    }

    pub fn list_key(&mut self) {
        self.key_like('l');
    }

    pub fn hash_key(&mut self) {
        self.key_like('h');
    }

    pub fn any_key(&mut self) {
        let letter = self.random.pick(&["s", "n", "l", "h"]);
        self.key_like(letter.chars().next().unwrap());
    }

    pub fn field(&mut self) {
        match self.random.below(20) {
            0 => self.raw(""),
            1 => self.raw("a field that is longer than what fits in place"),
            _ => {
                let n = self.random.below(6);
                self.raw(format!("f{n}"));
            }
        }
    }

    pub fn value(&mut self) {
        match self.random.below(16) {
            0 => self.raw(""),
            1 => self.raw("a value that is longer than what fits in place, with \0 and \r\n"),
            2..=5 => self.integer_value(),
            6 => self.float(),
            7 => {
                let length = self.random.below(200);
                let letter = b'a' + self.random.below(3) as u8;
                self.raw(vec![letter; length]);
            }
            8 => {
                let bytes: Vec<u8> = (0..self.random.below(12)).map(|_| self.random.next() as u8).collect();
                self.raw(bytes);
            }
            _ => {
                let word =
                    self.random.pick(&["a", "b", "c", "foo", "foobar", "ohmytext", "mynewtext", "Hello"]);
                self.raw(word);
            }
        }
    }

    fn integer_value(&mut self) {
        let number = self.random.between(-12, 120);
        self.number(number);
    }

    /// An integer, also one on the edge or none at all.
    pub fn integer(&mut self) {
        match self.random.below(12) {
            0 => {
                let edges = [
                    "9223372036854775807",
                    "-9223372036854775808",
                    "9223372036854775808",
                    "-9223372036854775809",
                    "-9223372036854775807",
                    "2147483648",
                    "-2147483649",
                    "4294967296",
                    "18446744073709551616",
                ];
                let edge = self.random.pick(&edges);
                self.raw(edge);
            }
            1 => {
                let text = self.random.pick(&["", "x", "1.0", " 1", "1 ", "+1", "-0", "007", "0x10", "1e3"]);
                self.raw(text);
            }
            _ => {
                let number = self.random.between(-6, 12);
                self.number(number);
            }
        }
    }

    pub fn float(&mut self) {
        match self.random.below(10) {
            0 => {
                let edges = [
                    "inf", "-inf", "nan", "1e400", "1e5000", "1e-5000", "x", "", " 1", "1 ", "+1.5", ".5",
                    "5.", "-.5e1", "infinity", "1e", "--1",
                ];
                let edge = self.random.pick(&edges);
                self.raw(edge);
            }
            1..=3 => {
                let number = self.random.between(-100_000, 100_000);
                self.raw(format!("{}.{:03}", number / 1000, number.abs() % 1000));
            }
            4 => {
                let (number, exponent) = (self.random.between(-99, 99), self.random.between(-12, 17));
                self.raw(format!("{number}e{exponent}"));
            }
            _ => {
                let (number, tenth) = (self.random.between(-20, 20), self.random.below(10));
                self.raw(format!("{number}.{tenth}"));
            }
        }
    }

    /// A count of many things: small, because it is obeyed.
    pub fn count(&mut self) {
        let count = self.random.between(-2, 6);
        if self.random.percent(6) {
            self.integer_text();
        } else {
            self.number(count);
        }
    }

    fn integer_text(&mut self) {
        let text = self.random.pick(&["", "x", "1.0", " 1", "+1", "-0", "007"]);
        self.raw(text);
    }

    /// A time from now in seconds: so long that nobody sees its end, and never the same twice.
    pub fn far_seconds(&mut self) -> i64 {
        self.random.between(100_000, 90_000_000)
    }

    /// A time that far away, one that no key can have, or no number.
    pub fn seconds(&mut self, unit_ms: i64) {
        match self.random.below(16) {
            0 => self.integer_text(),
            1 => self.raw("9223372036854775807"),
            2 => self.raw("-9223372036854775808"),
            3 => {
                let past = self.random.pick(&["0", "-1", "-1000000"]);
                self.raw(past);
            }
            _ => {
                let seconds = self.far_seconds();
                self.number(seconds * 1000 / unit_ms);
            }
        }
    }

    /// A point in time: in the next centuries, long past, or impossible.
    pub fn instant(&mut self, unit_ms: i64) {
        match self.random.below(16) {
            0 => self.integer_text(),
            1 => self.raw("9223372036854775807"),
            2 => self.raw("-9223372036854775808"),
            3 if self.has_dead_keys => {
                let past = self.random.pick(&["0", "-1", "1", "1000000"]);
                self.raw(past);
            }
            _ => {
                let seconds = 4_000_000_000 + self.far_seconds();
                self.number(seconds * 1000 / unit_ms);
            }
        }
    }
}

/// A sequence of commands for an empty server.
pub fn sequence(seed: u64, length: usize) -> Vec<Step> {
    let mut gen_ = Gen::new(seed);
    let mut steps: Vec<Step> = Vec::with_capacity(length);
    // Waiting costs real time, so few sequences have it.
    let waits = gen_.has_dead_keys && gen_.random.percent(12);
    let mut in_transaction = 0;
    while steps.len() < length {
        let words = match in_transaction {
            0 if gen_.random.percent(2) => {
                in_transaction = 1 + gen_.random.below(8);
                vec![b"MULTI".to_vec()]
            }
            1 => {
                in_transaction = 0;
                vec![
                    gen_.random
                        .pick(&["EXEC", "EXEC", "EXEC", "EXEC", "EXEC", "DISCARD"])
                        .as_bytes()
                        .to_vec(),
                ]
            }
            _ => {
                in_transaction = in_transaction.saturating_sub(1);
                gen_.command()
            }
        };
        let is = |names: &[&[u8]]| names.iter().any(|name| words[0].eq_ignore_ascii_case(name));
        // Waiting costs real time, too, and inside a transaction nobody waits.
        let costs_time = in_transaction == 0 && is(lists::BLOCKING) && !gen_.random.percent(4);
        if !(costs_time || gen_.has_dead_keys && is(&[b"DBSIZE"])) {
            steps.push(Step::Say(words));
        }
    }
    if waits {
        let at = gen_.random.below(length);
        let short = keys::short_time(&mut gen_);
        let key = short[1].clone();
        // A transaction that is open would only queue it.
        let discard = vec![b"DISCARD".to_vec()];
        steps.splice(at..at, [Step::Say(discard), Step::Say(short), Step::UntilGone(key)]);
    }
    steps
}
