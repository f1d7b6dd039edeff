//! Malformed input, each with the exact error reply. Most cases were also sent to a Redis 7.0.15, by hand; where it
//! answers differently, a comment says so.

use bytes::BytesMut;
use warlock_server::resp::{HEADER_BYTES_MAX, INLINE_BYTES_MAX, Limits, ProtocolError};

use crate::feed::{Outcome, feed};

/// What comes of `stream`, which is the same in one read and byte by byte.
fn outcome(stream: &[u8], authenticated: bool) -> Outcome {
    let whole = feed(stream, &[usize::MAX], Limits::default(), authenticated);
    assert_eq!(feed(stream, &[1], Limits::default(), authenticated), whole, "{}", stream.escape_ascii());
    whole
}

fn reply(error: Option<ProtocolError>) -> String {
    let mut out = BytesMut::new();
    if let Some(error) = error {
        error.put(&mut out);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Each stream has no complete command, and gives the error; none if the text is empty.
fn check(cases: &[(&[u8], &str)], authenticated: bool) {
    for (stream, text) in cases {
        let outcome = outcome(stream, authenticated);
        let expected =
            if text.is_empty() { String::new() } else { format!("-ERR Protocol error: {text}\r\n") };
        assert_eq!(reply(outcome.error), expected, "{}", stream.escape_ascii());
        assert_eq!(outcome.commands.len(), 0, "{}", stream.escape_ascii());
    }
}

#[test]
fn array_headers() {
    let cases: &[(&[u8], &str)] = &[
        (b"*\r\n", "invalid multibulk length"),
        (b"*a\r\n", "invalid multibulk length"),
        (b"*3a\r\n", "invalid multibulk length"),
        (b"* 3\r\n", "invalid multibulk length"),
        (b"*+3\r\n", "invalid multibulk length"),
        (b"*03\r\n", "invalid multibulk length"),
        (b"*-0\r\n", "invalid multibulk length"),
        (b"*-\r\n", "invalid multibulk length"),
        (b"*3000000000\r\n", "invalid multibulk length"),
        (b"*20000000000000000000\r\n", "invalid multibulk length"),
        (b"*-20000000000000000000\r\n", "invalid multibulk length"),
        (b"*1048576\r\n", ""),
        // Redis takes these two.
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\rX$4\r\nPING\r\n", "invalid multibulk length"),
        // Incomplete, not wrong.
        (b"*", ""),
        (b"*3", ""),
        (b"*3\r", ""),
        (b"*3\n$4\n", ""),
    ];
    check(cases, true);
}

#[test]
fn bulk_headers() {
    let cases: &[(&[u8], &str)] = &[
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$a\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$01\r\n", "invalid bulk length"),
        (b"*1\r\n$1 \r\n", "invalid bulk length"),
        (b"*1\r\n$67108864\r\n", ""),
        // Redis's limit is 512 MB.
        (b"*1\r\n$67108865\r\n", "invalid bulk length"),
        (b"*1\r\n$9999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n\n\r\n", "expected '$', got ' '"),
        (b"*2\r\n$4\r\nPING\r\nx\r\n", "expected '$', got 'x'"),
        // Redis takes these two.
        (b"*1\r\n$4\rXPING\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGPONG\r\n", "bulk string without CRLF at its end"),
        // Incomplete, not wrong.
        (b"*1\r\nf", ""),
        (b"*1\r\n$", ""),
        (b"*1\r\n$4\r\nPING\r", ""),
    ];
    check(cases, true);
}

/// The byte is sent back as it came, even if it is no UTF-8.
#[test]
fn any_byte_in_the_text() {
    let mut out = BytesMut::new();
    outcome(b"*1\r\n\xff\r\n", true).error.unwrap().put(&mut out);
    assert_eq!(&out[..], b"-ERR Protocol error: expected '$', got '\xff'\r\n");
}

#[test]
fn long_headers() {
    let array = |length: usize| [b"*".as_slice(), &vec![b'1'; length - 1]].concat();
    let bulk = |length: usize| [b"*1\r\n$".as_slice(), &vec![b'1'; length - 1]].concat();
    let line = |mut header: Vec<u8>| {
        header.extend_from_slice(b"\r\n");
        header
    };
    let cases: &[(&[u8], &str)] = &[
        // Redis allows 64 KiB, then gives the same texts.
        (&array(HEADER_BYTES_MAX), ""),
        (&line(array(HEADER_BYTES_MAX)), "invalid multibulk length"),
        (&array(HEADER_BYTES_MAX + 1), "too big mbulk count string"),
        (&line(array(HEADER_BYTES_MAX + 1)), "too big mbulk count string"),
        (&array(1_000_000), "too big mbulk count string"),
        (&bulk(HEADER_BYTES_MAX), ""),
        (&line(bulk(HEADER_BYTES_MAX)), "invalid bulk length"),
        (&bulk(HEADER_BYTES_MAX + 1), "too big bulk count string"),
        (&line(bulk(HEADER_BYTES_MAX + 1)), "too big bulk count string"),
    ];
    check(cases, true);
}

#[test]
fn inline_commands() {
    let largest = vec![b'x'; INLINE_BYTES_MAX];
    let complete = outcome(&[&largest[..], b"\n"].concat(), true);
    assert_eq!(complete, Outcome { commands: vec![vec![largest.clone()]], error: None });
    let larger = [&largest[..], b"x"].concat();
    let cases: &[(&[u8], &str)] = &[
        (&largest, ""),
        (&larger, "too big inline request"),
        (&[&larger[..], b"\n"].concat(), "too big inline request"),
        (b"SET a \"b\r\n", "unbalanced quotes in request"),
        (b"SET a 'b\r\n", "unbalanced quotes in request"),
        (b"SET a \"b\"c\r\n", "unbalanced quotes in request"),
        (b"SET a 'b'c\r\n", "unbalanced quotes in request"),
        (b"\"\r\n", "unbalanced quotes in request"),
        (b"SET a \"b", ""),
    ];
    check(cases, true);
}

#[test]
fn before_authentication() {
    let cases: &[(&[u8], &str)] = &[
        (b"*10\r\n", ""),
        (b"*11\r\n", "unauthenticated multibulk length"),
        (b"*1\r\n$16384\r\n", ""),
        (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
        (b"*2000000000\r\n", "invalid multibulk length"),
        (b"*1\r\n$600000000\r\n", "invalid bulk length"),
    ];
    check(cases, false);
    check(&[(b"*11\r\n", ""), (b"*1\r\n$16385\r\n", "")], true);
}

/// Checked when a length is announced: what is too much is never awaited.
#[test]
fn whole_requests_are_limited() {
    let head = b"*3\r\n$3\r\nSET\r\n$6\r\n012345\r\n$70\r\n";
    let request_bytes = head.len() + 72;
    for (request_bytes_max, error) in
        [(request_bytes, None), (request_bytes - 1, Some(ProtocolError::TooBigRequest))]
    {
        let limits = Limits { request_bytes_max, ..Limits::default() };
        assert_eq!(feed(head, &[usize::MAX], limits, true), Outcome { commands: vec![], error });
        assert_eq!(feed(head, &[1], limits, true), Outcome { commands: vec![], error });
    }
}

/// Empty requests are no requests: nothing is answered to them.
#[test]
fn empty_requests_are_skipped() {
    for stream in [&b"\r\n\n  \r\n*0\r\n*-1\r\n*-77\r\n\t\r\nPING\r\n\r\n"[..], b"\n*1\r\n$0\r\n\r\n*0\r\n"] {
        for authenticated in [true, false] {
            let outcome = outcome(stream, authenticated);
            assert_eq!((outcome.commands.len(), outcome.error), (1, None), "{}", stream.escape_ascii());
        }
    }
}

/// Commands before the malformed one are still answered, those after it are not.
#[test]
fn commands_before_an_error_count() {
    let outcome = outcome(b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n!\r\n*1\r\n$4\r\nPING\r\n", true);
    assert_eq!(outcome.commands.len(), 2);
    assert_eq!(outcome.error, Some(ProtocolError::ExpectedBulk(b'!')));
}
