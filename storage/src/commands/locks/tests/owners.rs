//! An owner that asks more than once, and requests that wait with a session.

use super::examples::check;
use crate::machine::tests::support::Lab;

#[test]
fn the_same_owner_gets_the_same_token_and_must_release_as_often() {
    check(
        "LOCK.ACQUIRE k a 1000 -> [1 1000]
         LOCK.ACQUIRE k a 500 -> [1 1000]
         LOCK.ACQUIRE k a 2000 -> [1 2000]
         LOCK.ACQUIRE k b 1000 -> nil
         LOCK.RELEASE k 1 -> 2
         LOCK.RELEASE k 1 -> 1
         LOCK.RELEASE k 1 -> 0
         LOCK.ACQUIRE k b 1000 -> [2 1000]",
    );
}

#[test]
fn who_gets_a_lock_gets_it_with_all_its_requests_that_wait() {
    check(
        "LOCK.ACQUIRE k a 60000 -> [1 60000]
         LOCK.ACQUIRE k b 60000 WAIT 60000 -> waiting
         LOCK.ACQUIRE k c 60000 WAIT 60000 -> waiting
         LOCK.ACQUIRE k b 90000 WAIT 50 -> waiting
         LOCK.ACQUIRE k b 90000 SHARED WAIT 60000 -> waiting
         LOCK.ACQUIRE k bb 60000 WAIT 60000 -> waiting
         LOCK.ACQUIRE other c 60000 -> [2 60000]
         LOCK.ACQUIRE other b 60000 WAIT 60000 -> waiting
         ! k acquired 1 | other acquired 2
         LOCK.RELEASE k 1 -> 0
         ! k released 1 | k acquired 3 | 2 [3 60000] | 4 [3 90000] | 5 [3 90000]
         LOCK.RELEASE k 3 -> 2
         LOCK.RELEASE k 3 -> 1
         LOCK.RELEASE k 3 -> 0
         ! k released 3 | k acquired 4 | 3 [4 60000]",
    );
}

/// Two who wait for each other's share would wait for ever: but the second request may come to its turn when the first is given back.
#[test]
fn a_request_that_its_owners_share_stands_in_the_way_of_keeps_its_place() {
    check(
        "LOCK.ACQUIRE k a 60000 -> [1 60000]
         LOCK.ACQUIRE k b 60000 SHARED WAIT 60000 -> waiting
         LOCK.ACQUIRE k c 60000 WAIT 60000 -> waiting
         LOCK.ACQUIRE k b 60000 WAIT 60000 -> waiting
         LOCK.ACQUIRE k b 60000 SHARED WAIT 60000 -> waiting
         LOCK.RELEASE k 1 -> 0
         ! k acquired 1 | k released 1 | k acquired 2 | 2 [2 60000] | 5 [2 60000]
         LOCK.RELEASE k 2 -> 1
         LOCK.RELEASE k 2 -> 0
         ! k released 2 | k acquired 3 | 3 [3 60000]
         LOCK.RELEASE k 3 -> 0
         ! k released 3 | k acquired 4 | 4 [4 60000]",
    );
}

#[test]
fn a_request_whose_time_is_over_gets_nothing_with_its_owners_others() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 60000");
    lab.say("LOCK.ACQUIRE k b 60000 WAIT 60000");
    lab.say("LOCK.ACQUIRE k c 60000 WAIT 60000");
    lab.say("LOCK.ACQUIRE k b 60000 WAIT 50");
    lab.told();
    // Nobody sweeps in between.
    lab.now_ms += 50;
    lab.say("LOCK.RELEASE k 1");
    assert_eq!(lab.told(), ["k released 1", "k acquired 2", "2 [2 60000]", "4 nil"]);
    lab.check_invariants();
}

#[test]
fn who_waits_with_a_session_leaves_the_line_when_the_session_ends() {
    let no_session = "-NOSESSION session 1 has ended, or there was none; open another one";
    for way in ["SESSION.CLOSE 1 -> 1", "+501"] {
        check(&format!(
            "SESSION.OPEN 500 -> 1
             LOCK.ACQUIRE k a 60000 SHARED -> [2 60000]
             LOCK.ACQUIRE k e 1000 WAIT 70000 SESSION 1 -> waiting
             LOCK.ACQUIRE k s 60000 SHARED WAIT 5000 -> waiting
             LOCK.ACQUIRE k e 0 WAIT 70000 SESSION 1 -> waiting
             ! k acquired 2
             {way}
             ! 3 {no_session} | 5 {no_session} | k acquired 3 | 4 [3 60000]
             LOCK.RELEASE k 2 -> 0
             LOCK.RELEASE k 3 -> 0
             ! k released 2 | k released 3"
        ));
    }
}

