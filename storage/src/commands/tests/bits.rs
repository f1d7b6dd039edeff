//! Conversations about bits.

use super::check;

#[test]
fn single_bits() {
    check(
        "SETBIT k 7 1 -> 0
        SETBIT k 7 1 -> 1
        GETBIT k 7 -> 1
        GETBIT k 100 -> 0
        GETBIT none 0 -> 0
        GET k -> \"\\x01\"
        SETBIT k 15 0 -> 0
        STRLEN k -> 2
        EXPIRE k 10 -> 1
        SETBIT k 0 1 -> 0
        TTL k -> 10
        SETBIT k -1 1 -> -ERR bit offset is not an integer or out of range
        SETBIT k 4294967296 1 -> -ERR bit offset is not an integer or out of range
        SETBIT k #1 1 -> -ERR bit offset is not an integer or out of range
        SETBIT k 1 2 -> -ERR bit is not an integer or out of range
        HSET h a 1 -> 1
        SETBIT h 1 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}

#[test]
fn counting_and_finding() {
    check(
        "SET k foobar -> OK
        BITCOUNT k -> 26
        BITCOUNT k 0 0 -> 4
        BITCOUNT k 1 1 BYTE -> 6
        BITCOUNT k 5 30 BIT -> 17
        BITCOUNT k -2 -1 -> 7
        BITCOUNT k -1 -2 WHAT -> 0
        BITCOUNT k 1 2 WHAT -> -ERR syntax error
        BITCOUNT k 1 -> -ERR syntax error
        BITCOUNT none 1 -> 0
        BITPOS k 1 -> 1
        BITPOS k 0 -> 0
        BITPOS k 1 2 -> 17
        BITPOS k 1 2 3 -> 17
        BITPOS k 1 7 15 BIT -> 9
        BITPOS k 2 -> -ERR The bit argument must be 1 or 0.
        BITPOS none 1 -> -1
        BITPOS none 0 -> 0
        BITFIELD ones SET u8 0 255 -> [0]
        BITPOS ones 0 -> 8
        BITPOS ones 0 0 -> 8
        BITPOS ones 0 0 -1 -> -1
        BITPOS ones 1 1 -> -1",
    );
}

#[test]
fn combining() {
    check(
        "SET a foobar -> OK
        SET b abc -> OK
        BITOP AND d a b -> 6
        GET d -> \"`bc\\x00\\x00\\x00\"
        BITOP OR d a none -> 6
        GET d -> \"foobar\"
        BITOP XOR d a a -> 6
        BITCOUNT d -> 0
        BITOP NOT d b -> 3
        GET d -> \"\\x9e\\x9d\\x9c\"
        BITOP AND d none -> 0
        EXISTS d -> 0
        BITOP NOT d a b -> -ERR BITOP NOT must be called with a single source key.
        BITOP NAND d a -> -ERR syntax error",
    );
}

#[test]
fn fields() {
    check(
        "BITFIELD k INCRBY i5 100 1 GET u4 0 -> [1 0]
        BITFIELD k SET u8 #0 200 GET i8 0 GET u8 0 -> [0 -56 200]
        BITFIELD k INCRBY u8 0 100 -> [44]
        BITFIELD k OVERFLOW SAT INCRBY u8 0 500 INCRBY u8 0 -600 -> [255 0]
        BITFIELD k OVERFLOW FAIL INCRBY u8 0 -1 SET u8 0 256 -> [nil nil]
        BITFIELD k SET i64 0 -1 -> [0]
        BITFIELD k OVERFLOW SAT INCRBY i64 0 -9223372036854775808 -> [-9223372036854775808]
        BITFIELD far OVERFLOW SAT SET i32 0 -9223372036854775808 GET i32 0 -> [0 2147483647]
        BITFIELD far OVERFLOW SAT SET i32 0 -9999999999 GET i32 0 -> [2147483647 -2147483648]
        BITFIELD k -> []
        BITFIELD_RO k GET u1 0 -> [1]
        BITFIELD_RO k SET u1 0 1 -> -ERR BITFIELD_RO only supports the GET subcommand
        BITFIELD k GET u64 0 -> -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
        BITFIELD k OVERFLOW NEVER -> -ERR Invalid OVERFLOW type specified
        BITFIELD k GET u8 -> -ERR syntax error
        BITFIELD none GET u8 0 -> [0]
        EXISTS none -> 0",
    );
}
