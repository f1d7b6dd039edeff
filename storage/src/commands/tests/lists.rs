//! Conversations about lists, and a naive twin.

use super::check;
use crate::machine::tests::support::{Lab, show};
use crate::reply::Reply;
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn both_ends() {
    check(
        "RPUSH l a b c -> 3
        LPUSH l x y -> 5
        LRANGE l 0 -1 -> [\"y\" \"x\" \"a\" \"b\" \"c\"]
        LLEN l -> 5
        LLEN none -> 0
        TYPE l -> +list
        LPUSHX none a -> 0
        RPUSHX none a -> 0
        EXISTS none -> 0
        LPUSHX l z -> 6
        RPUSHX l d e -> 8
        LPOP l -> \"z\"
        RPOP l -> \"e\"
        LPOP l 2 -> [\"y\" \"x\"]
        RPOP l 2 -> [\"d\" \"c\"]
        LPOP l 0 -> []
        LPOP none -> nil
        LPOP none 1 -> nil*
        LPOP none 0 -> nil*
        LPOP l -1 -> -ERR value is out of range, must be positive
        RPOP none x -> -ERR value is out of range, must be positive
        LPOP l 1 2 -> -ERR wrong number of arguments for 'lpop' command
        EXPIRE l 100 -> 1
        RPUSH l c -> 3
        TTL l -> 100
        RPOP l 10 -> [\"c\" \"b\" \"a\"]
        EXISTS l -> 0",
    );
}

#[test]
fn looking() {
    check(
        "RPUSH l a b c d -> 4
        LINDEX l 0 -> \"a\"
        LINDEX l -1 -> \"d\"
        LINDEX l -4 -> \"a\"
        LINDEX l 4 -> nil
        LINDEX l -5 -> nil
        LINDEX l x -> -ERR value is not an integer or out of range
        LINDEX none x -> nil
        LRANGE l 1 2 -> [\"b\" \"c\"]
        LRANGE l -100 1 -> [\"a\" \"b\"]
        LRANGE l 2 100 -> [\"c\" \"d\"]
        LRANGE l 3 2 -> []
        LRANGE l 4 9 -> []
        LRANGE l -9223372036854775808 9223372036854775807 -> [\"a\" \"b\" \"c\" \"d\"]
        LRANGE l x 1 -> -ERR value is not an integer or out of range
        LRANGE none 0 -1 -> []
        SET s x -> OK
        LRANGE s 0 -1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        LRANGE s 0 x -> -ERR value is not an integer or out of range
        LLEN s -> -WRONGTYPE Operation against a key holding the wrong kind of value
        LPOP s -> -WRONGTYPE Operation against a key holding the wrong kind of value
        RPUSH s a -> -WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}

#[test]
fn searching() {
    check(
        "RPUSH l a b c 1 2 3 c c -> 8
        LPOS l c -> 2
        LPOS l x -> nil
        LPOS none x -> nil
        LPOS none x COUNT 0 -> []
        LPOS l c RANK 2 -> 6
        LPOS l c RANK -1 -> 7
        LPOS l c COUNT 2 -> [2 6]
        LPOS l c COUNT 0 -> [2 6 7]
        LPOS l c COUNT 2 RANK -1 -> [7 6]
        LPOS l c COUNT 0 MAXLEN 3 -> [2]
        LPOS l c COUNT 0 MAXLEN 2 -> []
        LPOS l c MAXLEN 1 RANK -1 -> 7
        LPOS l x COUNT 1 -> []
        LPOS l c RANK 0 -> -ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list
        LPOS l c COUNT -1 -> -ERR COUNT can't be negative
        LPOS l c MAXLEN x -> -ERR MAXLEN can't be negative
        LPOS l c RANK -> -ERR syntax error
        LPOS l c WHAT 1 -> -ERR syntax error",
    );
}

#[test]
fn inside() {
    check(
        "RPUSH l a b c -> 3
        LSET l 1 B -> OK
        LSET l -1 C -> OK
        LSET l 3 x -> -ERR index out of range
        LSET l x x -> -ERR value is not an integer or out of range
        LSET none x x -> -ERR no such key
        LRANGE l 0 -1 -> [\"a\" \"B\" \"C\"]
        LINSERT l BEFORE a 0 -> 4
        LINSERT l AFTER C d -> 5
        LINSERT l before C 1 -> 6
        LINSERT l after a 2 -> 7
        LRANGE l 0 -1 -> [\"0\" \"a\" \"2\" \"B\" \"1\" \"C\" \"d\"]
        LINSERT l AFTER none d -> -1
        LINSERT none AFTER a d -> 0
        LINSERT none WHAT a d -> -ERR syntax error
        LTRIM l 1 -2 -> OK
        LRANGE l 0 -1 -> [\"a\" \"2\" \"B\" \"1\" \"C\"]
        LTRIM l 0 x -> -ERR value is not an integer or out of range
        LTRIM none 0 1 -> OK
        LTRIM l 5 9 -> OK
        EXISTS l -> 0
        RPUSH l a x b x c x -> 6
        LREM l 1 x -> 1
        LREM l -1 x -> 1
        LREM l 0 none -> 0
        LREM none 0 x -> 0
        LREM l z x -> -ERR value is not an integer or out of range
        LRANGE l 0 -1 -> [\"a\" \"b\" \"x\" \"c\"]
        LREM l 0 a -> 1
        LREM l 5 c -> 1
        LREM l 0 b -> 1
        LREM l 0 x -> 1
        EXISTS l -> 0",
    );
}

#[test]
fn moving() {
    check(
        "RPUSH a 1 2 3 -> 3
        LMOVE a b LEFT RIGHT -> \"1\"
        LMOVE a b RIGHT LEFT -> \"3\"
        LRANGE b 0 -1 -> [\"3\" \"1\"]
        RPOPLPUSH b a -> \"1\"
        LRANGE a 0 -1 -> [\"1\" \"2\"]
        RPOPLPUSH a a -> \"2\"
        LRANGE a 0 -1 -> [\"2\" \"1\"]
        EXPIRE b 10 -> 1
        LMOVE b b LEFT LEFT -> \"3\"
        TTL b -> 10
        LMOVE b a LEFT LEFT -> \"3\"
        EXISTS b -> 0
        LMOVE b a LEFT LEFT -> nil
        LMOVE a b LEFT x -> -ERR syntax error
        LMOVE none b x LEFT -> -ERR syntax error
        SET s x -> OK
        LMOVE a s LEFT LEFT -> -WRONGTYPE Operation against a key holding the wrong kind of value
        LMOVE none s LEFT LEFT -> nil
        LMOVE s a LEFT LEFT -> -WRONGTYPE Operation against a key holding the wrong kind of value
        LLEN a -> 3
        LMPOP 2 none a LEFT -> [\"a\" [\"3\"]]
        LMPOP 1 a RIGHT COUNT 5 -> [\"a\" [\"1\" \"2\"]]
        LMPOP 1 a RIGHT -> nil*
        LMPOP 2 s a RIGHT -> -WRONGTYPE Operation against a key holding the wrong kind of value
        LMPOP 0 a LEFT -> -ERR numkeys should be greater than 0
        LMPOP x a LEFT -> -ERR numkeys should be greater than 0
        LMPOP 2 a LEFT -> -ERR syntax error
        LMPOP 1 a LEFT COUNT 0 -> -ERR count should be greater than 0
        LMPOP 1 a LEFT COUNT 1 COUNT 1 -> -ERR syntax error
        LMPOP 1 a LEFT COUNT -> -ERR syntax error",
    );
}

#[test]
fn what_is_dropped_from_a_long_list_is_reaped_later() {
    let mut lab = Lab::new();
    for chunk in 0..10 {
        let items: Vec<_> = (0..100).map(|n| (chunk * 100 + n).to_string()).collect();
        lab.say(&format!("RPUSH l {}", items.join(" ")));
    }
    lab.say("LTRIM l 500 502");
    assert!(lab.machine.has_garbage().unwrap());
    lab.check_invariants();
    while lab.machine.has_garbage().unwrap() {
        lab.apply(&crate::commands::reap(300));
    }
    assert_eq!(lab.data_rows().len(), 4);
    assert_eq!(lab.say("LRANGE l 0 -1"), "[\"500\" \"501\" \"502\"]");
    // A short list that is emptied leaves nothing behind.
    lab.say("LPOP l 3");
    assert_eq!(lab.data_rows(), []);
}

/// A list as a client imagines it.
fn twin(list: &mut VecDeque<String>, words: &[&str]) {
    let length = list.len() as i64;
    let at = |n: i64| if n < 0 { n + length } else { n };
    match words {
        ["LPUSH", items @ ..] => items.iter().for_each(|item| list.push_front((*item).into())),
        ["RPUSH", items @ ..] => items.iter().for_each(|item| list.push_back((*item).into())),
        ["LPOP", n] => drop(list.drain(..n.parse::<usize>().unwrap().min(list.len()))),
        ["RPOP", n] => list.truncate(list.len().saturating_sub(n.parse().unwrap())),
        ["LSET", n, item] => {
            if let Ok(at) = usize::try_from(at(n.parse().unwrap()))
                && at < list.len()
            {
                list[at] = (*item).into();
            }
        }
        ["LINSERT", side, pivot, item] => {
            if let Some(at) = list.iter().position(|item| item == pivot) {
                list.insert(at + usize::from(*side == "AFTER"), (*item).into());
            }
        }
        ["LREM", n, item] => {
            let n: i64 = n.parse().unwrap();
            for _ in 0..if n == 0 { list.len() } else { n.unsigned_abs() as usize } {
                let found = if n < 0 {
                    list.iter().rposition(|i| i == item)
                } else {
                    list.iter().position(|i| i == item)
                };
                found.map(|at| list.remove(at));
            }
        }
        ["LTRIM", start, end] => {
            let (start, end) = (at(start.parse().unwrap()).max(0), at(end.parse().unwrap()));
            *list = (0..)
                .zip(list.drain(..))
                .filter(|(n, _)| (start..=end).contains(n))
                .map(|(_, item)| item)
                .collect();
        }
        _ => unreachable!("{words:?}"),
    }
}

fn command() -> impl Strategy<Value = String> {
    let item = || prop::sample::select(vec!["a", "b", "c", "an-item-that-does-not-fit-in-place"]);
    prop_oneof![
        prop::collection::vec(item(), 1..40).prop_map(|items| format!("LPUSH {}", items.join(" "))),
        prop::collection::vec(item(), 1..40).prop_map(|items| format!("RPUSH {}", items.join(" "))),
        (1..9_u8).prop_map(|n| format!("LPOP {n}")),
        (1..90_u8).prop_map(|n| format!("RPOP {n}")),
        (-9..9_i8, item()).prop_map(|(n, item)| format!("LSET {n} {item}")),
        (any::<bool>(), item(), item()).prop_map(|(after, pivot, item)| format!(
            "LINSERT {} {pivot} {item}",
            if after { "AFTER" } else { "BEFORE" }
        )),
        (-3..4_i8, item()).prop_map(|(n, item)| format!("LREM {n} {item}")),
        (-99..20_i8, -20..99_i8).prop_map(|(start, end)| format!("LTRIM {start} {end}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn agrees_with_a_naive_twin(commands in prop::collection::vec(command(), 1..60)) {
        let (mut lab, mut list) = (Lab::new(), VecDeque::new());
        for command in &commands {
            let (name, rest) = command.split_once(' ').unwrap();
            let reply = lab.say(&format!("{name} l {rest}"));
            twin(&mut list, &command.split(' ').collect::<Vec<_>>());
            let expected = Reply::Array(list.iter().map(|item| Reply::bulk(item.as_bytes())).collect());
            prop_assert_eq!(lab.say("LRANGE l 0 -1"), show(&expected), "{} -> {}", command, reply);
            lab.check_invariants();
        }
    }
}

/// What the lab's events say after a command.
fn after(lab: &mut Lab, command: &str) -> Vec<String> {
    lab.told();
    lab.say(command);
    lab.check_invariants();
    lab.told()
}

#[test]
fn blocking_commands_are_served_first_come_first_served() {
    let mut lab = Lab::new();
    for command in [
        "BLPOP a b 0",
        "BRPOP b 0",
        "BLMPOP 0 2 c b LEFT COUNT 2",
        "BLMOVE b d LEFT RIGHT 0",
        "BRPOPLPUSH e d 0",
    ] {
        assert_eq!(lab.say(command), "waiting", "{command}");
    }
    // Slots 1 to 5 wait. One item, one client.
    assert_eq!(after(&mut lab, "RPUSH b 1"), ["1 [\"b\" \"1\"]"]);
    assert_eq!(
        after(&mut lab, "RPUSH b 2 3 4 5 6"),
        ["2 [\"b\" \"6\"]", "3 [\"b\" [\"2\" \"3\"]]", "4 \"4\""]
    );
    assert_eq!(lab.say("LRANGE b 0 -1"), "[\"5\"]");
    assert_eq!(lab.say("LRANGE d 0 -1"), "[\"4\"]");
    // Whatever makes the list appear counts.
    assert_eq!(after(&mut lab, "RENAME b e"), ["5 \"5\""]);
    assert_eq!(lab.say("LRANGE d 0 -1"), "[\"5\" \"4\"]");
}

#[test]
fn of_several_lists_the_one_that_was_filled_first_serves() {
    use crate::commands::transaction;
    use crate::machine::encode_command;
    let filled = |fill: [&str; 2], waits: &str| {
        let mut lab = Lab::new();
        lab.say(waits); // 1
        let commands = fill.map(|key| encode_command(0, &["RPUSH", key, key]));
        lab.apply(&transaction(&[], &commands));
        lab.check_invariants();
        let told = lab.told();
        let mut scripted = Lab::new();
        scripted.say(waits);
        let script = "for _, key in ipairs(KEYS) do redis.call('RPUSH', key, key) end";
        scripted.run(&[b"EVAL", script.as_bytes(), b"2", fill[0].as_bytes(), fill[1].as_bytes()]);
        assert_eq!(scripted.told(), told);
        told
    };
    assert_eq!(filled(["k2", "k1"], "BLPOP k1 k2 0"), ["1 [\"k2\" \"k2\"]"]);
    assert_eq!(filled(["k1", "k2"], "BRPOP k2 k1 0"), ["1 [\"k1\" \"k1\"]"]);
    assert_eq!(filled(["k2", "k1"], "BLMPOP 0 2 k1 k2 LEFT"), ["1 [\"k2\" [\"k2\"]]"]);
}

#[test]
fn a_move_into_an_awaited_list_serves_the_next() {
    let mut lab = Lab::new();
    lab.say("BLMOVE a b LEFT LEFT 0"); // 1
    lab.say("BLPOP b 0"); // 2
    assert_eq!(after(&mut lab, "RPUSH a x"), ["1 \"x\"", "2 [\"b\" \"x\"]"]);
    lab.say("BLPOP copy 0"); // 4
    lab.say("SET s 1");
    lab.say("RPUSH l 1");
    assert_eq!(after(&mut lab, "COPY l copy"), ["4 [\"copy\" \"1\"]"]);
}

#[test]
fn what_is_no_list_is_nothing_to_those_who_wait_for_one() {
    let mut lab = Lab::new();
    lab.say("BLPOP a 0"); // 1
    lab.say("BLMOVE b s LEFT LEFT 0"); // 2
    assert_eq!(after(&mut lab, "SET a x"), [""; 0]);
    lab.say("DEL a");
    assert_eq!(after(&mut lab, "RPUSH a y"), ["1 [\"a\" \"y\"]"]);
    // But there is nowhere to move to.
    lab.say("SET s x");
    assert_eq!(
        after(&mut lab, "RPUSH b y"),
        ["2 -WRONGTYPE Operation against a key holding the wrong kind of value"]
    );
    assert_eq!(lab.say("LLEN b"), "1");
}

#[test]
fn waiting_ends_with_its_time() {
    let mut lab = Lab::new();
    assert_eq!(lab.say("BLPOP a 0.0011"), "waiting");
    assert_eq!(lab.say("BLMOVE a b LEFT LEFT 1"), "waiting");
    lab.told();
    lab.pass(1);
    assert_eq!(lab.told(), [""; 0]);
    lab.pass(1);
    assert_eq!(lab.told(), ["1 nil*"]);
    lab.pass(998);
    assert_eq!(lab.told(), ["2 nil*"]);
    assert_eq!(after(&mut lab, "RPUSH a x"), [""; 0]);
    assert_eq!(lab.say("LLEN a"), "1");
}

#[test]
fn blocking_commands_that_need_not_block() {
    check(
        "RPUSH a 1 2 3 4 -> 4
        BLPOP none a 0 -> [\"a\" \"1\"]
        BRPOP a 0.5 -> [\"a\" \"4\"]
        BLMPOP 0 1 a RIGHT COUNT 9 -> [\"a\" [\"3\" \"2\"]]
        RPUSH a 1 -> 1
        BLMOVE a b LEFT LEFT 1 -> \"1\"
        BRPOPLPUSH b a 1 -> \"1\"
        BLPOP a -1 -> -ERR timeout is negative
        BLPOP a inf -> -ERR timeout is negative
        BLPOP a 1e30 -> -ERR timeout is negative
        BLPOP a x -> -ERR timeout is not a float or out of range
        BLMPOP x 0 a LEFT -> -ERR numkeys should be greater than 0
        BLMPOP x 1 a UP -> -ERR syntax error
        BLMPOP x 1 a LEFT -> -ERR timeout is not a float or out of range
        BLMOVE a b x y z -> -ERR syntax error
        BLMOVE a b LEFT LEFT z -> -ERR timeout is not a float or out of range
        SET s 1 -> OK
        BLPOP s 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        BLPOP none s a 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value
        BLMOVE a s LEFT LEFT 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value",
    );
}
