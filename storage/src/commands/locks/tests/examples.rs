//! What is said, and the literal reply.

use crate::machine::tests::support::Lab;

/// A line is `command -> reply`; `+ms` lets time pass and sweeps; `! a | b` is what was told since the last such line.
pub(super) fn check(script: &str) {
    let mut lab = Lab::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(ms) = line.strip_prefix('+') {
            lab.pass(ms.parse().unwrap());
        } else if let Some(told) = line.strip_prefix('!') {
            assert_eq!(lab.told().join(" | "), told.trim(), "in {script}");
        } else {
            let (command, reply) = line.split_once(" -> ").unwrap_or_else(|| panic!("no reply in {line:?}"));
            assert_eq!(lab.say(command).trim(), reply, "{command}\nin {script}");
        }
        lab.check_invariants();
    }
}

#[test]
fn a_lock_is_a_key_of_its_own_type_while_somebody_holds_it() {
    check(
        "LOCK.ACQUIRE k a 1000 -> [1 1000]
         TYPE k -> +lock
         EXISTS k -> 1
         PTTL k -> 1000
         SCAN 0 TYPE lock -> [\"0\" [\"k\"]]
         GET k -> -WRONGTYPE Operation against a key holding the wrong kind of value
         SET k v -> -WRONGTYPE Operation against a key holding the wrong kind of value
         MSET other 1 k v -> -WRONGTYPE Operation against a key holding the wrong kind of value
         EXISTS other -> 0
         APPEND k v -> -WRONGTYPE Operation against a key holding the wrong kind of value
         PEXPIRE k 5 -> -WRONGTYPE Operation against a key holding the wrong kind of value
         RENAME k other -> -WRONGTYPE Operation against a key holding the wrong kind of value
         COPY k other -> -WRONGTYPE Operation against a key holding the wrong kind of value
         SET s v -> OK
         RENAME s k -> -WRONGTYPE Operation against a key holding the wrong kind of value
         LOCK.ACQUIRE s a 1000 -> -WRONGTYPE Operation against a key holding the wrong kind of value
         LOCK.CHECK k 1 -> 1
         LOCK.RELEASE k 1 -> 0
         EXISTS k -> 0",
    );
}

/// T6, also inside of a transaction, a script and LOCK.DO.
#[test]
fn only_who_says_so_takes_a_lock_away() {
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let attempts = [
        "APPEND k v",
        "BITFIELD k SET u8 0 1",
        "BITOP AND k nope nope2",
        "BITOP NOT k nope",
        "BITOP OR k s",
        "BLMOVE list k LEFT LEFT 1",
        "BLPOP k 1",
        "COPY s k REPLACE",
        "DECR k",
        "DELEX k IFEQ v",
        "DELIFEQ k v",
        "EXPIRE k -1",
        "EXPIRE k 0",
        "EXPIRE k 1",
        "EXPIREAT k 1",
        "GETDEL k",
        "GETEX k PX 1",
        "GETEX k PXAT 5",
        "GETSET k v",
        "HDEL k f",
        "HSET k f v",
        "INCRBYFLOAT k 1",
        "LMOVE list k LEFT LEFT",
        "LMPOP 1 k LEFT",
        "LPOP k",
        "LREM k 0 v",
        "LTRIM k 1 0",
        "MSET other v k v",
        "PERSIST k",
        "PEXPIRE k 0",
        "PEXPIREAT k 5",
        "PSETEX k 1 v",
        "RENAME s k",
        "RPUSH k v",
        "SET k v",
        "SET k v PXAT 5",
        "SET k v XX",
        "SETBIT k 0 1",
        "SETEX k 1 v",
        "SETRANGE k 0 \"\"",
        "SETRANGE k 0 v",
        "SORT list STORE k",
        "SORT nope STORE k",
    ];
    for attempt in attempts {
        let mut lab = Lab::new();
        lab.say("LOCK.ACQUIRE k a 1000");
        lab.say("SET s v");
        lab.say("RPUSH list 1");
        assert_eq!(lab.say(attempt), WRONG_TYPE, "{attempt}");
        assert_eq!(lab.say(&format!("LOCK.DO k 1 {attempt}")), WRONG_TYPE, "{attempt}");
        let words: Vec<&[u8]> =
            attempt.split(' ').map(|word| if word == "\"\"" { &[][..] } else { word.as_bytes() }).collect();
        let command = crate::machine::encode_command(0, &words);
        let reply = lab.apply(&crate::commands::transaction(&[], &[command]));
        assert_eq!(crate::machine::tests::support::show(&reply), format!("[{WRONG_TYPE}]"), "{attempt}");
        assert_eq!(lab.say("LOCK.CHECK k 1"), "1", "{attempt}");
        assert_eq!(lab.told(), ["k acquired 1"], "{attempt}");
        assert_eq!(lab.say("EXISTS s list other"), "2", "{attempt}");
        lab.check_invariants();
    }
    for way in ["DEL k", "UNLINK k", "FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "LOCK.REVOKE k"] {
        let mut lab = Lab::new();
        lab.say("LOCK.ACQUIRE k a 1000");
        assert!(!lab.say(way).starts_with('-'), "{way}");
        assert_eq!(lab.say("LOCK.CHECK k 1"), "0", "{way}");
    }
    // What does nothing to the key is no error: it is as if the lock were a string of somebody else.
    check(
        "LOCK.ACQUIRE k a 1000 -> [1 1000]
         SET k v NX -> nil
         SETNX k v -> 0
         SET s v -> OK
         COPY s k -> 0
         RENAMENX s k -> 0
         MSETNX k v l v -> 0
         EXPIRE k 0 NX -> 0
         LOCK.CHECK k 1 -> 1",
    );
}

#[test]
fn tokens_grow_over_all_keys_and_survive_everything() {
    check(
        "LOCK.ACQUIRE k a 1000 -> [1 1000]
         LOCK.ACQUIRE l a 1000 -> [2 1000]
         FLUSHALL -> OK
         LOCK.ACQUIRE k a 1000 -> [3 1000]
         DEL k -> 1
         LOCK.ACQUIRE k a 1000 -> [4 1000]",
    );
}

#[test]
fn shared_holders_share_and_a_waiting_writer_is_not_starved() {
    check(
        "LOCK.ACQUIRE k a 1000 SHARED -> [1 1000]
         LOCK.ACQUIRE k b 1000 SHARED -> [2 1000]
         LOCK.ACQUIRE k w 1000 -> nil
         LOCK.ACQUIRE k w 1000 WAIT 5000 -> waiting
         LOCK.ACQUIRE k c 1000 SHARED -> nil
         LOCK.ACQUIRE k a 1000 SHARED -> [1 1000]
         LOCK.ACQUIRE k a 1000 -> -ERR this owner holds the lock shared; release it before you ask for it exclusively: two who wait for each other's share would wait for ever
         LOCK.RELEASE k 1 -> 1
         LOCK.RELEASE k 1 -> 0
         ! k acquired 1 | k acquired 2 | k released 1
         LOCK.RELEASE k 2 -> 0
         ! k released 2 | k acquired 3 | 4 [3 1000]",
    );
}

#[test]
fn one_shared_holder_can_run_out_of_time_before_the_others() {
    check(
        "LOCK.ACQUIRE k a 100 SHARED -> [1 100]
         LOCK.ACQUIRE k b 1000 SHARED -> [2 1000]
         ! k acquired 1 | k acquired 2
         +101
         ! k expired 1
         LOCK.CHECK k 1 -> 0
         LOCK.CHECK k 2 -> 1
         PTTL k -> 899
         +900
         ! k expired 2",
    );
}

#[test]
fn what_is_lost_is_told_with_the_reason() {
    check(
        "LOCK.ACQUIRE k a 100 -> [1 100]
         +1303
         LOCK.RENEW k 1 100 -> -LOCKLOST key 'k': token 1 is not held (nobody holds it, expired 1203 ms ago)
         LOCK.ACQUIRE k b 100 -> [2 100]
         LOCK.RELEASE k 1 -> -LOCKLOST key 'k': token 1 is not held (now 2 by 'b', expired 1203 ms ago)
         LOCK.REVOKE k TOKEN 1 -> 0
         LOCK.REVOKE k TOKEN 2 -> 1
         LOCK.RENEW k 2 100 -> -LOCKLOST key 'k': token 2 is not held (nobody holds it, revoked 0 ms ago)
         LOCK.RENEW never 7 100 -> -LOCKLOST key 'never': token 7 is not held (nobody holds it)
         LOCK.ACQUIRE k c 100 SHARED -> [3 100]
         LOCK.ACQUIRE k d 100 SHARED -> [4 100]
         LOCK.REVOKE k -> 2
         LOCK.REVOKE k -> 0
         EXISTS k -> 0",
    );
}

#[test]
fn renew_counts_from_now() {
    check(
        "LOCK.ACQUIRE k a 100 -> [1 100]
         +60
         LOCK.RENEW k 1 100 -> 100
         +100
         LOCK.CHECK k 1 -> 1
         LOCK.RENEW k 1 0 -> -ERR invalid expire time in 'lock.renew' command
         +1
         LOCK.CHECK k 1 -> 0",
    );
}

#[test]
fn a_delay_keeps_the_lock_closed_after_its_time_but_not_after_a_release() {
    check(
        "LOCK.ACQUIRE k a 100 DELAY 50 -> [1 100]
         LOCK.ACQUIRE k b 100 WAIT 5000 -> waiting
         ! k acquired 1
         +101
         ! k expired 1
         LOCK.CHECK k 1 -> 0
         LOCK.RELEASE k 1 -> -LOCKLOST key 'k': token 1 is not held (nobody holds it, expired 1 ms ago)
         LOCK.ACQUIRE k c 100 -> nil
         +49
         !
         +1
         ! k acquired 2 | 2 [2 100]
         LOCK.ACQUIRE l a 100 DELAY 5000 -> [3 100]
         LOCK.RELEASE l 3 -> 0
         LOCK.ACQUIRE l b 100 -> [4 100]",
    );
}

#[test]
fn a_delay_closes_a_shared_lock_to_those_who_do_not_hold_it() {
    check(
        "LOCK.ACQUIRE alone a 200 SHARED DELAY 3000 -> [1 200]
         LOCK.ACQUIRE k a 200 SHARED DELAY 300 -> [2 200]
         LOCK.ACQUIRE k b 60000 SHARED -> [3 60000]
         ! alone acquired 1 | k acquired 2 | k acquired 3
         +400
         ! alone expired 1 | k expired 2
         LOCK.ACQUIRE alone c 300 SHARED -> nil
         LOCK.ACQUIRE k a 300 SHARED -> nil
         LOCK.ACQUIRE k c 60000 SHARED WAIT 60000 -> waiting
         LOCK.ACQUIRE k b 300 SHARED -> [3 59600]
         LOCK.RENEW k 3 60000 -> 60000
         +100
         !
         +1
         ! k acquired 4 | 7 [4 60000]
         LOCK.REVOKE alone -> 0
         LOCK.ACQUIRE alone c 300 SHARED -> [5 300]",
    );
}

#[test]
fn a_command_runs_only_under_its_token() {
    check(
        "LOCK.ACQUIRE k a 1000 -> [1 1000]
         LOCK.DO k 1 SET x 1 -> OK
         LOCK.DO k 1 INCR x -> 2
         LOCK.DO k 1 GET x -> \"2\"
         LOCK.DO k 2 SET x 9 -> -LOCKLOST key 'k': token 2 is not held (now 1 by 'a')
         LOCK.DO k 1 NOSUCH -> -ERR unknown command 'NOSUCH', with args beginning with: \n         LOCK.DO k 1 WARLOCK.SWEEP 1 -> -ERR unknown command 'WARLOCK.SWEEP', with args beginning with: '1' \n         LOCK.DO k 1 LOCK.RELEASE k 1 -> 0
         LOCK.DO k 1 SET x 9 -> -LOCKLOST key 'k': token 1 is not held (nobody holds it, released 0 ms ago)
         GET x -> \"2\"",
    );
}

#[test]
fn info_and_list_tell_who_holds_and_who_waits() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 1000 DATA deploy");
    lab.say("LOCK.ACQUIRE k b 1000 WAIT 5000 SHARED");
    lab.say("LOCK.ACQUIRE other c 1000");
    lab.now_ms += 10;
    let info = lab.say("LOCK.INFO k");
    assert_eq!(
        info,
        "{\"holders\" [{\"age\" 10, \"client\" \"\", \"count\" 1, \"data\" \"deploy\", \"owner\" \"a\", \"token\" 1, \"ttl\" 990}], \
         \"last\" nil, \"mode\" \"exclusive\", \
         \"waiters\" [{\"age\" 10, \"client\" \"\", \"mode\" \"shared\", \"owner\" \"b\", \"patience\" 4990}]}"
    );
    assert_eq!(
        lab.say("LOCK.LIST"),
        "[{\"holders\" 1, \"key\" \"k\", \"mode\" \"exclusive\", \"waiters\" 1} \
         {\"holders\" 1, \"key\" \"other\", \"mode\" \"exclusive\", \"waiters\" 0}]"
    );
    assert!(lab.say("LOCK.LIST WAITED").matches("\"key\"").count() == 1);
    assert!(lab.say("LOCK.LIST MATCH o*").contains("other"));
    assert!(lab.say("LOCK.LIST COUNT 1").matches("\"key\"").count() == 1);
    assert!(lab.say("LOCK.LIST NONSENSE").starts_with("-ERR syntax"));
    lab.say("LOCK.RELEASE other 2");
    assert!(
        lab.say("LOCK.INFO other")
            .contains("\"last\" {\"age\" 0, \"how\" \"released\", \"owner\" \"c\", \"token\" 2}")
    );
}

