//! What belongs to transactions. Whole ones are made by [`super::sequence`]; these come anywhere.

use super::Maker;

pub const MAKERS: &[Maker] = &[
    ("MULTI", 1, |_| {}),
    ("EXEC", 1, |_| {}),
    ("DISCARD", 1, |_| {}),
    ("WATCH", 2, |g| {
        for _ in 0..1 + g.random.below(3) {
            g.any_key();
        }
    }),
    ("UNWATCH", 1, |_| {}),
];
