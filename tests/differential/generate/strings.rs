//! Strings.

use super::{Gen, Maker};

pub const MAKERS: &[Maker] = &[
    ("GET", 4, |g| g.string_key()),
    ("SET", 14, set),
    ("SETNX", 2, |g| {
        g.string_key();
        g.value();
    }),
    ("SETEX", 1, |g| timed(g, 1000)),
    ("PSETEX", 1, |g| timed(g, 1)),
    ("GETSET", 2, |g| {
        g.string_key();
        g.value();
    }),
    ("GETDEL", 1, |g| g.string_key()),
    ("GETEX", 2, |g| {
        g.string_key();
        if g.random.percent(80) {
            lifetime(g, "PERSIST");
        }
    }),
    ("MGET", 2, |g| {
        for _ in 0..1 + g.random.below(4) {
            g.any_key();
        }
    }),
    ("MSET", 2, pairs),
    ("MSETNX", 1, pairs),
    ("APPEND", 3, |g| {
        g.string_key();
        g.value();
    }),
    ("STRLEN", 2, |g| g.string_key()),
    ("GETRANGE", 3, range),
    ("SUBSTR", 1, range),
    ("SETRANGE", 3, |g| {
        g.string_key();
        offset(g);
        g.value();
    }),
    ("LCS", 2, |g| {
        g.string_key();
        g.string_key();
        while g.random.percent(45) {
            match g.random.below(5) {
                0 => g.word("LEN"),
                1 | 2 => g.word("IDX"),
                3 => g.word("WITHMATCHLEN"),
                _ => {
                    g.word("MINMATCHLEN");
                    g.integer();
                }
            }
        }
    }),
    ("INCR", 2, |g| g.number_key()),
    ("DECR", 2, |g| g.number_key()),
    ("INCRBY", 3, |g| {
        g.number_key();
        g.integer();
    }),
    ("DECRBY", 3, |g| {
        g.number_key();
        g.integer();
    }),
    ("INCRBYFLOAT", 3, |g| {
        g.number_key();
        g.float();
    }),
];

fn set(g: &mut Gen) {
    if g.random.percent(40) {
        g.number_key();
        g.integer();
    } else {
        g.string_key();
        g.value();
    }
    if g.random.percent(55) {
        return;
    }
    for _ in 0..1 + g.random.below(3) {
        match g.random.below(6) {
            0 => g.word("NX"),
            1 => g.word("XX"),
            2 => g.word("GET"),
            _ => lifetime(g, "KEEPTTL"),
        }
    }
}

/// EX, PX, EXAT, PXAT, or the word.
fn lifetime(g: &mut Gen, other: &str) {
    match g.random.below(5) {
        0 => {
            g.word("EX");
            g.seconds(1000);
        }
        1 => {
            g.word("PX");
            g.seconds(1);
        }
        2 => {
            g.word("EXAT");
            g.instant(1000);
        }
        3 => {
            g.word("PXAT");
            g.instant(1);
        }
        _ => g.word(other),
    }
}

fn timed(g: &mut Gen, unit_ms: i64) {
    g.string_key();
    g.seconds(unit_ms);
    g.value();
}

fn pairs(g: &mut Gen) {
    for _ in 0..1 + g.random.below(3) {
        g.string_key();
        g.value();
    }
}

fn range(g: &mut Gen) {
    g.string_key();
    g.integer();
    g.integer();
}

/// Obeyed up to 512 MB: small, or far beyond.
fn offset(g: &mut Gen) {
    match g.random.below(12) {
        0 => g.raw("536870912"),
        1 => g.raw("9223372036854775807"),
        2 => g.integer_text(),
        _ => {
            let offset = g.random.between(-1, 300);
            g.number(offset);
        }
    }
}