#[test]
fn wrong_arguments_are_refused() {
    check(
        "LOCK.ACQUIRE k a 0 -> -ERR invalid expire time in 'lock.acquire' command
         LOCK.ACQUIRE k a -1 -> -ERR invalid expire time in 'lock.acquire' command
         LOCK.ACQUIRE k a x -> -ERR value is not an integer or out of range
         LOCK.ACQUIRE k a 1000 WAIT -> -ERR syntax error
         LOCK.ACQUIRE k a 1000 WAIT -5 -> -ERR invalid expire time in 'lock.acquire' command
         LOCK.ACQUIRE k a 1000 SESSION 9 -> -NOSESSION session 9 has ended, or there was none; open another one
         LOCK.RELEASE k x -> -ERR value is not an integer or out of range
         EXISTS k -> 0",
    );
}

#[test]
fn a_session_takes_its_locks_and_keys_with_it_once() {
    for way in ["SESSION.CLOSE 1 -> 1", "+1001"] {
        check(&format!(
            "SESSION.OPEN 1000 NAME me -> 1
             LOCK.ACQUIRE k a 0 SESSION 1 -> [2 -1]
             LOCK.ACQUIRE l a 60000 SESSION 1 -> [3 60000]
             LOCK.ACQUIRE k b 1000 WAIT 60000 -> waiting
             SET e v SESSION 1 -> OK
             SET gone v SESSION 1 -> OK
             DEL gone -> 1
             SET over v SESSION 1 -> OK
             SET over v -> OK
             SET kept v SESSION 1 -> OK
             RENAME kept renamed -> OK
             SET n 1 SESSION 1 -> OK
             INCR n -> 2
             ! k acquired 2 | l acquired 3
             {way}
             EXISTS e n renamed -> 0
             GET over -> \"v\"
             ! k session 2 | l session 3 | k acquired 4 | 4 [4 1000]
             SESSION.CLOSE 1 -> 0
             SESSION.ALIVE 1 -> -NOSESSION session 1 has ended, or there was none; open another one
             SET e v SESSION 1 -> -NOSESSION session 1 has ended, or there was none; open another one
             !"
        ));
    }
}

