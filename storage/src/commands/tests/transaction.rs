//! EXEC as the machine sees it.

use crate::commands::{REPLY_BYTES_MAX, Watched, transaction};
use crate::machine::encode_command;
use crate::machine::tests::support::{Lab, show};
use crate::reply::Reply;
use bytes::Bytes;

fn commands(lines: &[&str]) -> Vec<Bytes> {
    lines.iter().map(|line| encode_command(0, &line.split(' ').collect::<Vec<_>>())).collect()
}

fn watch(lab: &Lab, db: u8, key: &'static str) -> Watched {
    let version = lab.machine.view(lab.now_ms).version(db, key.as_bytes());
    Watched { db, key: Bytes::from_static(key.as_bytes()), version }
}

#[test]
fn replies_in_order_and_errors_in_their_places() {
    let mut lab = Lab::new();
    lab.say("HSET h f 1");
    let queued = commands(&["SET a 1", "INCR a", "INCR h", "GET a", "SET a", "DBSIZE"]);
    let reply = show(&lab.apply(&transaction(&[], &queued)));
    assert_eq!(
        reply,
        "[OK 2 -WRONGTYPE Operation against a key holding the wrong kind of value \"2\" \
         -ERR wrong number of arguments for 'set' command 2]"
    );
    assert_eq!(show(&lab.apply(&transaction(&[], &[]))), "[]");
    lab.check_invariants();
}

#[test]
fn a_command_that_fails_halfway_leaves_nothing() {
    let mut lab = Lab::new();
    lab.change(|txn| {
        let reply = txn.attempt(|txn| {
            let place = txn.place(0, b"half");
            txn.put_string(&place, Some(9_000_000), b"done");
            txn.attempt(|txn| {
                let place = txn.place(0, b"inner");
                txn.put_string(&place, None, b"x");
                Reply::Ok
            });
            Reply::error("ERR changed its mind")
        });
        assert!(reply.is_error());
        txn.attempt(|txn| {
            let place = txn.place(0, b"whole");
            txn.put_string(&place, None, b"x");
            Reply::Ok
        });
    });
    assert_eq!(lab.say("KEYS *"), "[\"whole\"]");
    lab.check_invariants();
}

#[test]
fn a_watched_key_that_changed_stops_it() {
    for (change, stops) in [
        ("GET a", false),
        ("SET other 1", false),
        ("SET a 1", true), // the same value again
        ("DEL a", true),
        ("EXPIRE a 100", true),
        ("FLUSHALL", true),
        ("FLUSHDB", true),
        ("SWAPDB 0 1", true),
        ("SWAPDB 2 3", false),
        ("RENAME other a", true),
    ] {
        let mut lab = Lab::new();
        lab.say("SET a 1");
        lab.say("SET other 2");
        let watched = [watch(&lab, 0, "a")];
        lab.say(change);
        let reply = lab.apply(&transaction(&watched, &commands(&["SET done yes"])));
        assert_eq!(reply == Reply::NullArray, stops, "{change}");
        assert_eq!(lab.say("EXISTS done"), if stops { "0" } else { "1" }, "{change}");
    }
}

#[test]
fn a_watched_key_whose_time_passed_or_that_came_and_went_stops_it() {
    let mut lab = Lab::new();
    lab.say("SET a 1 PX 10");
    let (expiring, absent, elsewhere) = (watch(&lab, 0, "a"), watch(&lab, 0, "b"), watch(&lab, 5, "b"));
    assert_eq!(show(&lab.apply(&transaction(&[expiring.clone(), absent.clone()], &[]))), "[]");
    lab.now_ms += 100;
    assert_eq!(lab.apply(&transaction(&[expiring], &[])), Reply::NullArray);
    lab.say("SET b 1");
    lab.say("DEL b");
    assert_eq!(lab.apply(&transaction(std::slice::from_ref(&absent), &[])), Reply::NullArray);
    // The memory of deletions is shared by all databases; what matters is that a change is never missed.
    let _ = lab.apply(&transaction(&[elsewhere], &[]));
}

#[test]
fn replies_that_are_too_large_undo_everything() {
    let mut lab = Lab::new();
    let large = "x".repeat(1 << 20);
    lab.say(&format!("SET large {large}"));
    let mut lines = vec!["SET before 1"];
    lines.resize(2 + (REPLY_BYTES_MAX >> 20), "GET large");
    let reply = show(&lab.apply(&transaction(&[], &commands(&lines))));
    assert!(reply.starts_with("-ERR the replies of this transaction are too large"), "{reply}");
    assert_eq!(lab.say("EXISTS before"), "0");
    lines.truncate(10);
    assert!(!lab.apply(&transaction(&[], &commands(&lines))).is_error());
}

#[test]
fn a_wrong_entry_is_an_error_and_changes_nothing() {
    let mut lab = Lab::new();
    for words in [
        &[&b"WARLOCK.EXEC"[..], b"x"][..],
        &[b"WARLOCK.EXEC", b"-1"],
        &[b"WARLOCK.EXEC", b"1"],
        &[b"WARLOCK.EXEC", b"1", b"short"],
        &[b"WARLOCK.EXEC", b"0", b"nonsense"],
        &[b"WARLOCK.EXEC", b"18446744073709551615"],
    ] {
        assert!(lab.apply(&encode_command(0, words)).is_error());
    }
    // Not from inside itself, either: it would be a way around the limits.
    let inner = transaction(&[], &commands(&["SET a 1"]));
    let reply = show(&lab.apply(&transaction(&[], &[inner])));
    assert!(reply.starts_with("[-ERR"), "{reply}");
    assert_eq!(lab.data_rows(), []);
}
