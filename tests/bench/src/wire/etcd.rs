//! etcd v3: gRPC, spoken as bare HTTP/2 frames.
//!
//! Each request is one stream: HEADERS and DATA in one write. Header fields are put into the connection's compression table the first time and
//! named by one byte afterwards, as a gRPC library does, so that the server does not pay for a cheap client. Of the answer's headers nothing is
//! read: a call that failed has no message, and a message says itself whether the key was there and whether the lock was free.

use super::{Kind, Op, Wire, be32, name};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
/// What a stream may end with although all is well.
const NO_ERROR: [u8; 4] = [0; 4];
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;
const WINDOW: u32 = 1 << 30;
/// The static table of HPACK has 61 entries.
const FIRST_DYNAMIC: usize = 62;

/// One HTTP/2 connection.
#[derive(Default)]
pub struct Etcd {
    last_stream: u32,
    /// The first stream of the batch in flight.
    batch_from: u32,
    /// By stream of the batch: what was asked, and whether a message came.
    asked: Vec<(Kind, bool)>,
    /// The compression table's entries, oldest first.
    table: Vec<(&'static str, &'static str)>,
    taken: u32,
}

fn put_frame(kind: u8, flags: u8, stream: u32, body: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&[length[1], length[2], length[3], kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(body);
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Every field of a protobuf message: number, and its value or its bytes' length.
fn fields(mut body: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    fn varint(body: &mut &[u8]) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let (byte, rest) = body.split_first()?;
            *body = rest;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }
    std::iter::from_fn(move || {
        let tag = varint(&mut body)?;
        let value = varint(&mut body)?;
        match tag & 7 {
            0 => {}
            2 => body = body.get(usize::try_from(value).ok()?..).unwrap_or_default(),
            _ => return None, // etcd's answers have no other wire types at this level
        }
        Some((tag >> 3, value))
    })
}

impl Etcd {
    fn put_header(&mut self, name: &'static str, value: &'static str, block: &mut Vec<u8>) {
        if let Some(place) = self.table.iter().position(|entry| *entry == (name, value)) {
            // An index below 127 is one byte, and there are a dozen entries.
            block.push(0x80 | (FIRST_DYNAMIC + self.table.len() - 1 - place) as u8);
            return;
        }
        self.table.push((name, value));
        block.push(0x40);
        for text in [name, value] {
            block.push(text.len() as u8); // all shorter than 127
            block.extend_from_slice(text.as_bytes());
        }
    }

    fn put_call(&mut self, path: &'static str, message: &[u8], out: &mut Vec<u8>) {
        let stream = self.last_stream.max(1) + if self.last_stream == 0 { 0 } else { 2 };
        self.last_stream = stream;
        let mut block = vec![0x83, 0x86]; // POST, http: entries of the static table
        self.put_header(":path", path, &mut block);
        self.put_header(":authority", "localhost", &mut block);
        self.put_header("content-type", "application/grpc", &mut block);
        self.put_header("te", "trailers", &mut block);
        put_frame(HEADERS, END_HEADERS, stream, &block, out);
        let mut body = vec![0]; // not compressed
        body.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend_from_slice(message);
        put_frame(DATA, END_STREAM, stream, &body, out);
    }

    fn index(&self, stream: u32) -> usize {
        (stream.wrapping_sub(self.batch_from) / 2) as usize
    }

    fn check(&mut self, stream: u32, body: &[u8]) -> Result<(), String> {
        let index = self.index(stream);
        let Some((kind, has_message)) = self.asked.get_mut(index) else {
            return Err(format!("answered on stream {stream}, which is not open"));
        };
        // A message may come in several frames; the first has the fields that matter unless it is shorter than its header.
        if *has_message || body.len() < 5 {
            return Ok(());
        }
        *has_message = true;
        let message = &body[5..];
        let says = |number| fields(message).any(|(field, value)| field == number && value > 0);
        let is_good = match kind {
            Kind::Create | Kind::Set => true,
            Kind::Get => says(2),     // a key-value pair
            Kind::Acquire => says(2), // succeeded
            Kind::Release => says(2), // deleted
        };
        if is_good { Ok(()) } else { Err(format!("{kind:?} was answered with a no")) }
    }
}

impl Wire for Etcd {
    fn hello(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend_from_slice(&WINDOW.to_be_bytes());
        put_frame(SETTINGS, 0, 0, &settings, out);
        put_frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes(), out);
    }

    fn begin(&mut self) {
        self.asked.clear();
        self.batch_from = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
    }

    fn put(&mut self, op: &Op<'_>, out: &mut Vec<u8>) {
        self.asked.push((op.kind, false));
        let name = name(op, "");
        let key = name.as_bytes();
        let mut message = Vec::with_capacity(64 + op.value.len());
        put_field(1, key, &mut message);
        match op.kind {
            Kind::Create | Kind::Set => {
                put_field(2, op.value, &mut message);
                self.put_call("/etcdserverpb.KV/Put", &message, out);
            }
            Kind::Get => self.put_call("/etcdserverpb.KV/Range", &message, out),
            Kind::Release => self.put_call("/etcdserverpb.KV/DeleteRange", &message, out),
            Kind::Acquire => {
                // compare { target: CREATE, key, create_revision: 0 (must be said: it is a oneof) } then put
                let mut compare = vec![0x10, 1];
                put_field(3, key, &mut compare);
                compare.extend_from_slice(&[0x28, 0]);
                put_field(2, b"holder", &mut message);
                let mut request = Vec::new();
                put_field(2, &message, &mut request);
                let mut txn = Vec::new();
                put_field(1, &compare, &mut txn);
                put_field(2, &request, &mut txn);
                self.put_call("/etcdserverpb.KV/Txn", &txn, out);
            }
        }
    }

    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, usize), String> {
        let (mut at, mut answers) = (0, 0);
        while let Some(header) = input.get(at..at + FRAME_HEADER) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let (kind, flags) = (header[3], header[4]);
            let stream = be32(header, 5).unwrap_or(0) & 0x7fff_ffff;
            let end = at + FRAME_HEADER + length as usize;
            let Some(body) = input.get(at + FRAME_HEADER..end) else { break };
            match kind {
                DATA => {
                    self.taken += length;
                    self.check(stream, body)?;
                }
                SETTINGS if flags & ACK == 0 => put_frame(SETTINGS, ACK, 0, &[], out),
                PING if flags & ACK == 0 => put_frame(PING, ACK, 0, body, out),
                // Behind the answer, when the server was so fast that it had not looked at the end of the request yet. That is no error.
                RST_STREAM if body == NO_ERROR => {}
                RST_STREAM | GOAWAY => return Err(format!("ended the stream or the connection: {body:?}")),
                _ => {}
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                match self.asked.get(self.index(stream)) {
                    Some((_, true)) => answers += 1,
                    _ => return Err("the call failed: its answer has no message".to_string()),
                }
            }
            at = end;
        }
        if self.taken > WINDOW / 4 {
            put_frame(WINDOW_UPDATE, 0, 0, &self.taken.to_be_bytes(), out);
            self.taken = 0;
        }
        Ok((at, answers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stream: u32, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut body = vec![0];
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
        put_frame(HEADERS, END_HEADERS, stream, &[0x88], &mut out);
        put_frame(DATA, 0, stream, &body, &mut out);
        put_frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88], &mut out);
        out
    }

    fn asked(kind: Kind) -> Etcd {
        let (mut wire, mut out) = (Etcd::default(), Vec::new());
        wire.begin();
        wire.put(&Op { kind, key: 1, value: b"v" }, &mut out);
        wire.put(&Op { kind, key: 2, value: b"v" }, &mut out);
        wire
    }

    #[test]
    fn a_call_is_answered_when_its_stream_ends_in_any_order_and_any_pieces() {
        let both = [answer(3, &[0x0a, 1, 9, 0x10, 1]), answer(1, &[0x0a, 1, 9, 0x10, 1])].concat();
        let (mut wire, mut out, mut input) = (asked(Kind::Acquire), Vec::new(), Vec::new());
        let mut answers = 0;
        for byte in both {
            input.push(byte);
            let (used, more) = wire.take(&input, &mut out).unwrap_or_else(|error| panic!("{error}"));
            input.drain(..used);
            answers += more;
        }
        assert_eq!((answers, input.len()), (2, 0));
    }

    #[test]
    fn a_no_and_a_call_without_a_message_are_errors() {
        let mut out = Vec::new();
        assert!(asked(Kind::Acquire).take(&answer(1, &[0x0a, 1, 9]), &mut out).is_err());
        assert!(asked(Kind::Get).take(&answer(1, &[0x0a, 1, 9]), &mut out).is_err());
        let mut failed = Vec::new();
        put_frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88], &mut failed);
        assert!(asked(Kind::Set).take(&failed, &mut out).is_err());
    }

    #[test]
    fn header_fields_are_sent_once_and_named_afterwards() {
        let (mut wire, mut first, mut second) = (Etcd::default(), Vec::new(), Vec::new());
        let op = Op { kind: Kind::Get, key: 1, value: b"v" };
        wire.put(&op, &mut first);
        wire.put(&op, &mut second);
        assert!(first.len() > second.len() + 60, "{} and {}", first.len(), second.len());
        assert_eq!(
            second[FRAME_HEADER..FRAME_HEADER + 6],
            [0x83, 0x86, 65 | 0x80, 64 | 0x80, 63 | 0x80, 62 | 0x80]
        );
    }
}
