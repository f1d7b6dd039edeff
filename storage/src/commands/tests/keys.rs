//! Conversations about keys of any type.

use super::check;
use crate::machine::tests::support::Lab;
use crate::reply::Reply;
use std::collections::BTreeSet;

#[test]
fn existence() {
    check(
        "MSET a 1 b 2 -> OK
        EXISTS a b c a -> 3
        TOUCH a b c -> 2
        TYPE a -> +string
        TYPE c -> +none
        DEL a c a -> 1
        UNLINK b -> 1
        UNLINK b -> 0
        DBSIZE -> 0
        hash h
        TYPE h -> +hash
        EXISTS h -> 1
        DEL h -> 1
        DEL -> -ERR wrong number of arguments for 'del' command",
    );
}

#[test]
fn deadlines() {
    check(
        "TTL a -> -2
        PTTL a -> -2
        EXPIRETIME a -> -2
        EXPIRE a 10 -> 0
        SET a 1 -> OK
        TTL a -> -1
        PEXPIRETIME a -> -1
        EXPIRE a 10 -> 1
        TTL a -> 10
        +9499
        TTL a -> 1
        +2
        TTL a -> 0
        PTTL a -> 499
        PERSIST a -> 1
        PERSIST a -> 0
        PERSIST none -> 0
        TTL a -> -1
        PEXPIRE a 1500 -> 1
        PTTL a -> 1500
        EXPIREAT a 5000 -> 1
        EXPIRETIME a -> 5000
        PEXPIREAT a 5000500 -> 1
        EXPIRETIME a -> 5001
        PEXPIRETIME a -> 5000500
        EXPIRE a 9223372036854775807 -> -ERR invalid expire time in 'expire' command
        PEXPIRE a 9223372036854775807 -> -ERR invalid expire time in 'pexpire' command
        EXPIREAT a -9223372036854775808 -> -ERR invalid expire time in 'expireat' command
        EXPIRE a x -> -ERR value is not an integer or out of range
        EXPIRE a 0 -> 1
        EXISTS a -> 0
        SET a 1 -> OK
        PEXPIREAT a -5 -> 1
        EXISTS a -> 0
        DBSIZE -> 0",
    );
}

#[test]
fn deadline_conditions() {
    check(
        "SET a 1 -> OK
        EXPIRE a 10 XX -> 0
        EXPIRE a 10 GT -> 0
        EXPIRE a 10 NX -> 1
        EXPIRE a 20 NX -> 0
        EXPIRE a 5 GT -> 0
        EXPIRE a 20 GT -> 1
        EXPIRE a 30 LT -> 0
        EXPIRE a 15 LT -> 1
        EXPIRE a 15 XX LT -> 0
        EXPIRE a 14 xx lt -> 1
        TTL a -> 14
        PERSIST a -> 1
        EXPIRE a 10 LT -> 1
        EXPIRE a 10 NX GT -> -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE a 10 NX XX -> -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE a 10 GT LT -> -ERR GT and LT options at the same time are not compatible
        EXPIRE a 10 FOO -> -ERR Unsupported option FOO",
    );
}

#[test]
fn a_key_lives_in_its_last_millisecond() {
    check(
        "SET a 1 PX 100 -> OK
        +100
        GET a -> \"1\"
        PTTL a -> 0
        +1
        GET a -> nil
        DBSIZE -> 1
        SETNX a 2 -> 1
        TTL a -> -1
        DBSIZE -> 1
        SET b 1 PX 1 -> OK
        +2
        INCR b -> 1
        TTL b -> -1
        SET c 1 PX 1 -> OK
        +2
        DEL c -> 0
        DBSIZE -> 2
        SET c 1 PX 1 -> OK
        +2
        EXPIRE c 10 -> 0
        RENAME c d -> -ERR no such key
        DBSIZE -> 2",
    );
}

#[test]
fn renaming() {
    check(
        "RENAME a b -> -ERR no such key
        RENAMENX a b -> -ERR no such key
        SET a 1 EX 10 -> OK
        RENAME a a -> OK
        RENAMENX a a -> 0
        SET b 2 -> OK
        RENAMENX a b -> 0
        RENAME a b -> OK
        EXISTS a -> 0
        GET b -> \"1\"
        TTL b -> 10
        RENAMENX b c -> 1
        TTL c -> 10
        hash h
        RENAME h c -> OK
        TYPE c -> +hash
        TTL c -> -1
        DBSIZE -> 1",
    );
}

