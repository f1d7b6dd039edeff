//! What every entry of the table must satisfy.

use crate::commands::{Arity, Group, Handler, Keys, all, every, lookup_any};
use crate::machine::tests::support::Lab;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn arguments_min(arity: Arity) -> usize {
    match arity {
        Arity::Exactly(n) | Arity::AtLeast(n) => n,
    }
}

#[test]
fn entries_are_complete() {
    let mut names = BTreeSet::new();
    for spec in every() {
        let name = spec.name;
        assert!(names.insert(name), "{name} is there twice");
        assert!(!name.is_empty() && name.len() <= 32);
        assert_eq!(name, name.to_ascii_uppercase());
        assert!(spec.summary.ends_with('.') && spec.summary.len() > 15, "{name} has no summary");
        assert!(spec.since.split('.').count() == 3, "{name}");
        assert!(spec.differs.is_empty() || spec.differs.ends_with('.'), "{name}");
        let least = vec![&b"1"[..]; arguments_min(spec.arity)];
        let last_key = spec.keys.positions(&least).last().copied();
        match spec.keys {
            Keys::None | Keys::OfSubcommand => assert_eq!(last_key, None),
            Keys::At(at) => assert_eq!(last_key, Some(at), "{name}: the arity does not cover the key"),
            Keys::Span { last, .. } => assert_eq!(last_key, Some(last), "{name}"),
            Keys::Every { first, step } => assert!(step > 0 && last_key >= Some(first), "{name}"),
            // A script needs no keys; whoever else counts them needs one.
            Keys::Counted { .. } if spec.group == Group::Scripting => {}
            Keys::Before { first, .. } | Keys::Counted { at: first } => {
                assert!(last_key >= Some(first), "{name}")
            }
            Keys::FirstAnd(_) => assert!(last_key.is_some(), "{name}"),
        }
    }
    // What a node proposes by itself is named after it, and nothing else is.
    let is_ours = |name: &str| name.starts_with("WARLOCK.");
    assert!(every().all(|spec| spec.is_internal() == is_ours(spec.name)));
    assert!(all().all(|spec| !is_ours(spec.name)));
}

#[test]
fn keys_are_where_the_table_says() {
    let positions = |command: &str| {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        lookup_any(words[0]).unwrap().keys.positions(&words[1..])
    };
    assert_eq!(positions("MSET a 1 b 2 c 3"), [0, 2, 4]);
    assert_eq!(positions("DEL a b c"), [0, 1, 2]);
    assert_eq!(positions("COPY a b DB 1"), [0, 1]);
    assert_eq!(positions("GET a"), [0]);
    assert_eq!(positions("DBSIZE"), [0; 0]);
    assert_eq!(positions("LMPOP 2 a b LEFT"), [1, 2]);
    assert_eq!(positions("LMPOP 9 a b LEFT"), [1, 2, 3]);
    assert_eq!(positions("LMPOP x a b LEFT"), [0; 0]);
    assert_eq!(lookup_any(b"MSET").unwrap().keys.as_redis(), (1, -1, 2));
    assert_eq!(lookup_any(b"GET").unwrap().arity.as_redis(), 2);
    assert_eq!(lookup_any(b"SET").unwrap().arity.as_redis(), -3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// No arguments make a handler panic, and one that fails has changed nothing but removed keys whose time is over (H2).
    #[test]
    fn handlers_take_anything(
        pick in any::<prop::sample::Index>(),
        extra in 0..4_usize,
        args in prop::collection::vec(prop_oneof![
            prop::sample::select(vec![
                "a", "b", "h", "0", "1", "-1", "16", "x", "", "nx", "XX", "get", "EX", "PX", "KEEPTTL", "COUNT", "MATCH", "*", "DB", "REPLACE",
                "IFEQ", "9223372036854775807", "-9223372036854775808", "1e400", "TYPE", "string", "WITHVALUES", "f0", "2", "l", "LEFT", "before", "RANK", "MAXLEN",
            ]).prop_map(|word| word.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..30),
        ], 12),
    ) {
        let specs: Vec<_> = every().collect();
        let spec = specs[pick.index(specs.len())];
        let mut lab = Lab::new();
        lab.say("SET a 1");
        lab.say("SET b text EX 100");
        lab.make_hash("h", 2);
        lab.say("RPUSH l x a 1 x");
        let before = lab.data_rows();
        let count = match spec.arity {
            Arity::Exactly(n) => n,
            Arity::AtLeast(n) => n + extra,
        };
        let mut command = vec![spec.name.as_bytes()];
        command.extend(args.iter().take(count).map(|arg| &arg[..]));
        let reply = lab.run(&command);
        if reply.is_error() || matches!(spec.handler, Handler::Read(_)) {
            prop_assert_eq!(lab.data_rows(), before);
        }
        lab.check_invariants();
    }
}
