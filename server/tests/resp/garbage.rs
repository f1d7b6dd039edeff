//! Invalid requests: no panic, bounded memory (asserted by `feed`), and one outcome however the stream is cut.

use bytes::BytesMut;
use proptest::prelude::*;
use warlock_server::resp::Limits;

use crate::feed::feed;
use crate::requests::{command, pieces, put_array};

/// Low limits, so that random lengths hit both sides of them.
fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![
        Just(Limits::default()),
        Just(Limits {
            arguments_max: 20,
            bulk_bytes_max: 100,
            request_bytes_max: 300,
            unauthenticated_arguments_max: 3,
            unauthenticated_bulk_bytes_max: 10,
        }),
    ]
}

/// Pieces of protocol in random order, which get much further than random bytes.
fn almost_protocol() -> impl Strategy<Value = Vec<u8>> {
    let tokens: Vec<&[u8]> = vec![
        b"*1\r\n",
        b"*2\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*21\r\n",
        b"*",
        b"$",
        b"$0\r\n",
        b"$1\r\n",
        b"$3\r\n",
        b"$-1\r\n",
        b"$200\r\n",
        b"$99999999\r\n",
        b"\r\n",
        b"\r",
        b"\n",
        b"a",
        b"abc",
        b"abc\r\n",
        b"\r\n$1\r\n",
        b"PING\r\n",
        b"\"",
        b"'",
        b"\\",
        b"\\x41",
        b" ",
        b"\0",
        b"\xff",
        b"0",
        b"1",
        b"9",
        b"11111111111111111111111111111111",
        b"-",
        b":1\r\n",
    ];
    prop::collection::vec(prop::sample::select(tokens), 0..60).prop_map(|tokens| tokens.concat())
}

/// Valid commands with a few bytes changed, removed or inserted.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..6);
    (prop::collection::vec(command(), 1..5), edits).prop_map(|(commands, edits)| {
        let mut stream = BytesMut::new();
        commands.iter().for_each(|command| put_array(&mut stream, command));
        let mut stream = stream.to_vec();
        for (index, byte, edit) in edits {
            if stream.is_empty() {
                break;
            }
            let at = index.index(stream.len());
            match edit {
                0 => stream[at] = byte,
                1 => stream[at] ^= 1 << (byte & 7),
                2 => drop(stream.remove(at)),
                _ => stream.insert(at, b"\r\n*$-0159"[usize::from(byte) % 9]),
            }
        }
        stream
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_cut_gives_the_same_outcome(
        stream in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..500),
            almost_protocol(),
            almost_protocol(),
            mutated(),
        ],
        limits in limits(),
        authenticated: bool,
        pieces in pieces(),
    ) {
        let whole = feed(&stream, &[usize::MAX], limits, authenticated);
        prop_assert_eq!(&feed(&stream, &pieces, limits, authenticated), &whole);
        prop_assert_eq!(&feed(&stream, &[1], limits, authenticated), &whole);
    }
}
