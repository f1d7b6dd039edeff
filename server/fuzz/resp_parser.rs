//! Fuzz target of the request parser. The first three bytes of an input choose limits, authentication and how the
//! rest is cut into reads; the rest is what a client sends.
//!
//! Checked for each input: no panic; the same outcome in one read and cut; memory bounded by what arrived; and what
//! was parsed, written again as arrays, is parsed to the same.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use warlock_server::resp::{Encoder, Limits, Parser, Protocol, ProtocolError};

/// More commands than this show nothing new, and take time.
const COMMANDS_MAX: usize = 100;

#[derive(Debug, PartialEq)]
struct Outcome {
    commands: Vec<Vec<Vec<u8>>>,
    error: Option<ProtocolError>,
}

/// Feeds `stream` in pieces whose sizes are drawn from `seed`; one piece if it is zero.
fn feed(stream: &[u8], limits: Limits, authenticated: bool, seed: u8) -> Outcome {
    let mut parser = Parser::new(limits, authenticated);
    let mut input = BytesMut::new();
    let mut outcome = Outcome { commands: Vec::new(), error: None };
    let mut buffered_max = 0;
    let mut random = u32::from(seed);
    // Long streams in not too many reads: speed finds more than thoroughness.
    let size_min = 1 + stream.len() / 1024;
    let mut rest = stream;
    while !rest.is_empty() {
        parser.make_room(&mut input);
        let room = input.capacity() - input.len();
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = match seed {
            0 => usize::MAX,
            1 => size_min,
            _ => size_min + (random >> 16) as usize % (usize::from(seed) * 2),
        };
        let (read, after) = rest.split_at(size.min(room).min(rest.len()));
        input.extend_from_slice(read);
        rest = after;
        buffered_max = buffered_max.max(input.len());
        assert!(input.capacity() <= 4 * buffered_max + 64 * 1024, "memory follows the bytes that arrived");
        loop {
            match parser.next(&mut input) {
                Ok(None) => break,
                Ok(Some(request)) => {
                    assert!(!request.is_empty(), "a request has a name");
                    assert!(request.len() <= limits.arguments_max.max(32 * 1024), "arguments are limited");
                    outcome.commands.push(request.iter().map(<[u8]>::to_vec).collect());
                    if outcome.commands.len() == COMMANDS_MAX {
                        return outcome;
                    }
                }
                Err(error) => {
                    let mut reply = BytesMut::new();
                    error.put(&mut reply);
                    assert_eq!(
                        reply.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count(),
                        2,
                        "one line"
                    );
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
    }
    outcome
}

fuzz_target!(|data: &[u8]| {
    let [flags, seed, size, stream @ ..] = data else { return };
    let limits = if flags & 1 == 0 {
        Limits::default()
    } else {
        Limits {
            arguments_max: usize::from(*size),
            bulk_bytes_max: usize::from(*size) * 2,
            request_bytes_max: usize::from(*size) * 4,
            unauthenticated_arguments_max: usize::from(*size) / 4,
            unauthenticated_bulk_bytes_max: usize::from(*size) / 2,
        }
    };
    let authenticated = flags & 2 == 0;
    // A few bytes stand for many, so that the limits of 64 KiB are within the fuzzer's reach. Seldom: it is slow.
    let repeats = (1 + usize::from(*size) * 4).min(70_000 / stream.len().max(1));
    let repeated = (flags & 0x7c == 0x7c).then(|| stream.repeat(repeats));
    let stream = repeated.as_deref().unwrap_or(stream);

    let whole = feed(stream, limits, authenticated, 0);
    assert_eq!(feed(stream, limits, authenticated, (*seed).max(1)), whole, "a cut changes nothing");

    let mut again = BytesMut::new();
    let mut encoder = Encoder::new(&mut again, Protocol::Resp2);
    for command in &whole.commands {
        encoder.put_array(command.len());
        command.iter().for_each(|arg| encoder.put_bulk(arg));
    }
    let expected = Outcome { error: None, ..whole };
    assert_eq!(feed(&again, Limits::default(), true, *seed), expected, "written again, it reads the same");
});
