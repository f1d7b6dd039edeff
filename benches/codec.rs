//! Peer frames, journal records and the loop that applies decided slots: `cargo bench -p warlock --bench codec`.
//!
//! One item is one command, so that the numbers can be added up to the cost of a write. Keys are few: the cost of many is in the machine's benches.
#![allow(missing_docs, clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use consensus::{
    Address, Ballot, Body, Command, CommandId, Config, Ledger, Message, NodeId, Origin, PValue, Record,
    RoleId, Slot, Time, Value, View, Watermark,
};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use std::sync::Arc;
use std::time::Duration;
use storage::machine::{Machine, encode_command};
use warlock::codec;
use warlock::host::backend::MachineBackend;
use warlock::host::core::Backend;

fn main() {
    divan::main();
}

const BATCHES: [usize; 3] = [1, 50, 800];
const BALLOT: Ballot = Ballot { view: 1, round: 3, leader: NodeId(1) };
const ORIGIN: Origin = Origin { node: NodeId(1), incarnation: 7 };

fn value(first_seq: u64, batch: usize, value_bytes: usize) -> Value {
    let text = "v".repeat(value_bytes);
    let commands = (first_seq..).take(batch).map(|seq| Command {
        id: CommandId { origin: ORIGIN, seq },
        low: seq,
        payload: encode_command(0, &["SET", &format!("key:{:09}", seq % 10_000), &text]),
    });
    Value { made_in: BALLOT, stamp_ms: 1_700_000_000_000, body: Body::Commands(commands.collect()) }
}

fn proposal(batch: usize, value_bytes: usize) -> PValue {
    PValue { slot: Slot::Data(123_456), ballot: BALLOT, value: Arc::new(value(1, batch, value_bytes)) }
}

fn frame(message: &Message) -> BytesMut {
    let mut out = BytesMut::new();
    let from = Address { node: NodeId(1), role: RoleId::Commander(BALLOT, Slot::Data(123_456)) };
    codec::put_frame(from, RoleId::Acceptor, message, &mut out);
    out
}

fn p2a(batch: usize, value_bytes: usize) -> Message {
    Message::P2a {
        pvalue: proposal(batch, value_bytes),
        commit: Watermark { ballot: BALLOT, slot: 123_450 },
        sent_at: Time(1),
        lease: Duration::from_secs(1),
        may_wait: [NodeId(3)].into(),
    }
}

#[divan::bench(args = BATCHES)]
fn encode_p2a(bencher: Bencher<'_, '_>, batch: usize) {
    let message = p2a(batch, 16);
    let mut out = BytesMut::new();
    let from = Address { node: NodeId(1), role: RoleId::Leader };
    bencher.counter(ItemsCount::new(batch)).bench_local(|| {
        out.clear();
        codec::put_frame(from, RoleId::Acceptor, black_box(&message), &mut out);
        out.len()
    });
}

#[divan::bench(args = BATCHES)]
fn encode_p2a_1_kib(bencher: Bencher<'_, '_>, batch: usize) {
    let message = p2a(batch, 1_024);
    let mut out = BytesMut::new();
    let from = Address { node: NodeId(1), role: RoleId::Leader };
    bencher.counter(ItemsCount::new(batch)).bench_local(|| {
        out.clear();
        codec::put_frame(from, RoleId::Acceptor, black_box(&message), &mut out);
        out.len()
    });
}

#[divan::bench(args = BATCHES)]
fn decode_p2a(bencher: Bencher<'_, '_>, batch: usize) {
    let bytes = frame(&p2a(batch, 16));
    bencher
        .counter(ItemsCount::new(batch))
        .with_inputs(|| bytes.clone())
        .bench_local_values(|mut input| codec::take_frame(&mut input).unwrap().unwrap());
}

#[divan::bench(args = BATCHES)]
fn encode_accept_record(bencher: Bencher<'_, '_>, batch: usize) {
    let record = Record::Accept { pvalue: proposal(batch, 16), wall_ms: 1_700_000_000_000 };
    bencher.counter(ItemsCount::new(batch)).bench_local(|| codec::record_to_bytes(black_box(&record)));
}

#[divan::bench(args = BATCHES)]
fn decode_accept_record(bencher: Bencher<'_, '_>, batch: usize) {
    let record = Record::Accept { pvalue: proposal(batch, 16), wall_ms: 1_700_000_000_000 };
    let bytes: Bytes = codec::record_to_bytes(&record);
    bencher
        .counter(ItemsCount::new(batch))
        .bench_local(|| codec::record_from_bytes(black_box(&bytes)).unwrap());
}

/// A decided slot through the ledger and the machine, as a node applies it.
#[divan::bench(args = BATCHES)]
fn apply_slot(bencher: Bencher<'_, '_>, batch: usize) {
    let view = View::first([(NodeId(1), Bytes::from_static(b"n1"))], Duration::from_secs(1));
    let mut ledger = Ledger::new(Arc::new(view));
    let mut backend = MachineBackend::new(Machine::in_memory());
    let (config, mut outcomes) = (Config::default(), Vec::new());
    let (mut slot, mut seq) = (0, 1);
    bencher
        .counter(ItemsCount::new(batch))
        .with_inputs(|| {
            let made = value(seq, batch, 16);
            seq += batch as u64;
            made
        })
        .bench_local_refs(|value| {
            slot += 1;
            outcomes.clear();
            ledger.apply(slot, value, &mut backend, &config, &mut outcomes);
            backend.finish_slot(slot);
            assert_eq!(outcomes.len(), batch);
        });
}
