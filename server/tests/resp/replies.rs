//! Replies: what we encode is decoded to the same thing by the oracle, in both protocols.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use redis_protocol::{resp2, resp2::types::BytesFrame as Frame2, resp3, resp3::types::BytesFrame as Frame3};
use resp3::types::VerbatimStringFormat;
use warlock_server::resp::{Encoder, Protocol};

/// One call of the encoder, and those for its elements.
#[derive(Clone, Debug)]
enum Put {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Double(f64),
    Boolean(bool),
    Verbatim(Vec<u8>),
    BigNumber(String),
    Array(Vec<Put>),
    Map(Vec<(String, Put)>),
    Set(Vec<String>),
    Push(Vec<Put>),
}

fn put() -> impl Strategy<Value = Put> {
    let integer = prop_oneof![
        any::<i64>(),
        -1000..1000_i64,
        // Around powers of ten, where the oracle's own encoder goes wrong; its decoder does not.
        (0..19_u32, -1..2_i64).prop_map(|(power, delta)| 10_i64.pow(power) + delta),
    ];
    let double = prop_oneof![any::<f64>().prop_filter("NaN", |value| !value.is_nan()), -1e3..1e3, Just(1e20)];
    let leaf = prop_oneof![
        "[ -~é]{0,30}".prop_map(Put::Simple),
        "[A-Z]{3,9} [ -~é]{0,30}".prop_map(Put::Error),
        integer.prop_map(Put::Integer),
        prop::collection::vec(any::<u8>(), 0..150).prop_map(Put::Bulk),
        Just(Put::Null),
        Just(Put::NullArray),
        double.prop_map(Put::Double),
        any::<bool>().prop_map(Put::Boolean),
        prop::collection::vec(any::<u8>(), 0..150).prop_map(Put::Verbatim),
        "-?[1-9][0-9]{0,40}".prop_map(Put::BigNumber),
        // The oracle's sets and maps are hashed, so members and keys must be distinct.
        prop::collection::btree_set("[a-z]{0,6}", 0..12).prop_map(|set| Put::Set(set.into_iter().collect())),
    ];
    leaf.prop_recursive(4, 60, 12, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Put::Array),
            prop::collection::btree_map("[a-z]{0,6}", inner.clone(), 0..12)
                .prop_map(|map| Put::Map(map.into_iter().collect())),
        ]
    })
}

/// A push is a message of its own, never part of a reply.
fn message() -> impl Strategy<Value = Put> {
    prop_oneof![9 => put(), 1 => prop::collection::vec(put(), 1..5).prop_map(Put::Push)]
}

fn encode(put: &Put, e: &mut Encoder<'_>) {
    match put {
        Put::Simple(text) => e.put_simple(text.as_bytes()),
        Put::Error(text) => e.put_error(text.as_bytes()),
        Put::Integer(value) => e.put_integer(*value),
        Put::Bulk(value) => e.put_bulk(value),
        Put::Null => e.put_null(),
        Put::NullArray => e.put_null_array(),
        Put::Double(value) => e.put_double(*value),
        Put::Boolean(value) => e.put_boolean(*value),
        Put::Verbatim(text) => e.put_verbatim(*b"txt", text),
        Put::BigNumber(digits) => e.put_big_number(digits.as_bytes()),
        Put::Array(items) => {
            e.put_array(items.len());
            items.iter().for_each(|item| encode(item, e));
        }
        Put::Push(items) => {
            e.put_push(items.len());
            items.iter().for_each(|item| encode(item, e));
        }
        Put::Set(members) => {
            e.put_set(members.len());
            members.iter().for_each(|member| e.put_bulk(member.as_bytes()));
        }
        Put::Map(pairs) => {
            e.put_map(pairs.len());
            for (key, value) in pairs {
                e.put_bulk(key.as_bytes());
                encode(value, e);
            }
        }
    }
}

fn encoded(put: &Put, protocol: Protocol) -> Bytes {
    let mut out = BytesMut::new();
    encode(put, &mut Encoder::new(&mut out, protocol));
    out.freeze()
}

