//! Sweeping and reaping.

use super::support::Lab;
use crate::commands::{reap, sweep};
use crate::reply::Reply;

#[test]
fn a_sweep_removes_what_is_over_and_no_more() {
    let mut lab = Lab::new();
    for n in 0..10 {
        lab.say(&format!("SET key:{n} x PX {}", 10 + n));
    }
    lab.say("SET stays x");
    lab.now_ms += 15;
    assert_eq!(lab.machine.next_deadline_ms().unwrap(), Some(1_000_010));
    assert_eq!(lab.apply(&sweep(3)), Reply::Integer(3));
    assert_eq!(lab.say("DBSIZE"), "8");
    assert_eq!(lab.apply(&sweep(100)), Reply::Integer(2));
    assert_eq!(lab.say("DBSIZE"), "6");
    assert_eq!(lab.apply(&sweep(100)), Reply::Integer(0));
    // In its last millisecond a key still lives.
    assert_eq!(lab.machine.next_deadline_ms().unwrap(), Some(lab.now_ms));
    lab.check_invariants();
}

#[test]
fn clients_cannot_sweep() {
    assert!(crate::commands::lookup(b"WARLOCK.SWEEP").is_none());
    assert!(crate::commands::all().all(|spec| !spec.name.starts_with("WARLOCK.")));
}

#[test]
fn a_flush_is_reaped_little_by_little() {
    let mut lab = Lab::new();
    for n in 0..20 {
        lab.say(&format!("SET key:{n} x EX 100"));
    }
    lab.make_hash("h", 5);
    lab.say("FLUSHDB");
    assert_eq!(lab.say("DBSIZE"), "0");
    assert_eq!(lab.data_rows().len(), 20 * 2 + 1 + 5 + 1);
    lab.say("SET key:1 new EX 100");
    assert!(lab.machine.has_garbage().unwrap());
    let mut steps = 0;
    while lab.machine.has_garbage().unwrap() {
        lab.apply(&reap(4));
        lab.check_invariants();
        steps += 1;
        assert!(steps < 20);
    }
    assert!(steps > 5);
    assert_eq!(lab.data_rows().len(), 2);
    assert_eq!(lab.say("GET key:1"), "\"new\"");
    assert_eq!(lab.apply(&reap(4)), Reply::Integer(0));
}

#[test]
fn deadlines_of_a_flushed_database_are_swept() {
    let mut lab = Lab::new();
    lab.say("SET a x PX 10");
    lab.say("FLUSHALL");
    lab.say("SET a y PX 1000");
    lab.now_ms += 500;
    assert_eq!(lab.apply(&sweep(10)), Reply::Integer(1));
    assert_eq!(lab.say("GET a"), "\"y\"");
    lab.check_invariants();
}

#[test]
fn members_go_with_their_key_and_stay_with_a_renamed_one() {
    let mut lab = Lab::new();
    lab.make_hash("h", 5);
    let rows = lab.data_rows().len();
    lab.say("RENAME h g");
    assert_eq!(lab.data_rows().len(), rows);
    assert!(!lab.machine.has_garbage().unwrap());
    assert_eq!(lab.say("COPY g c"), "1");
    assert_eq!(lab.data_rows().len(), 2 * rows);
    lab.say("MOVE c 3");
    assert!(!lab.machine.has_garbage().unwrap());
    for command in ["SET g x", "FLUSHALL"] {
        lab.say(command);
        assert!(lab.machine.has_garbage().unwrap(), "{command}");
    }
    while lab.machine.has_garbage().unwrap() {
        lab.apply(&reap(100));
    }
    assert_eq!(lab.data_rows(), []);
}