#[test]
fn a_session_lives_as_long_as_it_is_told() {
    check(
        "SESSION.OPEN 1000 -> 1
         SET e v SESSION 1 -> OK
         +900
         SESSION.ALIVE 1 -> 1000
         +1000
         GET e -> \"v\"
         SESSION.ALIVE 1 -> 1000
         +1001
         GET e -> nil
         SESSION.OPEN 0 -> -ERR invalid expire time in 'session.open' command
         SESSION.OPEN 1000 NAME -> -ERR syntax error",
    );
}

#[test]
fn a_delay_counts_when_a_sessions_time_passes() {
    check(
        "SESSION.OPEN 1000 -> 1
         LOCK.ACQUIRE k a 0 SESSION 1 DELAY 500 -> [2 -1]
         +1001
         ! k acquired 2 | k session 2
         LOCK.ACQUIRE k b 1000 -> nil
         +501
         LOCK.ACQUIRE k b 1000 -> [3 1000]",
    );
}

#[test]
fn who_empties_or_exchanges_a_database_takes_its_locks_away_and_that_is_told() {
    check(
        "LOCK.ACQUIRE k a 1000 -> [1 1000]
         SET other v -> OK
         LOCK.ACQUIRE shared a 1000 SHARED -> [2 1000]
         LOCK.ACQUIRE shared b 1000 SHARED -> [3 1000]
         LOCK.ACQUIRE k b 1000 WAIT 5000 -> waiting
         ! k acquired 1 | shared acquired 2 | shared acquired 3
         FLUSHDB -> OK
         ! k revoked 1 | shared revoked 2 | shared revoked 3 | k acquired 4 | 5 [4 1000]
         LOCK.RELEASE k 1 -> -LOCKLOST key 'k': token 1 is not held (now 4 by 'b', revoked 0 ms ago)
         DBSIZE -> 1
         SWAPDB 0 0 -> OK
         LOCK.CHECK k 4 -> 1
         SWAPDB 0 1 -> OK
         ! k revoked 4
         LOCK.CHECK k 4 -> 0
         DBSIZE -> 0
         LOCK.ACQUIRE k c 1000 -> [5 1000]
         FLUSHALL -> OK
         ! k acquired 5 | k revoked 5
         LOCK.ACQUIRE k c 1000 -> [6 1000]",
    );
}

