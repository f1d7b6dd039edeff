//! Keys of any type, databases, and the connection.

use super::{Gen, Maker, Words};

pub const MAKERS: &[Maker] = &[
    ("DEL", 3, several),
    ("UNLINK", 1, several),
    ("EXISTS", 2, several),
    ("TOUCH", 1, several),
    ("TYPE", 2, |g| g.any_key()),
    ("KEYS", 1, |g| pattern(g)),
    ("SCAN", 2, scan),
    ("RANDOMKEY", 1, |_| {}),
    ("RENAME", 2, two),
    ("RENAMENX", 2, two),
    ("COPY", 3, |g| {
        two(g);
        while g.random.percent(40) {
            match g.random.below(3) {
                0 => {
                    g.word("DB");
                    database(g);
                }
                _ => g.word("REPLACE"),
            }
        }
    }),
    ("MOVE", 1, |g| {
        g.any_key();
        database(g);
    }),
    ("EXPIRE", 2, |g| expire(g, 1000, false)),
    ("PEXPIRE", 1, |g| expire(g, 1, false)),
    ("EXPIREAT", 1, |g| expire(g, 1000, true)),
    ("PEXPIREAT", 1, |g| expire(g, 1, true)),
    ("TTL", 2, |g| g.any_key()),
    ("PTTL", 1, |g| g.any_key()),
    ("EXPIRETIME", 1, |g| g.any_key()),
    ("PEXPIRETIME", 1, |g| g.any_key()),
    ("PERSIST", 1, |g| g.any_key()),
    ("SORT", 5, |g| sort(g, true)),
    ("SORT_RO", 2, |g| sort(g, false)),
    ("OBJECT", 2, |g| {
        g.one_of(&["ENCODING", "FREQ", "IDLETIME", "REFCOUNT", "HELP", "ENCODING", "WHAT"]);
        if g.random.percent(90) {
            g.any_key();
        }
    }),
    ("MEMORY", 1, |g| {
        g.word("USAGE");
        g.any_key();
        if g.random.percent(40) {
            g.word("SAMPLES");
            g.count();
        }
    }),
    ("DBSIZE", 1, |_| {}),
    ("FLUSHDB", 1, |g| {
        if g.random.percent(30) {
            g.one_of(&["ASYNC", "SYNC", "NOW"]);
        }
    }),
    ("SWAPDB", 1, |g| {
        database(g);
        database(g);
    }),
    ("SELECT", 1, database),
    ("PING", 1, |g| {
        if g.random.percent(50) {
            g.value();
        }
    }),
    ("ECHO", 1, |g| g.value()),
    ("NOSUCHCOMMAND", 1, |g| {
        for _ in 0..g.random.below(4) {
            g.value();
        }
    }),
];

/// Equal weights with ALPHA come in any order in Redis, so BY is not combined with it.
fn sort(g: &mut Gen, may_store: bool) {
    g.list_key();
    let mut is_alpha = false;
    while g.random.percent(60) {
        match g.random.below(7) {
            0 => g.one_of(&["ASC", "DESC"]),
            1 | 2 => {
                is_alpha = true;
                g.word("ALPHA");
            }
            3 => {
                g.word("LIMIT");
                g.integer();
                g.integer();
            }
            4 if !is_alpha => {
                g.word("BY");
                sort_pattern(g);
                // ALPHA must not follow.
                return;
            }
            5 => {
                g.word("GET");
                sort_pattern(g);
            }
            6 if may_store => {
                g.word("STORE");
                g.list_key();
            }
            _ => {}
        }
    }
}

fn sort_pattern(g: &mut Gen) {
    let all = ["#", "s*", "n*", "h*->f1", "h*->f2", "nosort", "h0->f*", "l*", "*", "h*->", "s*x->"];
    let pattern = g.random.pick(&all);
    g.raw(pattern);
}

fn several(g: &mut Gen) {
    for _ in 0..1 + g.random.below(3) {
        g.any_key();
    }
}

fn two(g: &mut Gen) {
    g.any_key();
    g.any_key();
}

/// Mostly one of the first, so that keys meet.
pub fn database(g: &mut Gen) {
    match g.random.below(14) {
        0 => g.integer(),
        1 => g.raw("15"),
        2 => g.raw("16"),
        _ => {
            let n = g.random.below(3);
            g.raw(n.to_string());
        }
    }
}

pub fn pattern(g: &mut Gen) {
    let all = [
        "*", "s*", "?0", "[sn]1", "[^s]*", "h[0-1]", "*\\*", "", "f?", "**2", "[a-", "s\\0", "[z-a]0", "[]",
        "h[^\\0]",
    ];
    let pattern = g.random.pick(&all);
    g.raw(pattern);
}

/// SCAN in one step, where the answer is complete; other steps are compared by their shape only.
fn scan(g: &mut Gen) {
    if g.random.percent(20) {
        scan_anything(g, true);
    } else {
        g.raw("0");
        scan_options(g, true);
        g.word("COUNT");
        g.raw("10000");
    }
}

pub fn scan_anything(g: &mut Gen, of_keys: bool) {
    match g.random.below(4) {
        0 => g.raw("0"),
        1 => g.raw("x"),
        _ => g.raw(""),
    }
    scan_options(g, of_keys);
    if g.random.percent(50) {
        g.word("COUNT");
        g.count();
    }
}

pub fn scan_options(g: &mut Gen, of_keys: bool) {
    if g.random.percent(40) {
        g.word("MATCH");
        pattern(g);
    }
    if g.random.percent(if of_keys { 30 } else { 3 }) {
        g.word("TYPE");
        g.one_of(&["string", "list", "hash", "set", "what"]);
    }
}

fn expire(g: &mut Gen, unit_ms: i64, is_absolute: bool) {
    g.any_key();
    if is_absolute {
        g.instant(unit_ms);
    } else {
        g.seconds(unit_ms);
    }
    while g.random.percent(35) {
        g.one_of(&["NX", "XX", "GT", "LT", "GT", "LT", "what"]);
    }
}

/// A command that gives a key a short time. A wait must follow at once.
pub fn short_time(g: &mut Gen) -> Words {
    match g.random.below(3) {
        0 => g.plain("PEXPIRE", |g| {
            g.any_key();
            g.raw("20");
        }),
        1 => g.plain("PSETEX", |g| {
            g.any_key();
            g.raw("20");
            g.value();
        }),
        _ => g.plain("SET", |g| {
            g.any_key();
            g.value();
            g.raw("PX");
            g.raw("20");
        }),
    }
}

impl Gen {
    /// A command that is not spoilt.
    fn plain(&mut self, name: &str, make: fn(&mut Gen)) -> Words {
        self.words = vec![name.as_bytes().to_vec()];
        make(self);
        std::mem::take(&mut self.words)
    }
}
