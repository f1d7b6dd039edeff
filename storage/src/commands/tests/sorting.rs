//! Conversations about SORT, LCS, OBJECT and MEMORY.

use super::check;

#[test]
fn sorting() {
    check(
        "RPUSH l 3 1 2 10 -> 4
        SORT l -> [\"1\" \"2\" \"3\" \"10\"]
        SORT l DESC -> [\"10\" \"3\" \"2\" \"1\"]
        SORT l ALPHA -> [\"1\" \"10\" \"2\" \"3\"]
        SORT_RO l ALPHA DESC LIMIT 1 2 -> [\"2\" \"10\"]
        SORT l BY nosort DESC LIMIT 0 2 -> [\"10\" \"2\"]
        MSET w1 3 w2 2 w3 1 -> OK
        SORT l BY w* -> [\"10\" \"3\" \"2\" \"1\"]
        SORT l GET # GET w* -> [\"1\" \"3\" \"2\" \"2\" \"3\" \"1\" \"10\" nil]
        HSET h1 f x -> 1
        SORT l LIMIT 0 1 GET h*->f -> [\"x\"]
        SORT l LIMIT 9 1 -> []
        SORT l LIMIT 0 2 STORE d -> 2
        LRANGE d 0 -1 -> [\"1\" \"2\"]
        SORT none STORE d -> 0
        EXISTS d -> 0
        SORT none -> []
        RPUSH l x -> 5
        SORT l -> -ERR One or more scores can't be converted into double
        SORT l BY -> -ERR syntax error
        SORT_RO l STORE d -> -ERR syntax error
        SORT h1 -> -WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}

#[test]
fn a_stored_sort_takes_no_deadline_over() {
    check(
        "RPUSH l 2 1 -> 2
        SET d x EX 100 -> OK
        SORT l STORE d -> 2
        TTL d -> -1
        SORT d STORE d DESC -> 2
        LRANGE d 0 -1 -> [\"2\" \"1\"]",
    );
}

#[test]
fn longest_common_subsequence() {
    check(
        "MSET a ohmytext b mynewtext -> OK
        LCS a b -> \"mytext\"
        LCS a b LEN -> 6
        LCS a b IDX -> {\"len\" 6, \"matches\" [[[4 7] [5 8]] [[2 3] [0 1]]]}
        LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN -> {\"len\" 6, \"matches\" [[[4 7] [5 8] 4]]}
        LCS a none -> \"\"
        LCS a b LEN IDX -> -ERR If you want both the length and indexes, please just use IDX.
        LCS a b WHAT -> -ERR syntax error
        HSET h a 1 -> 1
        LCS a h -> -ERR The specified keys must contain string values",
    );
}

#[test]
fn objects() {
    check(
        "MSET a 1 b text -> OK
        OBJECT ENCODING a -> \"int\"
        OBJECT ENCODING b -> \"embstr\"
        OBJECT ENCODING none -> nil
        OBJECT REFCOUNT a -> 1
        OBJECT IDLETIME a -> 0
        OBJECT WHAT a -> -ERR unknown subcommand 'WHAT'. Try OBJECT HELP.
        OBJECT ENCODING -> -ERR wrong number of arguments for 'object|encoding' command
        RPUSH l 1 -> 1
        OBJECT ENCODING l -> \"quicklist\"
        HSET h a 1 -> 1
        OBJECT ENCODING h -> \"listpack\"
        MEMORY USAGE none -> nil
        MEMORY USAGE a SAMPLES -1 -> -ERR syntax error
        MEMORY WHAT -> -ERR unknown subcommand 'WHAT'. Try MEMORY HELP.",
    );
}