/// Its turn comes before anybody has seen that the session's time is over.
#[test]
fn a_turn_that_comes_after_the_sessions_time_goes_to_the_next() {
    let mut lab = Lab::new();
    let no_session = "-NOSESSION session 1 has ended, or there was none; open another one";
    lab.say("SESSION.OPEN 500");
    lab.say("LOCK.ACQUIRE k a 60000");
    lab.say("LOCK.ACQUIRE k e 1000 WAIT 70000 SESSION 1");
    lab.say("LOCK.ACQUIRE k f 1000 WAIT 70000 SESSION 1");
    lab.say("LOCK.ACQUIRE k s 1000 WAIT 70000");
    lab.told();
    lab.now_ms += 501;
    lab.say("LOCK.RELEASE k 2");
    let told = lab.told();
    let expected = ["k released 2", &format!("3 {no_session}"), &format!("4 {no_session}"), "k acquired 3"];
    assert_eq!(told[..4], expected);
    assert_eq!(told[4..], ["5 [3 1000]"]);
    lab.check_invariants();
}

#[test]
fn who_asks_again_with_a_session_binds_the_hold_to_it() {
    check(
        "SESSION.OPEN 1000 -> 1
         SESSION.OPEN 60000 -> 2
         LOCK.ACQUIRE k a 60000 SESSION 1 -> [3 60000]
         LOCK.ACQUIRE k a 60000 -> [3 60000]
         LOCK.ACQUIRE k a 60000 SESSION 2 -> [3 60000]
         LOCK.ACQUIRE plain a 500 -> [4 500]
         LOCK.ACQUIRE plain a 0 SESSION 2 -> [4 -1]
         LOCK.ACQUIRE kept a 0 SESSION 1 -> [5 -1]
         LOCK.ACQUIRE kept a 60000 -> [5 -1]
         LOCK.ACQUIRE shared a 60000 SHARED SESSION 1 -> [6 60000]
         LOCK.ACQUIRE shared b 60000 SHARED SESSION 1 -> [7 60000]
         LOCK.ACQUIRE shared a 60000 SHARED SESSION 2 -> [6 60000]
         ! k acquired 3 | plain acquired 4 | kept acquired 5 | shared acquired 6 | shared acquired 7
         +1001
         ! kept session 5 | shared session 7
         SESSION.CLOSE 2 -> 1
         ! k session 3 | plain session 4 | shared session 6
         EXISTS k plain kept shared -> 0",
    );
}

#[test]
fn who_asks_again_may_say_another_delay_and_other_data() {
    check(
        "LOCK.ACQUIRE k a 100 DELAY 5000 DATA first -> [1 100]
         LOCK.ACQUIRE k a 100 -> [1 100]
         LOCK.ACQUIRE k a 100 DELAY 50 DATA second -> [1 100]
         LOCK.RELEASE k 1 -> 2
         +101
         LOCK.ACQUIRE k b 100 -> nil
         +50
         LOCK.ACQUIRE k b 100 -> [2 100]",
    );
    let mut lab = Lab::new();
    let data = |lab: &mut Lab| {
        let info = lab.say("LOCK.INFO k");
        info.split("\"data\" ").nth(1).unwrap().split(',').next().unwrap().to_string()
    };
    for (said, expected) in [("DATA first", "\"first\""), ("", "\"first\""), ("DATA second", "\"second\"")] {
        lab.say(&format!("LOCK.ACQUIRE k a 100 {said}"));
        assert_eq!(data(&mut lab), expected, "{said}");
    }
    lab.say("LOCK.ACQUIRE k a 100 DATA \"\"");
    assert_eq!(data(&mut lab), "\"\"");
}

/// After a lost connection an owner asks again over another one, perhaps through another node.
#[test]
fn the_loss_is_told_to_the_connection_that_asked_last() {
    use crate::machine::{Caller, Event, encode_command, encode_command_of};
    let mut lab = Lab::new();
    let mut ask = |node: u64, payload: &bytes::Bytes| {
        let stamp = lab.stamp();
        let caller = Caller { node, incarnation: 1, seq: stamp.slot };
        lab.machine.apply_for(&stamp, caller, payload);
        lab.machine.finish_slot(stamp.slot).unwrap();
        lab.machine.take_events()
    };
    let acquire = ["LOCK.ACQUIRE", "k", "a", "60000"];
    ask(1, &encode_command_of(0, 7, b"one:1", &acquire));
    ask(2, &encode_command_of(0, 9, b"two:1", &acquire));
    // Nobody knows whose this is.
    ask(3, &encode_command(0, &["LOCK.DO", "k", "1", "LOCK.ACQUIRE", "k", "a", "60000"]));
    let told = ask(3, &encode_command(0, &["LOCK.REVOKE", "k"]));
    let lost = told.iter().find_map(|event| match event {
        Event::Lock(lock) => Some((lock.caller.node, lock.client)),
        _ => None,
    });
    assert_eq!(lost, Some((2, 9)));
}
