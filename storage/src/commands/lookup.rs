//! From a name to its entry, in any case, without allocation.

use super::every;
use super::spec::CommandSpec;
use std::sync::LazyLock;

/// Longer names are in no table.
const NAME_BYTES_MAX: usize = 32;
/// A power of two, several times the number of commands, so that a search ends at once.
const PLACES: usize = 1024;

/// A hash table with open addressing: a name is at the place of its hash, or in the next free one.
struct Index {
    places: [Option<&'static CommandSpec>; PLACES],
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut places = [None; PLACES];
    for spec in every() {
        let mut at = hash(spec.name.as_bytes());
        while places[at].is_some() {
            at = (at + 1) % PLACES;
        }
        places[at] = Some(spec);
    }
    Index { places }
});

/// Eight bytes at a time, without the bit that makes the difference between small letters and capitals.
fn hash(name: &[u8]) -> usize {
    const CASE: u64 = 0x2020_2020_2020_2020;
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| (hash ^ (word | CASE)).wrapping_mul(ODD).rotate_left(29);
    let (words, rest) = name.as_chunks::<8>();
    let hash = words.iter().fold(name.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let rest = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    (mix(hash, rest).wrapping_mul(ODD) >> 32) as usize % PLACES
}

/// The entry of a command, those that no client can name included.
#[must_use]
pub(crate) fn lookup_any(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut at = hash(name);
    while let Some(spec) = INDEX.places[at] {
        // As it is written in the table, mostly.
        if spec.name.as_bytes() == name || spec.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(spec);
        }
        at = (at + 1) % PLACES;
    }
    None
}

/// The entry of a command that a client names.
#[must_use]
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    lookup_any(name).filter(|spec| !spec.is_internal())
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;

    #[test]
    fn finds_every_command_in_any_case() {
        for spec in all() {
            assert!(std::ptr::eq(lookup(spec.name.as_bytes()).unwrap(), spec));
            assert!(std::ptr::eq(lookup(spec.name.to_ascii_lowercase().as_bytes()).unwrap(), spec));
        }
        assert!(every().count() * 2 < PLACES);
        for name in ["", "GE", "GETT", "WARLOCK.SWEEP", "warlock.reap"] {
            assert!(lookup(name.as_bytes()).is_none(), "{name}");
        }
        assert!(lookup_any(b"warlock.Sweep").is_some());
        assert!(lookup(&[b'x'; 100_000]).is_none());
    }
}