#[test]
fn copying_and_moving() {
    check(
        "COPY a b -> 0
        SET a 1 EX 10 -> OK
        COPY a a -> -ERR source and destination objects are the same
        COPY a b -> 1
        COPY a b -> 0
        SET a 2 KEEPTTL -> OK
        COPY a b REPLACE -> 1
        GET b -> \"2\"
        TTL b -> 10
        COPY a a DB 3 -> 1
        COPY a a DB 3 -> 0
        COPY a a DB 16 -> -ERR DB index is out of range
        COPY a a DB x -> -ERR value is not an integer or out of range
        COPY a b DB -> -ERR syntax error
        COPY a b FOO -> -ERR syntax error
        MOVE a 3 -> 0
        MOVE a 0 -> -ERR source and destination objects are the same
        MOVE a 16 -> -ERR DB index is out of range
        MOVE a x -> -ERR value is not an integer or out of range
        MOVE a 2147483648 -> -ERR value is out of range, value must between -2147483648 and 2147483647
        MOVE b 4 -> 1
        MOVE b 4 -> 0
        db 4
        GET b -> \"2\"
        TTL b -> 10
        db 3
        GET a -> \"2\"",
    );
}

#[test]
fn databases() {
    check(
        "SET a 0 -> OK
        db 1
        SET a 1 -> OK
        SET b 1 EX 5 -> OK
        SWAPDB 0 1 -> OK
        GET a -> \"0\"
        DBSIZE -> 1
        db 0
        GET a -> \"1\"
        TTL b -> 5
        DBSIZE -> 2
        SWAPDB 0 0 -> OK
        DBSIZE -> 2
        SWAPDB 0 16 -> -ERR DB index is out of range
        SWAPDB x 1 -> -ERR invalid first DB index
        SWAPDB 1 x -> -ERR invalid second DB index
        FLUSHDB ASYNC -> OK
        FLUSHDB FOO -> -ERR syntax error
        FLUSHDB SYNC ASYNC -> -ERR syntax error
        DBSIZE -> 0
        EXISTS a b -> 0
        SET a 2 -> OK
        FLUSHALL -> OK
        DBSIZE -> 0
        db 1
        DBSIZE -> 0
        RANDOMKEY -> nil
        KEYS * -> []",
    );
}

#[test]
fn looking_through_keys() {
    check(
        "MSET one 1 two 2 three 3 -> OK
        KEYS t?o -> [\"two\"]
        KEYS x* -> []
        SET four 4 PX 1 -> OK
        +2
        KEYS f* -> []
        SCAN 0 MATCH t?o COUNT 100 -> [\"0\" [\"two\"]]
        SCAN 0 COUNT 100 TYPE hash -> [\"0\" []]
        SCAN 0 COUNT 100 TYPE STRING MATCH tw* -> [\"0\" [\"two\"]]
        SCAN x -> -ERR invalid cursor
        SCAN 0 COUNT 0 -> -ERR syntax error
        SCAN 0 COUNT x -> -ERR value is not an integer or out of range
        SCAN 0 COUNT -> -ERR syntax error
        SCAN 0 FOO 1 -> -ERR syntax error
        SCAN 9223372036854775807 -> [\"0\" []]
        DEL one two -> 2
        RANDOMKEY -> \"three\"",
    );
}

#[test]
fn a_scan_shows_each_key_once() {
    for count in ["1", "7", "10", "1000"] {
        let mut lab = Lab::new();
        for n in 0..500 {
            lab.run(&[b"SET", format!("key:{n}").as_bytes(), b"x"]);
        }
        let (mut cursor, mut seen, mut steps) = (b"0".to_vec(), Vec::new(), 0);
        loop {
            let reply = lab.run(&[b"SCAN", &cursor, b"COUNT", count.as_bytes()]);
            let Reply::Array(parts) = reply else { panic!("{reply:?}") };
            let [Reply::Bulk(next), Reply::Array(keys)] = &parts[..] else { panic!("{parts:?}") };
            seen.extend(keys.iter().map(crate::machine::tests::support::show));
            steps += 1;
            // Keys that come and go elsewhere do not disturb the others.
            lab.run(&[b"SET", format!("other:{steps}").as_bytes(), b"x"]);
            lab.run(&[b"DEL", format!("other:{}", steps - 1).as_bytes()]);
            if next == "0" {
                break;
            }
            cursor = next.to_vec();
        }
        let stable: Vec<_> = seen.iter().filter(|key| key.starts_with("\"key:")).collect();
        assert_eq!(stable.len(), 500);
        assert_eq!(stable.iter().collect::<BTreeSet<_>>().len(), 500);
    }
}

#[test]
fn random_keys_differ() {
    let mut lab = Lab::new();
    (0..100).for_each(|n| assert_eq!(lab.say(&format!("SET key:{n} x")), "OK"));
    let seen: BTreeSet<_> = (0..100).map(|_| lab.say("RANDOMKEY")).collect();
    assert!(seen.len() > 20, "{}", seen.len());
}

#[test]
fn cursors_are_read_as_c_does() {
    check(
        "SCAN \"\" -> [\"0\" []]
        SCAN 007 -> [\"0\" []]
        SCAN +1 -> [\"0\" []]
        SCAN -1 -> [\"0\" []]
        SCAN - -> -ERR invalid cursor
        SCAN 1x -> -ERR invalid cursor
        SCAN 18446744073709551616 -> -ERR invalid cursor",
    );
}
