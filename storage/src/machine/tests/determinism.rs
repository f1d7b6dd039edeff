//! The same calls in the same order give the same rows and replies, also on a machine that came by a snapshot in the middle, or keeps its rows on disk.

use super::support::rows;
use crate::commands::{all, reap, sweep};
use crate::machine::{Machine, Stamp, encode_command};
use crate::reply::Reply;
use crate::store::disk::{Attachment, DiskStore, Workshop};
use crate::store::{Store, StoreError};
use bytes::Bytes;
use proptest::prelude::*;

fn words() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(|key| key.as_bytes().to_vec()),
        3 => (0..30_i64).prop_map(|n| n.to_string().into_bytes()),
        2 => prop::sample::select(vec!["NX", "XX", "GET", "EX", "PX", "IFEQ", "REPLACE", "DB", "KEEPTTL", "PERSIST", "GT"])
            .prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

fn payload() -> impl Strategy<Value = Bytes> {
    let names: Vec<&str> = all().map(|spec| spec.name).collect();
    let command = (0..3_u8, prop::sample::select(names), prop::collection::vec(words(), 0..5)).prop_map(
        |(db, name, args)| {
            let mut command = vec![name.as_bytes().to_vec()];
            command.extend(args);
            encode_command(db, &command)
        },
    );
    let set = (0..3_u8, words(), words(), 1..40_u32).prop_map(|(db, key, value, ms)| {
        encode_command(db, &[b"SET", &key[..], &value, b"PX", ms.to_string().as_bytes()])
    });
    prop_oneof![
        12 => command,
        8 => set,
        1 => (0..5_u32).prop_map(sweep),
        1 => (0..5_u32).prop_map(reap),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from),
    ]
}

/// A slot: how much later it is, its commands.
type Slot = (u64, Vec<Bytes>);

fn run<S: Store>(machine: &mut Machine<S>, slots: &[Slot], now_ms: &mut u64) -> Vec<Reply> {
    let mut replies = Vec::new();
    for (wait_ms, commands) in slots {
        *now_ms += wait_ms;
        let slot = machine.applied() + 1;
        for (index, payload) in (0..).zip(commands) {
            let stamp = Stamp { slot, index, at_ms: *now_ms };
            replies.push(machine.apply(&stamp, payload));
        }
        machine.finish_slot(slot).unwrap();
    }
    replies
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn two_machines_agree(
        before in prop::collection::vec((0..20_u64, prop::collection::vec(payload(), 0..10)), 0..30),
        after in prop::collection::vec((0..20_u64, prop::collection::vec(payload(), 0..10)), 0..30),
    ) {
        let (mut one, mut two, mut three) = (Machine::default(), Machine::default(), Machine::default());
        let (mut now_one, mut now_two) = (1_000, 1_000);
        prop_assert_eq!(run(&mut one, &before, &mut now_one), run(&mut two, &before, &mut now_two));
        prop_assert_eq!(one.checksum().unwrap(), two.checksum().unwrap());

        let snapshot = two.snapshot();
        three.install(rows(snapshot.rows()).into_iter().map(Ok::<_, StoreError>)).unwrap();
        prop_assert_eq!(three.applied(), two.applied());
        let mut now_three = now_two;

        let replies = run(&mut one, &after, &mut now_one);
        prop_assert_eq!(&run(&mut two, &after, &mut now_two), &replies);
        prop_assert_eq!(&run(&mut three, &after, &mut now_three), &replies);
        let checksum = one.checksum().unwrap();
        prop_assert_eq!(two.checksum().unwrap(), checksum);
        prop_assert_eq!(three.checksum().unwrap(), checksum);
        prop_assert_eq!(rows(one.store()), rows(three.store()));
        // The snapshot did not move.
        prop_assert_eq!(snapshot.applied() as usize, before.len());
        for reply in &replies {
            prop_assert_eq!(&Reply::decode(&reply.to_bytes()).unwrap(), reply);
        }
    }
}

/// Runs slots on a machine on disk whose host puts rows away now and then.
fn run_on_disk(machine: &mut Machine<DiskStore>, slots: &[Slot], now_ms: &mut u64) -> Vec<Reply> {
    let mut replies = Vec::new();
    for slot in slots {
        replies.extend(run(machine, std::slice::from_ref(slot), now_ms));
        let slot = machine.applied();
        if !slot.is_multiple_of(3) {
            let store = machine.store_mut();
            store.seal(Attachment { slot, bytes: Bytes::new() }, slot.is_multiple_of(5)).unwrap();
            if slot.is_multiple_of(4) {
                store.settle().unwrap();
            }
        }
    }
    replies
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_machine_on_disk_agrees_with_one_in_memory(
        before in prop::collection::vec((0..20_u64, prop::collection::vec(payload(), 0..10)), 1..30),
        after in prop::collection::vec((0..20_u64, prop::collection::vec(payload(), 0..10)), 0..30),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let workshop = Workshop::new(directory.path(), 1 << 20, std::sync::Arc::new(|| ()));
        let nothing = std::iter::empty::<Result<_, StoreError>>();
        let store = workshop.found(workshop.prepare(nothing, None).unwrap()).unwrap();
        let (mut memory, mut disk) = (Machine::default(), Machine::open(store).unwrap());
        let (mut now_memory, mut now_disk) = (1_000, 1_000);
        let replies = run(&mut memory, &before, &mut now_memory);
        prop_assert_eq!(run_on_disk(&mut disk, &before, &mut now_disk), replies);
        prop_assert_eq!(disk.checksum().unwrap(), memory.checksum().unwrap());
        // A restart, at a boundary.
        let slot = disk.applied();
        disk.store_mut().seal(Attachment { slot, bytes: Bytes::new() }, false).unwrap();
        disk.store_mut().settle().unwrap();
        drop(disk);
        let (store, attachment) = workshop.open().unwrap().unwrap();
        prop_assert_eq!(attachment.map(|attachment| attachment.slot), Some(slot));
        let mut disk = Machine::open(store).unwrap();
        prop_assert_eq!(disk.applied(), slot);
        let replies = run(&mut memory, &after, &mut now_memory);
        prop_assert_eq!(run_on_disk(&mut disk, &after, &mut now_disk), replies);
        prop_assert_eq!(rows(memory.store()), rows(disk.store()));
        prop_assert_eq!(disk.snapshot().checksum().unwrap(), memory.checksum().unwrap());
    }
}

#[test]
fn a_checksum_notices_every_row() {
    let mut machine = Machine::default();
    let mut now_ms = 0;
    let set = |key: &str, value: &str| (0, vec![encode_command(0, &["SET", key, value])]);
    run(&mut machine, &[set("a", "1")], &mut now_ms);
    let first = machine.checksum().unwrap();
    run(&mut machine, &[set("a", "2")], &mut now_ms);
    let second = machine.checksum().unwrap();
    assert_ne!(first, second);
    // Nothing but the applied slot changes.
    run(&mut machine, &[(0, vec![])], &mut now_ms);
    assert_ne!(machine.checksum().unwrap(), second);
}
