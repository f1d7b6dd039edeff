//! Warlock's own locks, over RESP: LOCK.ACQUIRE, and LOCK.RELEASE with the token that came back.

use super::resp::put_words;
use super::{Kind, Op, Wire, name};
use std::collections::VecDeque;

/// One connection. Locks are given back in the order in which they were taken.
#[derive(Default)]
pub struct Locks {
    tokens: VecDeque<String>,
}

impl Wire for Locks {
    fn hello(&mut self, _out: &mut Vec<u8>) {}

    fn put(&mut self, op: &Op<'_>, out: &mut Vec<u8>) {
        let name = name(op, "native:");
        let key = name.as_bytes();
        match op.kind {
            Kind::Release => {
                let token = self.tokens.pop_front().unwrap_or_default();
                put_words(&[b"LOCK.RELEASE", key, token.as_bytes()], out);
            }
            _ => put_words(&[b"LOCK.ACQUIRE", key, b"holder", b"30000"], out),
        }
    }

    fn take(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Result<(usize, usize), String> {
        let (mut at, mut answers) = (0, 0);
        while let Some((length, token)) = answer(&input[at..])? {
            at += length;
            answers += 1;
            self.tokens.extend(token);
        }
        Ok((at, answers))
    }
}

/// The answer at the front, if it is whole: how long it is, and the token of a lock that was taken.
fn answer(input: &[u8]) -> Result<Option<(usize, Option<String>)>, String> {
    let line = |from: usize| {
        let end = input.get(from..)?.iter().position(|byte| *byte == b'\n')?;
        Some((String::from_utf8_lossy(&input[from..from + end]).trim_end().to_string(), from + end + 1))
    };
    let Some((first, end)) = line(0) else { return Ok(None) };
    match first.as_str() {
        ":0" => Ok(Some((end, None))), // given back, nothing is held any more
        "*2" => {
            let Some((token, end)) = line(end) else { return Ok(None) };
            let Some((_, end)) = line(end) else { return Ok(None) };
            Ok(Some((end, Some(token.trim_start_matches(':').to_string()))))
        }
        other => Err(format!("answered {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_back_with_its_token() {
        let (mut wire, mut out) = (Locks::default(), Vec::new());
        assert_eq!(wire.take(b"*2\r\n:41\r\n:30000\r\n*2\r\n:42\r\n:300", &mut out), Ok((17, 1)));
        wire.put(&Op { kind: Kind::Release, key: 7, value: b"" }, &mut out);
        let said = String::from_utf8_lossy(&out).into_owned();
        assert!(said.contains("LOCK.RELEASE") && said.contains("\r\n41\r\n"), "{said}");
        assert_eq!(wire.take(b":0\r\n", &mut out), Ok((4, 1)));
        for no in ["$-1\r\n", "*-1\r\n", "-LOCKLOST x\r\n", ":1\r\n"] {
            assert!(wire.take(no.as_bytes(), &mut out).is_err(), "{no}");
        }
    }
}
