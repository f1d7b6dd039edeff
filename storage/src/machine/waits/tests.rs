//! Who waits is served once, in order, and not too late.

use crate::commands::{forget_waits, unwait};
use crate::machine::tests::support::{Lab, show};
use crate::machine::{Caller, Event, Machine, Stamp, Undo, encode_command};
use crate::reply::Reply;
use crate::store::{MemoryStore, Rows};
use bytes::Bytes;

/// The caller of the lab's command in `slot`.
fn caller(slot: u64) -> Caller {
    Caller { node: 1, incarnation: 1, seq: slot }
}

#[test]
fn waiters_are_served_in_order_by_whoever_makes_room() {
    let mut lab = Lab::new();
    assert_eq!(lab.say("LOCK.ACQUIRE k a 10000"), "[1 10000]"); // slot 1
    assert_eq!(lab.say("LOCK.ACQUIRE k b 10000 WAIT 5000"), "waiting"); // slot 2
    assert_eq!(lab.say("LOCK.ACQUIRE k c 10000 WAIT 5000"), "waiting"); // slot 3
    lab.check_invariants();
    lab.told();
    assert_eq!(lab.say("LOCK.RELEASE k 1"), "0");
    assert_eq!(lab.told(), ["k released 1", "k acquired 2", "2 [2 10000]"]);
    assert_eq!(lab.say("LOCK.RELEASE k 2"), "0");
    assert_eq!(lab.told(), ["k released 2", "k acquired 3", "3 [3 10000]"]);
    assert_eq!(lab.say("LOCK.RELEASE k 3"), "0");
    assert_eq!(lab.told(), ["k released 3"]);
    assert_eq!(lab.machine.meta.waiting, 0);
    lab.check_invariants();
}

#[test]
fn a_wait_ends_with_its_time_and_is_never_served_after_it() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 10000"); // 1
    lab.say("LOCK.ACQUIRE k b 10000 WAIT 100"); // 2
    lab.say("LOCK.ACQUIRE k c 10000 WAIT 200"); // 3
    lab.told();
    lab.pass(99);
    assert_eq!(lab.told(), [""; 0]);
    lab.pass(1);
    assert_eq!(lab.told(), ["2 nil"]);
    lab.check_invariants();
    // Nobody swept, but the time is over all the same.
    lab.now_ms += 100;
    lab.say("LOCK.RELEASE k 1");
    assert_eq!(lab.told(), ["k released 1", "3 nil"]);
    assert_eq!(lab.say("EXISTS k"), "0");
    lab.check_invariants();
}

#[test]
fn the_next_is_served_when_the_holders_time_passes() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 100");
    lab.say("LOCK.ACQUIRE k b 1000 WAIT 5000");
    lab.told();
    lab.pass(100);
    assert_eq!(lab.told(), [""; 0]);
    lab.pass(1);
    assert_eq!(lab.told(), ["k expired 1", "k acquired 2", "2 [2 1000]"]);
}

#[test]
fn a_cancelled_wait_lets_those_behind_it_through() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 10000 SHARED"); // 1
    lab.say("LOCK.ACQUIRE k writer 10000 WAIT 5000"); // 2
    assert_eq!(lab.say("LOCK.ACQUIRE k b 10000 SHARED"), "nil", "a waiting writer is not starved"); // 3
    assert_eq!(lab.say("LOCK.ACQUIRE k c 10000 SHARED WAIT 5000"), "waiting"); // 4
    lab.told();
    assert_eq!(show(&lab.apply(&unwait(caller(2), false))), "1");
    assert_eq!(lab.told(), ["2 nil", "k acquired 2", "4 [2 10000]"]);
    assert_eq!(show(&lab.apply(&unwait(caller(2), false))), "0", "P1: only once");
    assert_eq!(lab.told(), [""; 0]);
    lab.check_invariants();
}

#[test]
fn client_unblock_can_answer_with_an_error() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 10000");
    lab.say("LOCK.ACQUIRE k b 10000 WAIT 5000");
    lab.told();
    lab.apply(&unwait(caller(2), true));
    assert_eq!(lab.told(), ["2 -UNBLOCKED client unblocked via CLIENT UNBLOCK"]);
}

#[test]
fn the_waits_of_a_former_life_are_forgotten() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 10000");
    for slot in 2..5 {
        assert_eq!(lab.say(&format!("LOCK.ACQUIRE k {slot} 10000 WAIT 5000")), "waiting");
    }
    lab.told();
    assert_eq!(lab.machine.waiting_nodes().unwrap(), [(1, 1)]);
    assert_eq!(show(&lab.apply(&forget_waits(1, 1))), "0");
    assert_eq!(show(&lab.apply(&forget_waits(2, 9))), "0");
    assert_eq!(show(&lab.apply(&forget_waits(1, 2))), "3");
    let told = lab.told();
    assert!(told.len() == 3 && told.iter().all(|line| line.contains("TRYAGAIN")), "{told:?}");
    assert!(lab.machine.waiting_nodes().unwrap().is_empty());
    lab.check_invariants();
}

#[test]
fn del_flush_and_swap_serve_those_who_wait() {
    for way in ["DEL k", "UNLINK k", "FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "LOCK.REVOKE k"] {
        let mut lab = Lab::new();
        lab.say("LOCK.ACQUIRE k a 10000");
        lab.say("LOCK.ACQUIRE k b 10000 WAIT 5000");
        lab.told();
        lab.say(way);
        let told = lab.told();
        assert!(told.contains(&"2 [2 10000]".to_string()), "{way}: {told:?}");
        lab.check_invariants();
    }
}

