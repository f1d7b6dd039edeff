//! Taking a lock and giving it back, in the machine alone, for a profiler that counts instructions: the numbers repeat, whatever else runs.
//!
//! ```text
//! cargo build --release -p warlock-storage --example pairs
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/examples/pairs native 20000
//! ```
//!
//! `native` is LOCK.ACQUIRE and LOCK.RELEASE, `set` is SET NX PX and DELIFEQ. What callgrind has collected, divided by the number, is what a pair
//! costs on the node whose client it is. A third argument `other` makes it the client of another node.
#![allow(clippy::expect_used, reason = "a measurement that cannot be made ends")]

use bytes::Bytes;
use std::hint::black_box;
use warlock_storage::machine::{Caller, Interest, Machine, Stamp, encode_command, encode_command_of};
use warlock_storage::reply::{Reply, ReplyRoom};
use warlock_storage::store::AnyStore;

/// Commands in one slot.
const BATCH: usize = 64;
/// Keys that are there besides.
const KEYS: usize = 10_000;
const OWNER: &str = "owner";
const START_MS: u64 = 1_790_000_000_000;
const MS_PER_SLOT: u64 = 5;
/// The master sweeps every 50 ms.
const SLOTS_PER_SWEEP: u64 = 10;

fn take(is_native: bool, key: &str) -> Bytes {
    if is_native {
        let words: [&[u8]; 4] = [b"LOCK.ACQUIRE", key.as_bytes(), OWNER.as_bytes(), b"60000"];
        encode_command_of(0, 77, b"127.0.0.1:54321", &words)
    } else {
        encode_command(0, &["SET", key, OWNER, "NX", "PX", "60000"])
    }
}

fn give(is_native: bool, key: &str, reply: &Reply) -> Bytes {
    match reply {
        Reply::Granted(granted) => encode_command(0, &["LOCK.RELEASE", key, &granted.token.to_string()]),
        _ if is_native => panic!("no grant: {reply:?}"),
        _ => encode_command(0, &["DELIFEQ", key, OWNER]),
    }
}

/// One slot, and a sweep from time to time; what is collected.
#[inline(never)]
fn measured(
    (machine, room): &mut (Machine<AnyStore>, ReplyRoom),
    seq: &mut u64,
    batch: &[Bytes],
    replies: &mut Vec<Reply>,
) {
    let slot = machine.applied() + 1;
    for (index, payload) in (0..).zip(batch) {
        *seq += 1;
        let caller = Caller { node: 1, incarnation: 1, seq: *seq };
        let stamp = Stamp { slot, index, at_ms: START_MS + slot * MS_PER_SLOT };
        let reply = machine.apply_for(&stamp, caller, payload);
        black_box(reply.to_bytes_in(room));
        replies.push(reply);
    }
    if slot.is_multiple_of(SLOTS_PER_SWEEP) {
        let stamp = Stamp { slot, index: 1_000, at_ms: START_MS + slot * MS_PER_SLOT };
        machine.apply_for(&stamp, Caller::NOBODY, &warlock_storage::commands::sweep(1_000));
    }
    machine.finish_slot(slot).expect("memory does not fail");
    black_box(machine.take_events());
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let is_native = word(1) == "native";
    let pairs: usize = word(2).parse().unwrap_or(20_000);
    let me = if word(3) == "other" { (2, 1) } else { (1, 1) };
    let mut machine = Machine::in_memory();
    machine.listen(Interest { locks: false, me: Some(me), ..Interest::default() });
    let (mut seq, mut replies) = (0, Vec::new());
    for first in (0..KEYS).step_by(BATCH) {
        let slot = machine.applied() + 1;
        for n in first..first + BATCH {
            let set = encode_command(0, &["SET", &format!("key:{n:09}"), "0123456789abcdef"]);
            machine.apply(&Stamp { slot, index: 0, at_ms: START_MS }, &set);
        }
        machine.finish_slot(slot).expect("memory does not fail");
    }
    let mut node = (machine, ReplyRoom::default());
    for first in (0..pairs).step_by(BATCH) {
        let keys: Vec<String> = (first..first + BATCH).map(|n| format!("lock:{n}")).collect();
        let batch: Vec<Bytes> = keys.iter().map(|key| take(is_native, key)).collect();
        replies.clear();
        measured(&mut node, &mut seq, &batch, &mut replies);
        let batch: Vec<Bytes> =
            keys.iter().zip(&replies).map(|(key, reply)| give(is_native, key, reply)).collect();
        replies.clear();
        measured(&mut node, &mut seq, &batch, &mut replies);
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Integer(_))), "{replies:?}");
    }
}
