//! Young locks, which stand on a page and have no row of their own yet: nothing of that is seen.

use crate::machine::tests::support::{Lab, show};
use crate::machine::{Caller, Stamp, encode_command};

/// Runs commands in one slot; their replies.
fn in_one_slot(lab: &mut Lab, commands: &[&[&str]]) -> Vec<String> {
    let slot = lab.machine.applied() + 1;
    let mut replies = Vec::new();
    for (index, command) in (0..).zip(commands) {
        let caller = Caller { node: 1, incarnation: 1, seq: slot * 100 + u64::from(index) };
        let stamp = Stamp { slot, index, at_ms: lab.now_ms };
        replies.push(show(&lab.machine.apply_for(&stamp, caller, &encode_command(0, command))));
    }
    lab.machine.finish_slot(slot).unwrap();
    lab.check_invariants();
    replies
}

fn told(lab: &mut Lab) -> String {
    lab.told().join(" | ")
}

#[test]
fn a_lock_grows_up_and_its_time_passes() {
    let mut lab = Lab::new();
    in_one_slot(&mut lab, &[&["LOCK.ACQUIRE", "k", "a", "5000"], &["LOCK.ACQUIRE", "gone", "a", "5000"]]);
    assert_eq!(lab.say("LOCK.RELEASE gone 2"), "0");
    let version = lab.machine.view(lab.now_ms).version(0, b"k");
    for _ in 0..4 {
        lab.pass(1_000);
        lab.check_invariants();
        assert_eq!(lab.say("LOCK.CHECK k 1"), "1");
    }
    assert_eq!(lab.machine.view(lab.now_ms).version(0, b"k"), version, "who watches it sees no change");
    told(&mut lab);
    lab.pass(1_001);
    assert_eq!(told(&mut lab), "k expired 1");
    lab.check_invariants();
    assert_eq!(lab.machine.next_deadline_ms().unwrap(), None, "nothing is left to be looked at");
}

#[test]
fn one_sweep_long_after_it_was_taken_is_enough() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 5000");
    lab.say("LOCK.ACQUIRE k b 5000 WAIT 60000");
    told(&mut lab);
    assert_eq!(lab.machine.next_deadline_ms().unwrap(), Some(lab.now_ms + 1_000));
    lab.pass(5_001);
    assert_eq!(told(&mut lab), "k expired 1 | k acquired 2 | 2 [2 5000]");
    lab.check_invariants();
}

#[test]
fn whatever_is_done_to_a_young_lock_its_rows_are_right() {
    for doing in [
        &["LOCK.RENEW k 1 2000"][..],
        &["LOCK.RENEW k 1 90000"],
        &["LOCK.ACQUIRE k a 60000 SHARED"],
        &["LOCK.ACQUIRE k b 3000 SHARED"],
        &["LOCK.RELEASE k 1", "LOCK.ACQUIRE k a 60000"],
        &["LOCK.RELEASE k 1", "SET k v"],
        &["LOCK.REVOKE k", "LOCK.ACQUIRE k c 500"],
        &["DEL k", "LOCK.ACQUIRE k c 60000 DELAY 100"],
    ] {
        let mut lab = Lab::new();
        assert_eq!(lab.say("LOCK.ACQUIRE k a 60000 SHARED"), "[1 60000]");
        for command in doing {
            lab.say(command);
            lab.check_invariants();
        }
        for ms in [400, 700, 1_000, 60_000, 60_000] {
            lab.pass(ms);
            lab.check_invariants();
        }
        let is_gone = lab.say("EXISTS k") == "0";
        assert!(is_gone || doing.contains(&"SET k v"), "{doing:?}");
    }
}

#[test]
fn emptying_a_database_revokes_what_was_taken_a_moment_ago() {
    let acquire: &[&str] = &["LOCK.ACQUIRE", "k", "a", "60000"];
    for flush in [&["FLUSHDB"][..], &["FLUSHALL"], &["SWAPDB", "0", "1"]] {
        // In another slot.
        let mut lab = Lab::new();
        in_one_slot(&mut lab, &[acquire]);
        in_one_slot(&mut lab, &[flush]);
        assert_eq!(told(&mut lab), "k acquired 1 | k revoked 1", "{flush:?}");
        lab.pass(2_000);
        lab.check_invariants();
        // In the same one, where it has no page yet.
        in_one_slot(&mut lab, &[acquire, flush, acquire]);
        assert_eq!(told(&mut lab), "k acquired 2 | k revoked 2 | k acquired 3", "{flush:?}");
        lab.pass(2_000);
        lab.check_invariants();
        assert_eq!(lab.say("LOCK.CHECK k 3"), "1");
    }
}

#[test]
fn a_script_that_takes_a_lock_and_empties_the_database_revokes_it() {
    let mut lab = Lab::new();
    let script = "redis.call('LOCK.ACQUIRE', 'k', 'a', 60000) redis.call('FLUSHALL') return 'done'";
    let replies = in_one_slot(&mut lab, &[&["LOCK.ACQUIRE", "before", "a", "60000"], &["EVAL", script, "0"]]);
    assert_eq!(replies[1], "\"done\"");
    assert_eq!(told(&mut lab), "before acquired 1 | k acquired 2 | k revoked 2 | before revoked 1");
}
