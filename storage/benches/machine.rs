//! Speed of the machine alone: no journal, no network. `cargo bench -p warlock-storage --bench machine`
//!
//! Keys are picked at random, so that with a million of them almost every step misses the caches.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use std::cell::RefCell;
use std::collections::BTreeMap;
use warlock_storage::commands::{Args, Handler, lookup};
use warlock_storage::machine::{Caller, Interest, Machine, Stamp, encode_command, encode_command_of};
use warlock_storage::reply::Reply;

const SIZES: [usize; 2] = [1_000, 1_000_000];
/// Commands in one slot.
const BATCH: usize = 64;

fn main() {
    divan::main();
}

fn key(n: usize) -> String {
    format!("key:{n:09}")
}

fn set(n: usize, value: &str) -> Bytes {
    encode_command(0, &["SET", &key(n), value])
}

fn stamp(machine: &Machine, index: u32) -> Stamp {
    Stamp { slot: machine.applied() + 1, index, at_ms: 1_000 }
}

thread_local! {
    /// Filling a million keys takes a while: each size is filled once.
    static FILLED: RefCell<BTreeMap<usize, Machine>> = const { RefCell::new(BTreeMap::new()) };
}

fn with_keys<T>(keys: usize, work: impl FnOnce(&mut Machine) -> T) -> T {
    FILLED.with_borrow_mut(|filled| {
        let machine = filled.entry(keys).or_insert_with(|| {
            let mut machine = Machine::default();
            // 7,919 is a prime that divides neither size: every key once, in an order of its own.
            for n in (0..keys).map(|n| n * 7_919 % keys) {
                machine.apply(&stamp(&machine, 0), &set(n, "0123456789abcdef"));
                if n % BATCH == 0 {
                    let slot = machine.applied() + 1;
                    machine.finish_slot(slot).unwrap();
                }
            }
            let slot = machine.applied() + 1;
            machine.finish_slot(slot).unwrap();
            machine
        });
        work(machine)
    })
}

/// Random numbers below `keys`.
fn random(keys: usize) -> impl FnMut() -> usize {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % keys
    }
}

#[divan::bench(args = SIZES)]
fn apply_set(bencher: Bencher<'_, '_>, keys: usize) {
    apply_batches(bencher, keys, |n| set(n, "fedcba9876543210"));
}

#[divan::bench(args = SIZES)]
fn apply_set_with_deadline(bencher: Bencher<'_, '_>, keys: usize) {
    apply_batches(bencher, keys, |n| encode_command(1, &["SET", &key(n), "0123456789abcdef", "PX", "60000"]));
}

#[divan::bench(args = SIZES)]
fn apply_incr(bencher: Bencher<'_, '_>, keys: usize) {
    apply_batches(bencher, keys, |n| encode_command(2, &["INCR", &key(n)]));
}

fn apply_batches(bencher: Bencher<'_, '_>, keys: usize, command: impl Fn(usize) -> Bytes) {
    with_keys(keys, |machine| {
        let mut next = random(keys);
        let machine = RefCell::new(machine);
        bencher
            .counter(ItemsCount::new(BATCH))
            .with_inputs(|| (0..BATCH).map(|_| command(next())).collect::<Vec<_>>())
            .bench_local_refs(|batch| {
                let machine = &mut **machine.borrow_mut();
                for (index, payload) in (0..).zip(batch.iter()) {
                    black_box(machine.apply(&stamp(machine, index), payload));
                }
                let slot = machine.applied() + 1;
                machine.finish_slot(slot).unwrap();
            });
    });
}

/// A lock is taken and given back, natively: two slots, one of each kind of command. An item is a pair.
#[divan::bench(args = SIZES)]
fn lock_pair_native(bencher: Bencher<'_, '_>, keys: usize) {
    let mut tokens = 0;
    lock_pairs(bencher, keys, move |n| {
        tokens += 1;
        let acquire = encode_command_of(
            3,
            77,
            b"127.0.0.1:54321",
            &[b"LOCK.ACQUIRE", key(n).as_bytes(), OWNER.as_bytes(), b"60000"],
        );
        (acquire, encode_command(3, &["LOCK.RELEASE", &key(n), &tokens.to_string()]))
    });
}

/// The same as libraries do it that know no locks.
#[divan::bench(args = SIZES)]
fn lock_pair_set_nx(bencher: Bencher<'_, '_>, keys: usize) {
    lock_pairs(bencher, keys, |n| {
        let set = encode_command(4, &["SET", &key(n), OWNER, "NX", "PX", "60000"]);
        (set, encode_command(4, &["DELIFEQ", &key(n), OWNER]))
    });
}

const OWNER: &str = "550e8400-e29b-41d4-a716-446655440000";

/// As a node does it: for a client of its own, with replies as bytes, and with what commands say besides.
fn lock_pairs(bencher: Bencher<'_, '_>, keys: usize, mut pair: impl FnMut(usize) -> (Bytes, Bytes)) {
    with_keys(keys, |machine| {
        // Another one each time: a lock that is held is not free.
        let mut at = 0;
        let mut next = || {
            at += 7_919;
            at % keys
        };
        // Nobody listens to the locks.
        machine.listen(Interest { locks: false, me: Some((1, 1)), ..Interest::default() });
        let machine = RefCell::new(machine);
        let mut seq = 0;
        bencher
            .counter(ItemsCount::new(BATCH))
            .with_inputs(|| (0..BATCH).map(|_| pair(next())).unzip())
            .bench_local_refs(|(take, give): &mut (Vec<Bytes>, Vec<Bytes>)| {
                let machine = &mut **machine.borrow_mut();
                for batch in [take, give] {
                    for (index, payload) in (0..).zip(batch.iter()) {
                        seq += 1;
                        let caller = Caller { node: 1, incarnation: 1, seq };
                        let reply = machine.apply_for(&stamp(machine, index), caller, payload);
                        assert!(!matches!(reply, Reply::Error(_) | Reply::Null), "{reply:?}");
                        black_box(reply.to_bytes());
                    }
                    let slot = machine.applied() + 1;
                    machine.finish_slot(slot).unwrap();
                    black_box(machine.take_events());
                }
            });
    });
}

#[divan::bench(args = SIZES)]
fn read_get(bencher: Bencher<'_, '_>, keys: usize) {
    with_keys(keys, |machine| {
        let mut next = random(keys);
        bencher
            .counter(ItemsCount::new(BATCH))
            .with_inputs(|| (0..BATCH).map(|_| key(next())).collect::<Vec<_>>())
            .bench_local_refs(|batch| {
                for key in batch {
                    let Some(Handler::Read(get)) = lookup(b"get").map(|spec| spec.handler) else { return };
                    black_box(get(&machine.view(1_000), &Args::new(0, &[key.as_bytes()])));
                }
            });
    });
}

#[divan::bench(args = SIZES)]
fn apply_set_under_snapshot(bencher: Bencher<'_, '_>, keys: usize) {
    let snapshot = with_keys(keys, |machine| machine.snapshot());
    apply_batches(bencher, keys, |n| set(n, "fedcba9876543210"));
    drop(snapshot);
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn checksum(bencher: Bencher<'_, '_>, keys: usize) {
    with_keys(keys, |machine| bencher.bench_local(|| machine.checksum().unwrap()));
}
