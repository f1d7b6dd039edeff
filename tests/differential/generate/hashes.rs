//! Hashes.

use super::keys::{scan_anything, scan_options};
use super::{Gen, Maker};

pub const MAKERS: &[Maker] = &[
    ("HSET", 8, pairs),
    ("HMSET", 2, pairs),
    ("HSETNX", 2, |g| {
        key_and_field(g);
        g.value();
    }),
    ("HGET", 3, key_and_field),
    ("HMGET", 2, key_and_fields),
    ("HGETALL", 3, |g| g.hash_key()),
    ("HKEYS", 1, |g| g.hash_key()),
    ("HVALS", 1, |g| g.hash_key()),
    ("HLEN", 2, |g| g.hash_key()),
    ("HDEL", 3, key_and_fields),
    ("HEXISTS", 1, key_and_field),
    ("HSTRLEN", 1, key_and_field),
    ("HINCRBY", 3, |g| {
        key_and_field(g);
        g.integer();
    }),
    ("HINCRBYFLOAT", 3, |g| {
        key_and_field(g);
        g.float();
    }),
    ("HSCAN", 2, |g| {
        g.hash_key();
        if g.random.percent(20) {
            scan_anything(g, false);
        } else {
            g.raw("0");
            scan_options(g, false);
            g.word("COUNT");
            g.raw("10000");
        }
    }),
    ("HRANDFIELD", 2, |g| {
        g.hash_key();
        if g.random.percent(80) {
            // Obeyed, so small; and some that are refused.
            match g.random.below(12) {
                0 => g.raw("-9223372036854775808"),
                1 => g.raw("9223372036854775807"),
                2 => g.raw("10000"),
                _ => g.count(),
            }
            if g.random.percent(50) {
                g.word("WITHVALUES");
            }
        }
    }),
];

fn key_and_field(g: &mut Gen) {
    g.hash_key();
    g.field();
}

fn key_and_fields(g: &mut Gen) {
    key_and_field(g);
    while g.random.percent(40) {
        g.field();
    }
}

fn pairs(g: &mut Gen) {
    g.hash_key();
    for _ in 0..1 + g.random.below(4) {
        g.field();
        g.value();
    }
}