#[test]
fn nobody_is_turned_away_because_of_a_wait_whose_time_is_over() {
    let mut lab = Lab::new();
    assert_eq!(lab.say("LOCK.ACQUIRE k a 100"), "[1 100]");
    assert_eq!(lab.say("LOCK.ACQUIRE k b 100 WAIT 50"), "waiting");
    // Nobody sweeps in between.
    lab.now_ms += 200;
    assert_eq!(lab.say("LOCK.ACQUIRE k c 100"), "[2 100]");
    lab.pass(0);
    assert!(lab.told().contains(&"2 nil".to_string()));
}

/// A release is one slot, and in it the next in line has the lock: a hand-over takes one replication, and nobody else hears of it.
#[test]
fn ten_thousand_waiters_are_each_woken_once_in_the_slot_of_the_release() {
    const WAITERS: u64 = 10_000;
    let mut lab = Lab::new();
    assert_eq!(lab.say("LOCK.ACQUIRE k holder 1000000"), "[1 1000000]");
    for number in 0..WAITERS {
        assert_eq!(lab.say(&format!("LOCK.ACQUIRE k waiter{number} 1000000 WAIT 1000000")), "waiting");
    }
    lab.told();
    for number in 0..WAITERS {
        let token = number + 1;
        assert_eq!(lab.say(&format!("LOCK.RELEASE k {token}")), "0");
        // The waiters' commands have the slots from 2 on.
        let next = token + 1;
        let told =
            [format!("k released {token}"), format!("k acquired {next}"), format!("{next} [{next} 1000000]")];
        assert_eq!(lab.told(), told, "hand-over {number}");
    }
    lab.check_invariants();
}

/// A node whose clients listen to no lock makes no events of them, but tells its own clients what they lose.
#[test]
fn where_nobody_listens_only_own_losses_are_told() {
    use crate::machine::{Event, Interest};
    for (me, loses, has_undo) in [((1, 1), true, true), ((2, 1), false, false), ((1, 2), false, false)] {
        let mut lab = Lab::new();
        lab.machine.listen(Interest { locks: false, me: Some(me), ..Interest::default() });
        lab.say("LOCK.ACQUIRE k a 100");
        let undos =
            lab.machine.take_events().iter().filter(|event| matches!(event, Event::Undo { .. })).count();
        assert_eq!(undos == 1, has_undo, "{me:?}");
        lab.say("LOCK.RELEASE k 1");
        lab.say("LOCK.ACQUIRE k a 100");
        assert_eq!(lab.told(), Vec::<String>::new(), "{me:?}");
        lab.pass(101);
        lab.say("LOCK.ACQUIRE k a 100");
        lab.say("DEL k");
        let expected = if loses { vec!["k expired 2", "k revoked 3"] } else { vec![] };
        assert_eq!(lab.told(), expected, "{me:?}");
    }
}