/// What the oracle must find in RESP2. The digits of a double are not compared here, only its value.
fn is_resp2(put: &Put, frame: &Frame2) -> bool {
    let is_bulk = |text: &[u8], frame: &Frame2| matches!(frame, Frame2::BulkString(bytes) if bytes == text);
    match (put, frame) {
        (Put::Simple(text), Frame2::SimpleString(bytes)) => bytes == text.as_bytes(),
        (Put::Error(text), Frame2::Error(error)) => &**error == text.as_str(),
        (Put::Integer(value), Frame2::Integer(number)) => value == number,
        (Put::Bulk(value) | Put::Verbatim(value), frame) => is_bulk(value, frame),
        (Put::BigNumber(digits), frame) => is_bulk(digits.as_bytes(), frame),
        (Put::Null | Put::NullArray, Frame2::Null) => true,
        (Put::Double(value), Frame2::BulkString(bytes)) => {
            std::str::from_utf8(bytes).unwrap().parse::<f64>().unwrap().to_bits() == value.to_bits()
        }
        (Put::Boolean(value), Frame2::Integer(number)) => *number == i64::from(*value),
        (Put::Array(items) | Put::Push(items), Frame2::Array(frames)) => {
            items.len() == frames.len() && items.iter().zip(frames).all(|(item, frame)| is_resp2(item, frame))
        }
        (Put::Set(members), Frame2::Array(frames)) => {
            members.len() == frames.len()
                && members.iter().zip(frames).all(|(m, frame)| is_bulk(m.as_bytes(), frame))
        }
        (Put::Map(pairs), Frame2::Array(frames)) => {
            frames.len() == 2 * pairs.len()
                && pairs.iter().zip(frames.chunks(2)).all(|((key, value), frames)| {
                    is_bulk(key.as_bytes(), &frames[0]) && is_resp2(value, &frames[1])
                })
        }
        _ => false,
    }
}

/// What the oracle must find in RESP3.
fn is_resp3(put: &Put, frame: &Frame3) -> bool {
    let blob =
        |text: &str| Frame3::BlobString { data: Bytes::copy_from_slice(text.as_bytes()), attributes: None };
    match (put, frame) {
        (Put::Simple(text), Frame3::SimpleString { data, .. }) => data == text.as_bytes(),
        (Put::Error(text), Frame3::SimpleError { data, .. }) => &**data == text.as_str(),
        (Put::Integer(value), Frame3::Number { data, .. }) => data == value,
        (Put::Bulk(value), Frame3::BlobString { data, .. }) => data == value,
        (Put::Null | Put::NullArray, Frame3::Null) => true,
        (Put::Double(value), Frame3::Double { data, .. }) => data.to_bits() == value.to_bits(),
        (Put::Boolean(value), Frame3::Boolean { data, .. }) => data == value,
        (Put::Verbatim(text), Frame3::VerbatimString { data, format, .. }) => {
            data == text && *format == VerbatimStringFormat::Text
        }
        (Put::BigNumber(digits), Frame3::BigNumber { data, .. }) => data == digits.as_bytes(),
        (Put::Array(items), Frame3::Array { data, .. }) | (Put::Push(items), Frame3::Push { data, .. }) => {
            items.len() == data.len() && items.iter().zip(data).all(|(item, frame)| is_resp3(item, frame))
        }
        (Put::Set(members), Frame3::Set { data, .. }) => {
            members.len() == data.len() && members.iter().all(|member| data.contains(&blob(member)))
        }
        (Put::Map(pairs), Frame3::Map { data, .. }) => {
            let same = |(key, value): &(String, Put)| {
                data.get(&blob(key)).is_some_and(|found| is_resp3(value, found))
            };
            pairs.len() == data.len() && pairs.iter().all(same)
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_oracle_reads_our_resp2(put in message()) {
        let bytes = encoded(&put, Protocol::Resp2);
        let (frame, length) = resp2::decode::decode_bytes(&bytes).unwrap().unwrap();
        prop_assert_eq!(length, bytes.len());
        prop_assert!(is_resp2(&put, &frame), "{:?}", frame);
    }

    #[test]
    fn the_oracle_reads_our_resp3(put in message()) {
        let bytes = encoded(&put, Protocol::Resp3);
        let (frame, length) = resp3::decode::complete::decode_bytes(&bytes).unwrap().unwrap();
        prop_assert_eq!(length, bytes.len());
        prop_assert!(is_resp3(&put, &frame), "{:?}", frame);
    }

    /// Whatever is in a simple string or an error, it stays one line: a reply cannot be forged.
    #[test]
    fn lines_stay_lines(text in prop::collection::vec(prop::sample::select(b"\r\n+:$ab".to_vec()), 0..40)) {
        let mut out = BytesMut::new();
        let mut encoder = Encoder::new(&mut out, Protocol::Resp3);
        encoder.put_simple(&text);
        encoder.put_error(&text);
        encoder.put_big_number(&text);
        let line_ends = out.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count();
        prop_assert_eq!(line_ends, 6);
        prop_assert_eq!(out.len(), 3 * (text.len() + 3));
    }
}
