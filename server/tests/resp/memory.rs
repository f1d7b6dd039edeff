//! What requests cost in memory, and that no work is done twice.

use bytes::BytesMut;
use warlock_server::resp::{Limits, Parser};

/// A parser fed with `bytes`, as a connection with a large read buffer would do.
fn parser_with(bytes: &[u8]) -> (Parser, BytesMut) {
    (Parser::new(Limits::default(), true), BytesMut::from(bytes))
}

#[test]
fn an_announced_bulk_costs_nothing() {
    let (mut parser, mut input) = parser_with(b"*2\r\n$3\r\nGET\r\n$67108864\r\nabc");
    assert!(parser.next(&mut input).unwrap().is_none());
    parser.make_room(&mut input);
    assert!(input.capacity() <= 32 * 1024);
    // The room grows with what arrives, in few steps, and ends at what is missing.
    let mut steps = 0;
    while input.len() < 67_000_000 {
        parser.make_room(&mut input);
        steps += 1;
        input.resize(input.capacity().min(67_000_000), b'x');
        assert!(parser.next(&mut input).unwrap().is_none());
        assert!(input.capacity() <= 2 * input.len() + 32 * 1024);
    }
    assert!(steps < 20, "{steps}");
}

#[test]
fn an_announced_array_costs_nothing() {
    let mut stream = b"*1048576\r\n".to_vec();
    (0..100).for_each(|_| stream.extend_from_slice(b"$0\r\n\r\n"));
    let (mut parser, mut input) = parser_with(&stream);
    assert!(parser.next(&mut input).unwrap().is_none());
    assert!(input.capacity() < 2048);
    parser.make_room(&mut input);
    assert!(input.capacity() <= 32 * 1024);
}

#[test]
fn a_small_request_does_not_pin_the_read_buffer() {
    let (mut parser, mut input) = parser_with(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    let before = input.as_ptr();
    let request = parser.next(&mut input).unwrap().unwrap();
    assert!(!(before as usize..before as usize + 64).contains(&(request.name().as_ptr() as usize)));
    assert!(request.bytes_held() < 256);
}

#[test]
fn a_large_request_takes_the_read_buffer_with_it() {
    let value = vec![b'v'; 100_000];
    let mut stream = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n".to_vec();
    let start = stream.len();
    stream.extend_from_slice(&value);
    stream.extend_from_slice(b"\r\nPING\r\n");
    let (mut parser, mut input) = parser_with(&stream);
    let before = input.as_ptr() as usize;
    let request = parser.next(&mut input).unwrap().unwrap();
    assert_eq!(request.arg(2), Some(&value[..]));
    assert_eq!(request.arg_bytes(2).unwrap().as_ptr() as usize, before + start);
    // The connection has let go of it: it holds only what follows.
    assert!(input.capacity() < 1024);
    assert_eq!(parser.next(&mut input).unwrap().unwrap().name(), b"PING");
}

#[test]
fn a_request_lost_in_a_huge_buffer_is_copied() {
    let mut stream = b"*2\r\n$4\r\nECHO\r\n$40000\r\n".to_vec();
    stream.resize(stream.len() + 40_000, b'v');
    stream.extend_from_slice(b"\r\n");
    let (mut parser, mut input) = parser_with(&stream);
    input.reserve(1 << 20);
    let before = input.as_ptr() as usize;
    let request = parser.next(&mut input).unwrap().unwrap();
    assert!(!(before..before + (1 << 20)).contains(&(request.name().as_ptr() as usize)));
    assert!(input.capacity() < 1024, "an idle connection keeps no huge buffer");
}

#[test]
fn arguments_beyond_the_inline_ones() {
    for count in [1, 7, 8, 9, 17, 1000] {
        let mut stream = format!("*{count}\r\n").into_bytes();
        let args: Vec<String> = (0..count).map(|i| format!("argument {i}")).collect();
        args.iter()
            .for_each(|arg| stream.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes()));
        let (mut parser, mut input) = parser_with(&stream);
        let request = parser.next(&mut input).unwrap().unwrap();
        assert!(request.iter().eq(args.iter().map(|arg| arg.as_bytes())));
        assert_eq!(request.arg(count), None);
    }
}

/// The tighter limits end with AUTH, in the middle of a pipeline.
#[test]
fn authentication_lifts_the_limits() {
    let stream = b"AUTH secret\r\n*11\r\n$4\r\nMGET\r\n".as_slice();
    let mut input = BytesMut::from(stream);
    let mut parser = Parser::new(Limits::default(), false);
    assert_eq!(parser.next(&mut input).unwrap().unwrap().name(), b"AUTH");
    parser.set_authenticated(true);
    assert!(parser.next(&mut input).unwrap().is_none());
}

/// What was understood is not read again after the next bytes arrive: here it changes in between, unnoticed.
#[test]
fn a_resumed_parser_does_not_look_back() {
    let (mut parser, mut input) = parser_with(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\n01");
    let understood = input.len() - 2;
    assert!(parser.next(&mut input).unwrap().is_none());
    input[..understood].fill(b'?');
    input.extend_from_slice(b"234\r\n");
    let request = parser.next(&mut input).unwrap().unwrap();
    assert!(request.iter().eq([&b"???"[..], b"?", b"01234"]));

    let (mut parser, mut input) = parser_with(b"PIN");
    assert!(parser.next(&mut input).unwrap().is_none());
    input[1] = b'\n';
    input.extend_from_slice(b"G\r\n");
    let request = parser.next(&mut input).unwrap().unwrap();
    assert!(request.iter().eq([&b"P"[..], b"NG"]));
}

/// A parser that starts again after each read would need hours for this.
#[test]
fn many_arguments_byte_by_byte() {
    let mut stream = b"*50000\r\n".to_vec();
    (0..50_000).for_each(|_| stream.extend_from_slice(b"$3\r\narg\r\n"));
    let outcome = crate::feed::feed_default(&stream, &[1]);
    assert_eq!((outcome.commands.len(), outcome.commands[0].len(), outcome.error), (1, 50_000, None));
}
