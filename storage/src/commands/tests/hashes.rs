//! Conversations about hashes.

use super::check;
use crate::machine::tests::support::Lab;
use crate::reply::Reply;
use std::collections::BTreeSet;

#[test]
fn fields() {
    check(
        "HSET h a 1 b 2 a 3 -> 2
        HGET h a -> \"3\"
        HGET h c -> nil
        HGET none c -> nil
        HSET h a 4 c 5 -> 1
        HGETALL h -> {\"a\" \"4\", \"b\" \"2\", \"c\" \"5\"}
        HGETALL none -> {}
        HLEN h -> 3
        HLEN none -> 0
        HMGET h a x b a -> [\"4\" nil \"2\" \"4\"]
        HMGET none a -> [nil]
        HEXISTS h a -> 1
        HEXISTS h x -> 0
        HEXISTS none x -> 0
        HSTRLEN h a -> 1
        HSTRLEN h x -> 0
        HSTRLEN none x -> 0
        HSETNX h a 9 -> 0
        HSETNX h d 9 -> 1
        HSETNX new d 9 -> 1
        HGET h d -> \"9\"
        HMSET h a 1 \"\" 2 -> OK
        HGET h \"\" -> \"2\"
        HDEL h a x a -> 1
        HDEL none a -> 0
        TYPE h -> +hash
        EXPIRE h 100 -> 1
        HSET h a 1 -> 1
        TTL h -> 100
        HDEL h a b c d \"\" -> 5
        EXISTS h -> 0
        TTL h -> -2
        HKEYS none -> []
        HVALS none -> []
        HSET h only one -> 1
        HKEYS h -> [\"only\"]
        HVALS h -> [\"one\"]",
    );
}

#[test]
fn numbers() {
    check(
        "HINCRBY h n 5 -> 5
        HINCRBY h n -7 -> -2
        HINCRBY h n x -> -ERR value is not an integer or out of range
        HINCRBY h n 9223372036854775807 -> 9223372036854775805
        HINCRBY h n 9223372036854775807 -> -ERR increment or decrement would overflow
        HGET h n -> \"9223372036854775805\"
        HSET h t text -> 1
        HINCRBY h t 1 -> -ERR hash value is not an integer
        HINCRBYFLOAT h t 1 -> -ERR hash value is not a float
        HINCRBYFLOAT h f 0.1 -> \"0.1\"
        HINCRBYFLOAT h f 0.2 -> \"0.3\"
        HINCRBYFLOAT h f 5e3 -> \"5000.29999999999999982\"
        HINCRBYFLOAT h f inf -> -ERR value is NaN or Infinity
        HINCRBYFLOAT h f x -> -ERR value is not a valid float
        HINCRBYFLOAT h g 1e5000 -> -ERR value is not a valid float
        HINCRBY none n x -> -ERR value is not an integer or out of range
        EXISTS none -> 0",
    );
}

#[test]
fn errors() {
    check(
        "SET s 1 -> OK
        HSET s a 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HGET s a -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HGETALL s -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HSCAN s 0 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HRANDFIELD s -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HDEL s a -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HMGET s a -> -WRONGTYPE Operation against a key holding the wrong kind of value
        HSET h a -> -ERR wrong number of arguments for 'hset' command
        HSET h a 1 b -> -ERR wrong number of arguments for 'hset' command
        HMSET h a 1 b -> -ERR wrong number of arguments for 'hmset' command
        HSET h a 1 -> 1
        GET h -> -WRONGTYPE Operation against a key holding the wrong kind of value
        SET h 1 -> OK
        GET h -> \"1\"",
    );
}

#[test]
fn scans() {
    check(
        "HSET h a 1 b 2 -> 2
        HSCAN h 0 MATCH a* -> [\"0\" [\"a\" \"1\"]]
        HSCAN h 0 MATCH c* COUNT 1 -> [\"0\" []]
        HSCAN none 0 -> [\"0\" []]
        HSCAN none 0 NONSENSE -> [\"0\" []]
        HSCAN none x -> -ERR invalid cursor
        HSCAN h 0 NONSENSE -> -ERR syntax error
        HSCAN h 0 COUNT -> -ERR syntax error
        HSCAN h 0 COUNT 0 -> -ERR syntax error
        HSCAN h 0 COUNT x -> -ERR value is not an integer or out of range
        HSCAN h 0 TYPE string -> -ERR syntax error",
    );
}

#[test]
fn a_scan_shows_every_field_once() {
    let mut lab = Lab::new();
    for n in 0..1_000 {
        lab.say(&format!("HSET h field:{n} {n}"));
    }
    let (mut cursor, mut seen, mut steps) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let Reply::Array(parts) = lab.run(&[b"HSCAN", b"h", cursor.as_bytes()]) else { panic!() };
        let [Reply::Bulk(next), Reply::Array(found)] = &parts[..] else { panic!("{parts:?}") };
        for pair in found.chunks(2) {
            let [Reply::Bulk(field), Reply::Bulk(value)] = pair else { panic!("{pair:?}") };
            assert_eq!(&field[6..], &value[..]);
            assert!(seen.insert(field.clone()), "{field:?} was shown twice");
        }
        steps += 1;
        cursor = String::from_utf8(next.to_vec()).unwrap();
        if cursor == "0" {
            break;
        }
        lab.say(&format!("HSET h added:{steps} x"));
        lab.say(&format!("HDEL h added:{steps}"));
    }
    assert_eq!((seen.len(), steps), (1_000, 8));
}

#[test]
fn random_fields() {
    check(
        "HRANDFIELD none -> nil
        HRANDFIELD none 3 -> []
        HRANDFIELD none -3 WITHVALUES -> []
        HSET h a 1 -> 1
        HRANDFIELD h -> \"a\"
        HRANDFIELD h 0 -> []
        HRANDFIELD h 5 -> [\"a\"]
        HRANDFIELD h 5 WITHVALUES -> <\"a\" \"1\">
        HRANDFIELD h -2 -> [\"a\" \"a\"]
        HRANDFIELD h -2 withvalues -> <\"a\" \"1\", \"a\" \"1\">
        HRANDFIELD h 1 x -> -ERR syntax error
        HRANDFIELD h 1 WITHVALUES x -> -ERR syntax error
        HRANDFIELD h x -> -ERR value is not an integer or out of range
        HRANDFIELD h 9223372036854775807 WITHVALUES -> -ERR value is out of range
        HRANDFIELD h -9223372036854775808 -> -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    );
}

#[test]
fn random_fields_are_different_and_come_from_everywhere() {
    for size in [20, 2_000] {
        let mut lab = Lab::new();
        for n in 0..size {
            lab.say(&format!("HSET h f{n} {n}"));
        }
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            let Reply::Array(found) = lab.run(&[b"HRANDFIELD", b"h", b"7"]) else { panic!() };
            let found: BTreeSet<_> = found.iter().map(|field| format!("{field:?}")).collect();
            assert_eq!(found.len(), 7);
            seen.extend(found);
        }
        assert!(seen.len() >= size.min(300), "{} of {size}", seen.len());
    }
}

#[test]
fn a_large_hash_is_deleted_at_once_and_reaped_later() {
    let mut lab = Lab::new();
    for n in 0..1_000 {
        lab.say(&format!("HSET h field:{n} {n}"));
    }
    assert_eq!(lab.say("DEL h"), "1");
    // The garbage row and every field are still there.
    assert_eq!(lab.data_rows().len(), 1_001);
    while lab.machine.has_garbage().unwrap() {
        lab.apply(&crate::commands::reap(300));
    }
    assert_eq!(lab.data_rows(), []);
}
