//! Strings as bits.

use super::{Gen, Maker};

pub const MAKERS: &[Maker] = &[
    ("GETBIT", 2, |g| {
        g.string_key();
        offset(g);
    }),
    ("SETBIT", 3, |g| {
        g.string_key();
        offset(g);
        g.one_of(&["0", "1", "0", "1", "0", "1", "2", "-1", "x", ""]);
    }),
    ("BITCOUNT", 3, |g| {
        g.string_key();
        if g.random.percent(75) {
            g.integer();
            if g.random.percent(95) {
                g.integer();
            }
            unit(g);
        }
    }),
    ("BITPOS", 3, |g| {
        g.string_key();
        g.one_of(&["0", "1", "0", "1", "0", "1", "2", "x"]);
        if g.random.percent(70) {
            g.integer();
            if g.random.percent(70) {
                g.integer();
                unit(g);
            }
        }
    }),
    ("BITOP", 2, |g| {
        g.one_of(&["AND", "OR", "XOR", "NOT", "AND", "OR", "XOR", "NOT", "NAND"]);
        for _ in 0..2 + g.random.below(3) {
            g.string_key();
        }
    }),
    ("BITFIELD", 4, field),
    ("BITFIELD_RO", 2, |g| {
        g.string_key();
        while g.random.percent(70) {
            g.one_of(&["GET", "GET", "GET", "GET", "GET", "SET"]);
            width(g);
            offset(g);
        }
    }),
];

fn unit(g: &mut Gen) {
    if g.random.percent(40) {
        g.one_of(&["BIT", "BYTE", "BIT", "BYTE", "BIT", "BYTE", "WORD"]);
    }
}

/// Obeyed up to 512 MB: small, or far beyond.
fn offset(g: &mut Gen) {
    match g.random.below(14) {
        0 => g.raw("4294967296"),
        1 => g.raw("9223372036854775807"),
        2 => g.raw("-1"),
        3 => g.raw("x"),
        4 | 5 => {
            let n = g.random.below(20);
            g.raw(format!("#{n}"));
        }
        _ => {
            let n = g.random.between(0, 200);
            g.number(n);
        }
    }
}

fn width(g: &mut Gen) {
    let all = ["u1", "i1", "u8", "i8", "u4", "i5", "u16", "i16", "u31", "i32", "u63", "i64"];
    let wrong = ["u64", "i65", "u0", "x8", "8", "", "i", "u-1", "i08", "U8"];
    let width = if g.random.percent(94) { g.random.pick(&all) } else { g.random.pick(&wrong) };
    g.raw(width);
}

fn field(g: &mut Gen) {
    g.string_key();
    while g.random.percent(72) {
        match g.random.below(8) {
            0..=2 => {
                g.word("GET");
                width(g);
                offset(g);
            }
            3 | 4 => {
                g.word("SET");
                width(g);
                offset(g);
                g.integer();
            }
            5 | 6 => {
                g.word("INCRBY");
                width(g);
                offset(g);
                g.integer();
            }
            _ => {
                g.word("OVERFLOW");
                g.one_of(&["WRAP", "SAT", "FAIL", "WRAP", "SAT", "FAIL", "NEVER"]);
            }
        }
    }
}
