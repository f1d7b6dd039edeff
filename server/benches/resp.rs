//! Throughput of the RESP layer: `cargo bench -p warlock-server --bench resp`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::{Bytes, BytesMut};
use divan::{Bencher, black_box, counter::BytesCount, counter::ItemsCount};
use warlock_server::resp::{Encoder, Limits, Parser, Protocol};

fn main() {
    divan::main();
}

const COMMANDS: usize = 10_000;

fn set_commands(value_bytes: usize, count: usize) -> Vec<u8> {
    let value = "v".repeat(value_bytes);
    let commands =
        (0..count).map(|i| format!("*3\r\n$3\r\nSET\r\n$10\r\nkey:{i:06}\r\n${value_bytes}\r\n{value}\r\n"));
    commands.collect::<String>().into_bytes()
}

/// Feeds `stream` in reads of `read_bytes` and counts the requests.
fn parse(stream: &[u8], read_bytes: usize) -> usize {
    let mut parser = Parser::new(Limits::default(), true);
    let mut input = BytesMut::with_capacity(read_bytes);
    let mut requests = 0;
    for read in stream.chunks(read_bytes) {
        input.reserve(read.len());
        input.extend_from_slice(read);
        while let Some(request) = parser.next(&mut input).unwrap() {
            requests += black_box(&request).len().min(1);
        }
    }
    requests
}

/// Pipelined `SET key:000001 <16 B>`, 53 bytes each, as in dependencies.md.
#[divan::bench(args = [4096, 16384, 65536])]
fn parse_small_sets(bencher: Bencher, read_bytes: usize) {
    let stream = set_commands(16, COMMANDS);
    bencher
        .counter(ItemsCount::new(COMMANDS))
        .bench_local(|| assert_eq!(parse(black_box(&stream), read_bytes), COMMANDS));
}

#[divan::bench]
fn parse_inline_pings(bencher: Bencher) {
    let stream = b"PING\r\n".repeat(COMMANDS);
    bencher
        .counter(ItemsCount::new(COMMANDS))
        .bench_local(|| assert_eq!(parse(black_box(&stream), 16384), COMMANDS));
}

/// Large values: here copying is what costs.
#[divan::bench(args = [1024, 16_384, 1 << 20])]
fn parse_large_sets(bencher: Bencher, value_bytes: usize) {
    let count = (8 << 20) / value_bytes;
    let stream = set_commands(value_bytes, count);
    bencher
        .counter(BytesCount::new(stream.len()))
        .bench_local(|| assert_eq!(parse(black_box(&stream), 16384), count));
}

/// One request of 200,000 arguments in reads of 16 KiB: linear, because the parser resumes.
#[divan::bench]
fn parse_many_arguments(bencher: Bencher) {
    let mut stream = b"*200000\r\n".to_vec();
    (0..200_000).for_each(|_| stream.extend_from_slice(b"$8\r\nargument\r\n"));
    bencher
        .counter(ItemsCount::new(200_000_usize))
        .bench_local(|| assert_eq!(parse(black_box(&stream), 16384), 1));
}

fn encode(bencher: Bencher, put: impl Fn(&mut Encoder<'_>)) {
    let mut out = BytesMut::with_capacity(1 << 20);
    bencher.counter(ItemsCount::new(COMMANDS)).bench_local(|| {
        out.clear();
        for _ in 0..COMMANDS {
            put(&mut Encoder::new(black_box(&mut out), Protocol::Resp3));
        }
        out.len()
    });
}

#[divan::bench]
fn encode_ok(bencher: Bencher) {
    encode(bencher, |e| e.put_ok());
}

#[divan::bench]
fn encode_bulk_16(bencher: Bencher) {
    let value = Bytes::from_static(b"0123456789abcdef");
    encode(bencher, |e| e.put_bulk(black_box(&value)));
}

#[divan::bench]
fn encode_integer(bencher: Bencher) {
    encode(bencher, |e| e.put_integer(black_box(1_234_567)));
}

#[divan::bench]
fn encode_double(bencher: Bencher) {
    encode(bencher, |e| e.put_double(black_box(1234.5678)));
}

#[divan::bench]
fn encode_error(bencher: Bencher) {
    encode(bencher, |e| e.put_error(black_box(b"ERR value is not an integer or out of range")));
}

/// Ten pairs in arrays of two.
#[divan::bench]
fn encode_nested(bencher: Bencher) {
    encode(bencher, |e| {
        e.put_array(10);
        for _ in 0..10 {
            e.put_array(2);
            e.put_bulk(black_box(b"member"));
            e.put_integer(black_box(42));
        }
    });
}
