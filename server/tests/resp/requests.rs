//! Valid requests: ours and the oracle's reading are the same, wherever the stream is cut.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use redis_protocol::resp2;
use redis_protocol::resp2::types::BytesFrame;

use crate::feed::{Command, feed_default};

/// Arguments of all kinds: none, text, bytes that look like protocol, and now and then large ones.
fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..20),
        4 => "[a-zA-Z0-9:{} ]{1,12}".prop_map(String::into_bytes),
        2 => prop::collection::vec(prop::sample::select(b"\r\n$*19-'\"\\x ".to_vec()), 0..30),
        1 => (any::<u8>(), prop_oneof![95..105_usize, 900..1100_usize, 30_000..70_000_usize])
            .prop_map(|(byte, length)| vec![byte; length]),
    ]
}

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        9 => prop::collection::vec(argument(), 1..12),
        1 => prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 1..200),
    ]
}

/// Sizes of successive reads.
pub fn pieces() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        1 => Just(vec![1]),
        4 => prop::collection::vec(1..40_usize, 1..20),
        2 => prop::collection::vec(1..20_000_usize, 1..10),
    ]
}

/// The command as the oracle writes it.
pub fn put_array(stream: &mut BytesMut, command: &Command) {
    let args = command.iter().map(|arg| BytesFrame::BulkString(Bytes::copy_from_slice(arg))).collect();
    let frame = BytesFrame::Array(args);
    resp2::encode::extend_encode(stream, &frame, false).unwrap();
}

/// All commands of a stream as the oracle reads them.
fn read_by_oracle(stream: &[u8]) -> Vec<Command> {
    let mut rest = BytesMut::from(stream);
    let mut commands = Vec::new();
    while let Some((frame, _, _)) = resp2::decode::decode_bytes_mut(&mut rest).unwrap() {
        let BytesFrame::Array(args) = frame else { panic!("not an array: {frame:?}") };
        let bulk = |arg| match arg {
            BytesFrame::BulkString(bytes) => bytes.to_vec(),
            other => panic!("not a bulk string: {other:?}"),
        };
        commands.push(args.into_iter().map(bulk).collect());
    }
    commands
}

/// How to write a command inline.
#[derive(Clone, Copy, Debug)]
enum Quote {
    Double,
    Hex,
    Single,
}

fn put_inline(stream: &mut BytesMut, command: &Command, quote: Quote, line_end: &str) {
    for arg in command {
        let text = match quote {
            // Single quotes cannot hold a line end, nor a backslash at the end: it would escape the quote.
            Quote::Single if !arg.contains(&b'\n') && !arg.ends_with(b"\\") => single_quoted(arg),
            Quote::Single | Quote::Double => double_quoted(arg),
            Quote::Hex => hex_quoted(arg),
        };
        stream.extend_from_slice(&text);
        stream.extend_from_slice(b" ");
    }
    stream.extend_from_slice(line_end.as_bytes());
}

fn single_quoted(arg: &[u8]) -> Vec<u8> {
    let escaped = arg.iter().flat_map(|byte| if *byte == b'\'' { b"\\'".to_vec() } else { vec![*byte] });
    [b"'".to_vec(), escaped.collect(), b"'".to_vec()].concat()
}

fn double_quoted(arg: &[u8]) -> Vec<u8> {
    let escaped = arg.iter().flat_map(|byte| match byte {
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\t' => b"\\t".to_vec(),
        0x08 => b"\\b".to_vec(),
        0x07 => b"\\a".to_vec(),
        b'"' | b'\\' => vec![b'\\', *byte],
        other => vec![*other],
    });
    [b"\"".to_vec(), escaped.collect(), b"\"".to_vec()].concat()
}

fn hex_quoted(arg: &[u8]) -> Vec<u8> {
    let hex: String = arg.iter().map(|byte| format!("\\x{byte:02X}")).collect();
    format!("\"{hex}\"").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arrays_read_as_the_oracle_reads_them(
        commands in prop::collection::vec(command(), 1..8),
        pieces in pieces(),
    ) {
        let mut stream = BytesMut::new();
        commands.iter().for_each(|command| put_array(&mut stream, command));
        prop_assert_eq!(&read_by_oracle(&stream), &commands);
        let outcome = feed_default(&stream, &pieces);
        prop_assert_eq!(outcome.error, None);
        prop_assert_eq!(outcome.commands, commands);
    }

    #[test]
    fn inline_and_arrays_mix(
        commands in prop::collection::vec((
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..10),
            prop::sample::select(vec![None, Some(Quote::Double), Some(Quote::Hex), Some(Quote::Single)]),
            prop::sample::select(vec!["\n", "\r\n", " \r\n\r\n", "\n*0\r\n", "\r\n*-1\r\n \n"]),
        ), 1..10),
        pieces in pieces(),
    ) {
        let mut stream = BytesMut::new();
        for (command, quote, line_end) in &commands {
            match quote {
                None => put_array(&mut stream, command),
                Some(quote) => put_inline(&mut stream, command, *quote, line_end),
            }
        }
        let outcome = feed_default(&stream, &pieces);
        prop_assert_eq!(outcome.error, None);
        let expected: Vec<Command> = commands.into_iter().map(|(command, _, _)| command).collect();
        prop_assert_eq!(outcome.commands, expected);
    }
}
