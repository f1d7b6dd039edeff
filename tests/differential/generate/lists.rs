//! Lists.

use super::{Gen, Maker};

pub const MAKERS: &[Maker] = &[
    ("LPUSH", 5, push),
    ("RPUSH", 7, push),
    ("LPUSHX", 1, push),
    ("RPUSHX", 1, push),
    ("LPOP", 2, pop),
    ("RPOP", 2, pop),
    ("LRANGE", 4, |g| {
        g.list_key();
        g.integer();
        g.integer();
    }),
    ("LLEN", 2, |g| g.list_key()),
    ("LINDEX", 2, |g| {
        g.list_key();
        g.integer();
    }),
    ("LSET", 2, |g| {
        g.list_key();
        g.integer();
        item(g);
    }),
    ("LINSERT", 3, |g| {
        g.list_key();
        g.one_of(&["BEFORE", "AFTER", "BEFORE", "AFTER", "BEFORE", "AFTER", "AT"]);
        item(g);
        item(g);
    }),
    ("LREM", 3, |g| {
        g.list_key();
        g.count();
        item(g);
    }),
    ("LTRIM", 2, |g| {
        g.list_key();
        g.integer();
        g.integer();
    }),
    ("LMOVE", 2, |g| {
        g.list_key();
        g.list_key();
        end(g);
        end(g);
    }),
    ("RPOPLPUSH", 1, |g| {
        g.list_key();
        g.list_key();
    }),
    ("LPOS", 3, |g| {
        g.list_key();
        item(g);
        while g.random.percent(45) {
            g.one_of(&["RANK", "COUNT", "MAXLEN"]);
            g.count();
        }
    }),
    ("LMPOP", 2, many),
    ("BLPOP", 2, blocking_pop),
    ("BRPOP", 2, blocking_pop),
    ("BLMPOP", 2, |g| {
        timeout(g);
        many(g);
    }),
    ("BLMOVE", 2, |g| {
        g.list_key();
        g.list_key();
        end(g);
        end(g);
        timeout(g);
    }),
    ("BRPOPLPUSH", 2, |g| {
        g.list_key();
        g.list_key();
        timeout(g);
    }),
];

/// Those that may wait.
pub const BLOCKING: &[&[u8]] = &[b"BLPOP", b"BRPOP", b"BLMPOP", b"BLMOVE", b"BRPOPLPUSH"];

fn blocking_pop(g: &mut Gen) {
    for _ in 0..1 + g.random.below(3) {
        g.list_key();
    }
    timeout(g);
}

/// Never for ever, never long.
fn timeout(g: &mut Gen) {
    let all = ["0.001", "0.01", "1e-3", "-1", "x", "", "inf", "nan", "1e30", " 1", "-0.5"];
    if g.random.percent(85) {
        g.raw("0.001");
    } else {
        let timeout = g.random.pick(&all);
        g.raw(timeout);
    }
}

/// Few different ones, so that they are found again.
fn item(g: &mut Gen) {
    if g.random.percent(20) {
        g.value();
    } else {
        let item = g.random.pick(&["a", "b", "c", "1", "2"]);
        g.raw(item);
    }
}

fn push(g: &mut Gen) {
    g.list_key();
    for _ in 0..1 + g.random.below(4) {
        item(g);
    }
}

fn pop(g: &mut Gen) {
    g.list_key();
    if g.random.percent(40) {
        g.count();
    }
}

fn end(g: &mut Gen) {
    g.one_of(&["LEFT", "RIGHT", "LEFT", "RIGHT", "LEFT", "RIGHT", "LEFT", "RIGHT", "UP"]);
}

/// `numkeys key … LEFT|RIGHT [COUNT n]`
fn many(g: &mut Gen) {
    let keys = 1 + g.random.below(3);
    if g.random.percent(90) {
        g.raw(keys.to_string());
    } else {
        g.count();
    }
    for _ in 0..keys {
        g.list_key();
    }
    end(g);
    if g.random.percent(40) {
        g.word("COUNT");
        g.count();
    }
}
