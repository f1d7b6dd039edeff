//! Conversations about strings.

use super::check;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn get_set() {
    check(
        "GET a -> nil
        SET a 1 -> OK
        GET a -> \"1\"
        get a -> \"1\"
        SET a \"\" -> OK
        GET a -> \"\"
        SET a 0123456789012345678901234567890123456789 -> OK
        GET a -> \"0123456789012345678901234567890123456789\"
        GET -> -ERR wrong number of arguments for 'get' command
        GET a b -> -ERR wrong number of arguments for 'get' command
        SET a -> -ERR wrong number of arguments for 'set' command
        NOSUCH a b -> -ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'\u{20}",
    );
}

#[test]
fn set_conditions() {
    check(
        "SET a 1 XX -> nil
        SET a 1 nx -> OK
        SET a 2 NX -> nil
        GET a -> \"1\"
        SET a 2 XX -> OK
        GET a -> \"2\"
        SET a 3 NX XX -> -ERR syntax error
        SET a 3 FOO -> -ERR syntax error
        SET a 3 GET -> \"2\"
        SET a 4 NX GET -> \"3\"
        GET a -> \"3\"
        SET b 4 NX GET -> nil
        GET b -> \"4\"
        SET c 4 XX GET -> nil
        GET c -> nil
        SET a x IFEQ nope -> nil
        SET a x IFEQ 3 -> OK
        SET a y IFNE x -> nil
        SET a y IFNE z -> OK
        SET a z IFEQ y GET -> \"y\"
        SET a q IFEQ y GET -> \"z\"
        GET a -> \"z\"
        SET new 1 IFEQ 1 -> nil
        EXISTS new -> 0
        SET new 1 IFNE 1 -> OK
        SET a 1 IFEQ -> -ERR syntax error
        SET a 1 IFEQ z NX -> -ERR syntax error
        SET a 1 XX IFNE z -> -ERR syntax error",
    );
}

#[test]
fn set_lifetimes() {
    check(
        "SET a 1 EX 10 -> OK
        PTTL a -> 10000
        SET a 1 -> OK
        TTL a -> -1
        SET a 1 PX 1500 -> OK
        SET a 2 KEEPTTL -> OK
        PTTL a -> 1500
        +1500
        GET a -> \"2\"
        +1
        GET a -> nil
        SET a 1 EXAT 2000 -> OK
        PEXPIRETIME a -> 2000000
        SET a 1 PXAT 1900001 -> OK
        EXPIRETIME a -> 1900
        SET a 1 EX 0 -> -ERR invalid expire time in 'set' command
        SET a 1 EX -1 -> -ERR invalid expire time in 'set' command
        SET a 1 EX 9223372036854775807 -> -ERR invalid expire time in 'set' command
        SET a 1 PX 9223372036854775807 -> -ERR invalid expire time in 'set' command
        SET a 1 PXAT 9223372036854775807 -> OK
        SET a 1 EX x -> -ERR value is not an integer or out of range
        SET a 1 EX -> -ERR syntax error
        SET a 1 EX 1 PX 1 -> -ERR syntax error
        SET a 1 EX 1 KEEPTTL -> -ERR syntax error
        SET a 1 KEEPTTL EX 1 -> -ERR syntax error
        SET a 1 EX 1 EX 2 -> OK
        TTL a -> 2
        SET a 9 PXAT 1 -> OK
        GET a -> nil
        SET a 1 EX 100 NX GET -> nil
        TTL a -> 100
        DBSIZE -> 1",
    );
}

#[test]
fn older_ways_to_set() {
    check(
        "SETNX a 1 -> 1
        SETNX a 2 -> 0
        GET a -> \"1\"
        SETEX a 5 x -> OK
        TTL a -> 5
        SETEX a 0 x -> -ERR invalid expire time in 'setex' command
        PSETEX a 50 y -> OK
        PTTL a -> 50
        PSETEX a -1 y -> -ERR invalid expire time in 'psetex' command
        PSETEX a z y -> -ERR value is not an integer or out of range
        GETSET a 3 -> \"y\"
        TTL a -> -1
        GETSET none 3 -> nil
        GETDEL a -> \"3\"
        GETDEL a -> nil
        EXISTS a -> 0",
    );
}

#[test]
fn getex() {
    check(
        "GETEX a -> nil
        GETEX a EX 0 -> nil
        SET a 1 -> OK
        GETEX a -> \"1\"
        TTL a -> -1
        GETEX a EX 10 -> \"1\"
        TTL a -> 10
        GETEX a PERSIST -> \"1\"
        TTL a -> -1
        GETEX a PERSIST EX 1 -> -ERR syntax error
        GETEX a EX 1 PX 1 -> -ERR syntax error
        GETEX a EX 0 -> -ERR invalid expire time in 'getex' command
        GETEX a NX -> -ERR syntax error
        GETEX a PXAT 1 -> \"1\"
        GET a -> nil",
    );
}

