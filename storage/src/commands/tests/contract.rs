//! What every entry of the table must satisfy.

use crate::commands::{Arity, Handler, Keys, all, every, lookup_any};
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
        let last_key = spec.keys.positions(arguments_min(spec.arity)).last();
        match spec.keys {
            Keys::None => assert_eq!(last_key, None),
            Keys::At(at) => assert_eq!(last_key, Some(at), "{name}: the arity does not cover the key"),
            Keys::Span { last, .. } => assert_eq!(last_key, Some(last), "{name}"),
            Keys::Every { first, step } => assert!(step > 0 && last_key >= Some(first), "{name}"),
        }
    }
    assert_eq!(all().count() + 2, every().count());
}

#[test]
fn keys_are_where_the_table_says() {
    let positions = |name: &[u8], count| lookup_any(name).unwrap().keys.positions(count).collect::<Vec<_>>();
    assert_eq!(positions(b"MSET", 6), [0, 2, 4]);
    assert_eq!(positions(b"DEL", 3), [0, 1, 2]);
    assert_eq!(positions(b"COPY", 4), [0, 1]);
    assert_eq!(positions(b"GET", 1), [0]);
    assert_eq!(positions(b"DBSIZE", 0), [0; 0]);
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
                "IFEQ", "9223372036854775807", "-9223372036854775808", "1e400", "TYPE", "string", "WITHVALUES", "f0", "2",
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
