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

/// FNV-1a over the name in capitals.
fn hash(name: &[u8]) -> usize {
    let hash = name.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_uppercase())).wrapping_mul(0x0100_0000_01B3)
    });
    (hash ^ hash >> 32) as usize % PLACES
}

/// The entry of a command, those that no client can name included.
#[must_use]
pub(crate) fn lookup_any(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut at = hash(name);
    while let Some(spec) = INDEX.places[at] {
        if spec.name.as_bytes().eq_ignore_ascii_case(name) {
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