#[test]
fn many_at_once() {
    check(
        "MSET a 1 b 2 a 3 -> OK
        MGET a b c a -> [\"3\" \"2\" nil \"3\"]
        MSET a -> -ERR wrong number of arguments for 'mset' command
        MSET a 1 b -> -ERR wrong number of arguments for 'mset' command
        MSETNX c 1 a 2 -> 0
        EXISTS c -> 0
        MSETNX c 1 d 2 -> 1
        MSETNX c 1 d -> -ERR wrong number of arguments for 'msetnx' command
        hash h
        MGET h a -> [nil \"3\"]
        DBSIZE -> 5",
    );
}

#[test]
fn integers() {
    check(
        "INCR n -> 1
        INCRBY n 41 -> 42
        DECR n -> 41
        DECRBY n 50 -> -9
        GET n -> \"-9\"
        SET n 9223372036854775807 -> OK
        INCR n -> -ERR increment or decrement would overflow
        DECRBY n -9223372036854775808 -> -ERR decrement would overflow
        INCRBY n abc -> -ERR value is not an integer or out of range
        SET s abc -> OK
        INCR s -> -ERR value is not an integer or out of range
        SET s 012 -> OK
        INCR s -> -ERR value is not an integer or out of range
        SET t 5 EX 100 -> OK
        INCR t -> 6
        TTL t -> 100",
    );
}

#[test]
fn floats() {
    check(
        "SET f 10.50 -> OK
        INCRBYFLOAT f 0.1 -> \"10.6\"
        INCRBYFLOAT f -5 -> \"5.6\"
        SET f 5.0e3 -> OK
        INCRBYFLOAT f 2.0e2 -> \"5200\"
        INCRBYFLOAT new 0.1 -> \"0.1\"
        INCRBYFLOAT new 0.2 -> \"0.3\"
        INCRBYFLOAT new abc -> -ERR value is not a valid float
        INCRBYFLOAT new inf -> -ERR increment would produce NaN or Infinity
        SET f abc -> OK
        INCRBYFLOAT f 1 -> -ERR value is not a valid float
        SET f 1 EX 10 -> OK
        INCRBYFLOAT f 1 -> \"2\"
        TTL f -> 10",
    );
}

#[test]
fn parts() {
    check(
        "APPEND a Hello -> 5
        APPEND a World -> 10
        STRLEN a -> 10
        STRLEN none -> 0
        GETRANGE a 0 4 -> \"Hello\"
        GETRANGE a -5 -1 -> \"World\"
        SUBSTR a 3 6 -> \"loWo\"
        GETRANGE a 0 -1 -> \"HelloWorld\"
        GETRANGE a 8 100 -> \"ld\"
        GETRANGE a 5 3 -> \"\"
        GETRANGE a -1 -5 -> \"\"
        GETRANGE a -100 2 -> \"Hel\"
        GETRANGE a -9223372036854775808 9223372036854775807 -> \"HelloWorld\"
        GETRANGE a 100 200 -> \"\"
        GETRANGE none 0 -1 -> \"\"
        GETRANGE a x 1 -> -ERR value is not an integer or out of range
        SETRANGE a 5 Redis -> 10
        GET a -> \"HelloRedis\"
        SETRANGE a 12 ! -> 13
        GET a -> \"HelloRedis\\x00\\x00!\"
        SETRANGE none 3 \"\" -> 0
        EXISTS none -> 0
        SETRANGE none 3 x -> 4
        SETRANGE a -1 x -> -ERR offset is out of range
        SETRANGE a 536870912 x -> -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SETRANGE a 9223372036854775807 x -> -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SET e 1 EX 9 -> OK
        APPEND e 2 -> 2
        SETRANGE e 0 9 -> 2
        TTL e -> 9",
    );
}

#[test]
fn compare_and_delete() {
    check(
        "SET a 1 -> OK
        DELIFEQ a 2 -> 0
        DELIFEQ a 1 -> 1
        DELIFEQ a 1 -> 0
        SET a 1 -> OK
        DELEX a IFEQ 2 -> 0
        DELEX a IFNE 1 -> 0
        DELEX a ifne 2 -> 1
        DELEX a IFNE 2 -> 0
        SET a 1 -> OK
        DELEX a IFEQ 1 -> 1
        SET a 1 -> OK
        DELEX a -> 1
        DELEX a -> 0
        DELEX a IFEQ -> -ERR wrong number of arguments for 'delex' command
        DELEX a FOO 1 -> -ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE
        hash h
        DELEX h -> 1",
    );
}

#[test]
fn other_types_are_refused() {
    for command in [
        "GET h",
        "SET h 1 GET",
        "SET h 1 IFEQ 1",
        "SET h 1 IFNE 1",
        "GETSET h 1",
        "GETDEL h",
        "GETEX h",
        "STRLEN h",
        "APPEND h x",
        "GETRANGE h 0 1",
        "SUBSTR h 0 1",
        "SETRANGE h 0 x",
        "INCR h",
        "INCRBY h 1",
        "INCRBYFLOAT h 1",
        "DECR h",
        "DECRBY h 1",
        "DELIFEQ h 1",
        "DELEX h IFEQ 1",
    ] {
        check(&format!("hash h\n{command} -> {WRONG_TYPE}\nTYPE h -> +hash"));
    }
    check("hash h\nSET h 1 -> OK\nTYPE h -> +string\nDBSIZE -> 1");
    check("hash h\nSETNX h 1 -> 0\nSET h 1 NX -> nil\nMSETNX h 1 -> 0\nSETEX h 1 x -> OK\nGET h -> \"x\"");
}
