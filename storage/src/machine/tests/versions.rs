//! Versions of keys: what WATCH compares.

use super::support::Lab;

fn version(lab: &Lab, key: &str) -> u64 {
    lab.machine.view(lab.now_ms).version(lab.db, key.as_bytes())
}

#[test]
fn every_write_changes_the_version() {
    let mut lab = Lab::new();
    lab.say("SET other 1");
    for (command, changes) in [
        ("SET a 1", true),
        ("SET a 1", true),
        ("SET a 2 NX", false),
        ("GET a", false),
        ("EXPIRE a 100", true),
        ("PERSIST a", true),
        ("PERSIST a", false),
        ("RENAME other a", true),
        ("DEL a", true),
        ("DEL a", false),
        ("SETNX a 1", true),
        ("FLUSHDB", true),
        ("SWAPDB 0 1", true),
    ] {
        let before = version(&lab, "a");
        lab.say(command);
        assert_eq!(version(&lab, "a") != before, changes, "{command}");
    }
}

#[test]
fn a_key_that_came_and_went_is_noticed() {
    let mut lab = Lab::new();
    let before = version(&lab, "a");
    lab.say("SET a 1");
    lab.say("DEL a");
    assert_ne!(version(&lab, "a"), before);

    let before = version(&lab, "b");
    lab.say("SET b 1 PX 10");
    lab.now_ms += 100;
    lab.say("DEL b");
    assert_ne!(version(&lab, "b"), before);
}

#[test]
fn a_key_of_that_name_in_another_database_does_not_matter() {
    let mut lab = Lab::new();
    let before = version(&lab, "a");
    lab.db = 3;
    lab.say("SET a 1");
    lab.say("DEL a");
    lab.db = 0;
    assert_eq!(version(&lab, "a"), before);
}

#[test]
fn a_key_whose_time_passed_is_noticed() {
    let mut lab = Lab::new();
    lab.say("SET a 1 PX 10");
    let before = version(&lab, "a");
    lab.now_ms += 100;
    assert_ne!(version(&lab, "a"), before);
}

#[test]
fn swapped_databases_changed_altogether() {
    let mut lab = Lab::new();
    // Both keys are written in one slot, so their own versions are the same.
    lab.change(|txn| {
        for db in [0, 1] {
            let place = txn.place(db, b"a");
            txn.put_string(&place, None, b"x");
        }
    });
    let before = version(&lab, "a");
    lab.say("SWAPDB 0 1");
    assert_ne!(version(&lab, "a"), before);
}

#[test]
fn tokens_only_grow() {
    let mut lab = Lab::new();
    let grant = |lab: &mut Lab| {
        let mut token = 0;
        lab.change(|txn| token = txn.next_token());
        token
    };
    assert_eq!(grant(&mut lab), 1);
    assert_eq!(grant(&mut lab), 2);
    lab.say("FLUSHALL");
    assert_eq!(grant(&mut lab), 3);
    assert_eq!(lab.machine.view(0).meta().tokens, 3);
}

/// A lock leaves its version where it leaves how its last hold ended, or, if only a delay kept it, where other keys do.
#[test]
fn a_lock_that_came_and_went_is_noticed() {
    for ends in
        [&["LOCK.RELEASE a 1"][..], &["DEL a"], &["LOCK.REVOKE a"], &["+150"], &["+60", "LOCK.REVOKE a"]]
    {
        let mut lab = Lab::new();
        let before = version(&lab, "a");
        lab.say("LOCK.ACQUIRE a owner 50 DELAY 50");
        for end in ends {
            match end.strip_prefix('+') {
                Some(ms) => lab.pass(ms.parse().unwrap()),
                None => drop(lab.say(end)),
            }
        }
        let after = version(&lab, "a");
        assert_eq!(lab.say("EXISTS a"), "0", "{ends:?}");
        assert!(after > before, "{ends:?}");
        lab.say("LOCK.ACQUIRE a owner 50");
        lab.say("LOCK.RELEASE a 2");
        assert!(version(&lab, "a") > after, "{ends:?}: a second time");
    }
}