#[test]
fn a_failed_command_serves_nobody() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 10000");
    lab.say("LOCK.ACQUIRE k b 10000 WAIT 5000");
    lab.told();
    assert!(lab.say("LOCK.DO k 1 DEL").starts_with("-ERR wrong number"));
    assert!(lab.say("SET k v").starts_with("-WRONGTYPE"));
    assert_eq!(lab.told(), [""; 0]);
    assert_eq!(lab.machine.meta.waiting, 1);
}

#[test]
fn nothing_waits_inside_another_command_or_for_nobody() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 10000");
    lab.say("LOCK.ACQUIRE other b 10000");
    assert_eq!(lab.say("LOCK.DO k 1 LOCK.ACQUIRE other c 10000 WAIT 5000"), "nil");
    let stamp = lab.stamp();
    let payload = encode_command(0, &["LOCK.ACQUIRE", "k", "x", "1000", "WAIT", "5000"]);
    assert_eq!(lab.machine.apply(&stamp, &payload), Reply::Null);
    lab.machine.finish_slot(stamp.slot).unwrap();
    lab.check_invariants();
}

#[test]
fn a_reply_that_cannot_be_delivered_can_be_undone() {
    let mut lab = Lab::new();
    lab.say("LOCK.ACQUIRE k a 10000");
    let direct = lab.machine.take_events();
    let undo = |events: &[Event]| -> Option<Bytes> {
        events.iter().find_map(|event| match event {
            Event::Undo { undo, .. } => Some(undo.command()),
            Event::Served { undo, .. } => undo.as_ref().map(Undo::command),
            _ => None,
        })
    };
    lab.say("LOCK.ACQUIRE k b 10000 WAIT 5000");
    assert_eq!(undo(&lab.machine.take_events()), None, "there is nothing to undo yet");
    lab.apply(&undo(&direct).unwrap());
    let served = lab.machine.take_events();
    lab.apply(&undo(&served).unwrap());
    assert_eq!(lab.told(), ["k released 2"]);
    assert_eq!(lab.say("EXISTS k"), "0");
}

/// Two machines, one of which is thrown away for a snapshot of the other between any two commands, tell and hold the same.
#[test]
fn waits_survive_a_snapshot() {
    let commands = [
        "LOCK.ACQUIRE k a 1000",
        "LOCK.ACQUIRE k b 1000 WAIT 700",
        "LOCK.ACQUIRE k c 1000 WAIT 7000 SHARED",
        "LOCK.ACQUIRE k d 1000 WAIT 7000 SHARED",
        "LOCK.RELEASE k 1",
        "LOCK.RENEW k 2 100",
        "DEL k",
    ];
    let mut one = Machine::<MemoryStore>::default();
    let mut two = Machine::<MemoryStore>::default();
    for (slot, command) in (1..).zip(commands) {
        let words: Vec<&str> = command.split(' ').collect();
        let stamp = Stamp { slot, index: 0, at_ms: 1_000 + slot };
        let mut replies = Vec::new();
        for machine in [&mut one, &mut two] {
            let reply = machine.apply_for(&stamp, caller(slot), &encode_command(0, &words));
            machine.finish_slot(slot).unwrap();
            replies.push((reply, machine.take_events()));
        }
        assert_eq!(replies[0], replies[1], "{command}");
        let snapshot = one.snapshot();
        let mut rows = Vec::new();
        let all = crate::row::RowRange::all();
        let visit = &mut |key: crate::row::RowKeyRef<'_>, value: &crate::row::RowValue| {
            rows.push(Ok::<_, crate::store::StoreError>((key.to_owned(), value.clone())));
            std::ops::ControlFlow::Continue(())
        };
        snapshot.rows().scan(&all, crate::store::Order::Ascending, visit).unwrap();
        two.install(rows.into_iter()).unwrap();
        assert_eq!(one.checksum().unwrap(), two.checksum().unwrap());
    }
    assert_eq!(one.meta.waiting, 0);
}

/// 10,000 wait at one key; each is served once, in order, and a hand-over looks at few rows however long the line is.
#[test]
fn a_long_line_is_served_one_by_one() {
    const WAITERS: u64 = 10_000;
    let mut machine = Machine::<MemoryStore>::default();
    let mut slot = 0;
    let mut run = |machine: &mut Machine<MemoryStore>, words: &[&str]| {
        slot += 1;
        let stamp = Stamp { slot, index: 0, at_ms: 1_000 };
        let reply = machine.apply_for(&stamp, caller(slot), &encode_command(0, words));
        machine.finish_slot(slot).unwrap();
        reply
    };
    run(&mut machine, &["LOCK.ACQUIRE", "k", "first", "60000"]);
    for waiter in 0..WAITERS {
        let owner = format!("waiter{waiter}");
        let reply = run(&mut machine, &["LOCK.ACQUIRE", "k", &owner, "60000", "WAIT", "60000"]);
        assert!(matches!(reply, Reply::Waiting(_)));
    }
    // The rows of all waits, keys and values, stay far below 100 MB.
    let mut bytes = 0;
    let visit = &mut |key: crate::row::RowKeyRef<'_>, value: &crate::row::RowValue| {
        bytes += key.byte_count() + value.len();
        std::ops::ControlFlow::Continue(())
    };
    machine.store().scan(&crate::row::RowRange::all(), crate::store::Order::Ascending, visit).unwrap();
    assert!(bytes < 4_000_000, "{bytes} bytes for {WAITERS} waits");
    machine.take_events();
    for token in 1..=WAITERS {
        run(&mut machine, &["LOCK.RELEASE", "k", &token.to_string()]);
        let served: Vec<Caller> = machine
            .take_events()
            .into_iter()
            .filter_map(|event| match event {
                Event::Served { caller, .. } => Some(caller),
                _ => None,
            })
            .collect();
        assert_eq!(served, [caller(token + 1)], "exactly the next in line");
    }
    assert_eq!(machine.meta.waiting, 0);
}
