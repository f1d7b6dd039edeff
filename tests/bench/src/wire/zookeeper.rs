//! ZooKeeper's own protocol: frames of `length`, then jute's fixed records, big-endian.
//!
//! A lock is an ephemeral node: created, then deleted. Keys are persistent nodes under the root; they are created once and then set.

use super::{Kind, Op, Wire, be32, name};

const CREATE: u32 = 1;
const DELETE: u32 = 2;
const GET_DATA: u32 = 4;
const SET_DATA: u32 = 5;
const CLOSE: i32 = -11;
const ANY_VERSION: u32 = u32::MAX;
const ALL_PERMISSIONS: u32 = 31;
const EPHEMERAL: u32 = 1;
const SESSION_MS: u32 = 30_000;
/// Frame length, request number, transaction, error.
const HEADER: usize = 4 + 4 + 8 + 4;

/// One session.
#[derive(Default)]
pub struct ZooKeeper {
    is_connected: bool,
    last: u32,
}

fn put_buffer(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn framed(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

impl Wire for ZooKeeper {
    fn hello(&mut self, out: &mut Vec<u8>) {
        framed(out, |out| {
            out.extend_from_slice(&[0; 4]); // version
            out.extend_from_slice(&[0; 8]); // last transaction seen
            out.extend_from_slice(&SESSION_MS.to_be_bytes());
            out.extend_from_slice(&[0; 8]); // a new session
            put_buffer(&[0; 16], out);
        });
    }

    fn hello_answers(&self) -> usize {
        1
    }

    fn put(&mut self, op: &Op<'_>, out: &mut Vec<u8>) {
        self.last = self.last % 0x7fff_ffff + 1;
        let (number, path) = (self.last, name(op, "/"));
        framed(out, |out| {
            let code = match op.kind {
                Kind::Create | Kind::Acquire => CREATE,
                Kind::Set => SET_DATA,
                Kind::Get => GET_DATA,
                Kind::Release => DELETE,
            };
            out.extend_from_slice(&number.to_be_bytes());
            out.extend_from_slice(&code.to_be_bytes());
            put_buffer(path.as_bytes(), out);
            match op.kind {
                Kind::Create | Kind::Acquire => {
                    let is_lock = op.kind == Kind::Acquire;
                    put_buffer(if is_lock { b"holder" } else { op.value }, out);
                    out.extend_from_slice(&1_u32.to_be_bytes());
                    out.extend_from_slice(&ALL_PERMISSIONS.to_be_bytes());
                    put_buffer(b"world", out);
                    put_buffer(b"anyone", out);
                    out.extend_from_slice(&(if is_lock { EPHEMERAL } else { 0 }).to_be_bytes());
                }
                Kind::Set => {
                    put_buffer(op.value, out);
                    out.extend_from_slice(&ANY_VERSION.to_be_bytes());
                }
                Kind::Get => out.push(0), // no watch
                Kind::Release => out.extend_from_slice(&ANY_VERSION.to_be_bytes()),
            }
        });
    }

    fn take(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Result<(usize, usize), String> {
        let (mut at, mut answers) = (0, 0);
        while let Some(length) = be32(input, at) {
            let end = at + 4 + length as usize;
            if input.len() < end {
                break;
            }
            if !self.is_connected {
                self.is_connected = true;
            } else {
                let error = if end - at >= HEADER { be32(input, at + 16) } else { None };
                if error != Some(0) {
                    let error = error.map(u32::cast_signed);
                    return Err(format!("answered with error {error:?}"));
                }
            }
            at = end;
            answers += 1;
        }
        Ok((at, answers))
    }

    fn goodbye(&mut self, out: &mut Vec<u8>) {
        framed(out, |out| {
            out.extend_from_slice(&self.last.to_be_bytes());
            out.extend_from_slice(&CLOSE.to_be_bytes());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(error: i32) -> Vec<u8> {
        let mut out = Vec::new();
        framed(&mut out, |out| {
            out.extend_from_slice(&[0; 12]);
            out.extend_from_slice(&error.to_be_bytes());
        });
        out
    }

    #[test]
    fn the_first_frame_is_the_session_and_then_errors_count() {
        let (mut wire, mut out) = (ZooKeeper::default(), Vec::new());
        assert_eq!(wire.take(&answer(7), &mut out), Ok((20, 1)));
        let two = [answer(0), answer(0)].concat();
        assert_eq!(wire.take(&two[..39], &mut out), Ok((20, 1)));
        assert!(wire.take(&answer(-110), &mut out).is_err());
    }
}
