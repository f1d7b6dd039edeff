//! RESP: Redis and Warlock.

use super::{Kind, Op, Wire, name};
use std::io::Write;

/// One connection. Answers come in order and each says by its first byte whether it is good, so there is nothing to remember.
pub struct Resp;

pub(super) fn put_words(words: &[&[u8]], out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl Wire for Resp {
    fn hello(&mut self, _out: &mut Vec<u8>) {}

    fn put(&mut self, op: &Op<'_>, out: &mut Vec<u8>) {
        let name = name(op, "");
        let key = name.as_bytes();
        match op.kind {
            Kind::Create | Kind::Set => put_words(&[b"SET", key, op.value], out),
            Kind::Get => put_words(&[b"GET", key], out),
            Kind::Acquire => put_words(&[b"SET", key, b"holder", b"NX", b"PX", b"30000"], out),
            Kind::Release => put_words(&[b"DEL", key], out),
        }
    }

    fn take(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Result<(usize, usize), String> {
        let (mut at, mut answers) = (0, 0);
        while let Some(length) = answer(&input[at..])? {
            at += length;
            answers += 1;
        }
        Ok((at, answers))
    }
}

/// The length of the answer at the front, if it is whole.
fn answer(input: &[u8]) -> Result<Option<usize>, String> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = &input[..end + 1];
    let refused = || Err(format!("answered {:?}", String::from_utf8_lossy(line).trim_end()));
    match line {
        b"+OK\r\n" | b":1\r\n" => Ok(Some(line.len())),
        [b'$', digits @ .., b'\r', b'\n'] => {
            let Some(length) = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<usize>().ok())
            else {
                return refused();
            };
            let whole = line.len() + length + 2;
            Ok((input.len() >= whole).then_some(whole))
        }
        _ => refused(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_answers_are_counted_and_a_no_is_an_error() {
        let (mut wire, mut out) = (Resp, Vec::new());
        assert_eq!(wire.take(b"+OK\r\n$3\r\nabc\r\n:1\r\n$3\r\nab", &mut out), Ok((18, 3)));
        for no in ["$-1\r\n", "-ERR no\r\n", ":0\r\n"] {
            assert!(wire.take(no.as_bytes(), &mut out).is_err(), "{no}");
        }
    }
}
