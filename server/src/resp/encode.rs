//! Replies as bytes.

use bytes::{BufMut, BytesMut};

use super::number::DoubleText;

/// The protocol a connection speaks. Clients start with RESP2 and may change with HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Strings, errors, integers, arrays; everything else is expressed by these.
    #[default]
    Resp2,
    /// Adds null, booleans, doubles, big numbers, verbatim strings, maps, sets and pushes.
    Resp3,
}

/// Appends replies to a connection's output buffer.
///
/// Aggregates are written as a header with the number of elements; the elements are put after it. Nothing here
/// checks that they follow: replies are trees when they get here.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut BytesMut,
    protocol: Protocol,
}

impl<'a> Encoder<'a> {
    /// An encoder that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut BytesMut, protocol: Protocol) -> Self {
        Encoder { out, protocol }
    }

    /// The protocol replies are written in.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// `+OK`, the most frequent reply.
    #[inline]
    pub fn put_ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. CR and LF in it become spaces.
    pub fn put_simple(&mut self, text: &[u8]) {
        self.put_line(b'+', text);
    }

    /// An error with its prefix (`ERR …`, `WRONGTYPE …`), without the leading minus. CR and LF in it become spaces.
    pub fn put_error(&mut self, text: &[u8]) {
        self.put_line(b'-', text);
    }

    /// An integer.
    #[inline]
    pub fn put_integer(&mut self, value: i64) {
        self.put_number_line(b':', value);
    }

    /// A bulk string: any bytes.
    #[inline]
    pub fn put_bulk(&mut self, value: &[u8]) {
        self.out.reserve(value.len() + LINE_BYTES_MAX);
        self.put_length_line(b'$', value.len());
        self.out.put_slice(value);
        self.out.put_slice(CRLF);
    }

    /// The header of a bulk string. The caller sends `length` bytes after it, then [`put_bulk_end`]; so a large
    /// value can go to the socket without being copied into this buffer.
    ///
    /// [`put_bulk_end`]: Encoder::put_bulk_end
    pub fn put_bulk_header(&mut self, length: usize) {
        self.put_length_line(b'$', length);
    }

    /// What follows the bytes of a bulk string.
    pub fn put_bulk_end(&mut self) {
        self.out.extend_from_slice(CRLF);
    }

    /// The absent value: RESP2's null bulk string.
    pub fn put_null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The absent value where an array is expected (EXEC, BLPOP): RESP2 has a null of its own for it.
    pub fn put_null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The header of an array of `length` elements.
    #[inline]
    pub fn put_array(&mut self, length: usize) {
        self.put_length_line(b'*', length);
    }

    /// The header of a map of `pairs` pairs; keys and values follow in turns. RESP2: an array twice as long.
    pub fn put_map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.put_length_line(b'*', pairs.saturating_mul(2)),
            Protocol::Resp3 => self.put_length_line(b'%', pairs),
        }
    }

    /// The header of a set of `length` elements. RESP2: an array.
    pub fn put_set(&mut self, length: usize) {
        self.put_length_line(if self.protocol == Protocol::Resp2 { b'*' } else { b'~' }, length);
    }

    /// The header of a push (pub/sub message, invalidation) of `length` elements. RESP2: an array.
    pub fn put_push(&mut self, length: usize) {
        self.put_length_line(if self.protocol == Protocol::Resp2 { b'*' } else { b'>' }, length);
    }

    /// A double, formatted as Redis does. RESP2: a bulk string.
    pub fn put_double(&mut self, value: f64) {
        let text = DoubleText::new(value);
        match self.protocol {
            Protocol::Resp2 => self.put_bulk(text.as_bytes()),
            Protocol::Resp3 => self.put_line(b',', text.as_bytes()),
        }
    }

    /// A boolean. RESP2: the integer 1 or 0.
    pub fn put_boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
        });
    }

    /// Text with its format (`txt`, `mkd`). RESP2: a bulk string without the format.
    pub fn put_verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.put_bulk(text),
            Protocol::Resp3 => {
                self.out.reserve(text.len() + LINE_BYTES_MAX + 4);
                self.put_length_line(b'=', text.len() + 4);
                self.out.put_slice(&format);
                self.out.put_u8(b':');
                self.out.put_slice(text);
                self.out.put_slice(CRLF);
            }
        }
    }

    /// An integer of any size, given as its digits. RESP2: a bulk string.
    pub fn put_big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.put_bulk(digits),
            Protocol::Resp3 => self.put_line(b'(', digits),
        }
    }

    /// `kind`, text, line end; a line end inside the text would let its author forge replies.
    fn put_line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.put_u8(kind);
        let start = self.out.len();
        self.out.put_slice(text);
        for byte in self.out.iter_mut().skip(start) {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.put_slice(CRLF);
    }

    #[inline]
    fn put_length_line(&mut self, kind: u8, length: usize) {
        // Short lengths are by far the most frequent, and one copy of a known size is the fastest way to write.
        let digit = |value: usize| b'0' + (value % 10) as u8;
        match length {
            0..10 => self.out.extend_from_slice(&[kind, digit(length), b'\r', b'\n']),
            10..100 => self.out.extend_from_slice(&[kind, digit(length / 10), digit(length), b'\r', b'\n']),
            // An allocation never exceeds isize::MAX, so a real length always fits.
            _ => self.put_number_line(kind, i64::try_from(length).unwrap_or(i64::MAX)),
        }
    }

    #[inline]
    fn put_number_line(&mut self, kind: u8, value: i64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value).as_bytes();
        self.out.reserve(LINE_BYTES_MAX);
        self.out.put_u8(kind);
        self.out.put_slice(digits);
        self.out.put_slice(CRLF);
    }
}

const CRLF: &[u8] = b"\r\n";

/// Room for a line with a number (a kind, 20 characters, CR LF) and a closing CR LF.
const LINE_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    type Put = fn(&mut Encoder<'_>);

    #[test]
    fn shapes_in_both_protocols() {
        let cases: &[(Put, &str, &str)] = &[
            (|e| e.put_ok(), "+OK\r\n", "+OK\r\n"),
            (|e| e.put_simple(b"a\r\nb"), "+a  b\r\n", "+a  b\r\n"),
            (|e| e.put_error(b"ERR x\n+OK"), "-ERR x +OK\r\n", "-ERR x +OK\r\n"),
            (|e| e.put_integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            // Where redis-protocol writes a NUL byte too many.
            (|e| e.put_integer(999_999_999_999_999), ":999999999999999\r\n", ":999999999999999\r\n"),
            (|e| e.put_bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|e| e.put_bulk(b"0123456789\r\n"), "$12\r\n0123456789\r\n\r\n", "$12\r\n0123456789\r\n\r\n"),
            (|e| e.put_bulk_header(70_000), "$70000\r\n", "$70000\r\n"),
            (|e| e.put_null(), "$-1\r\n", "_\r\n"),
            (|e| e.put_null_array(), "*-1\r\n", "_\r\n"),
            (|e| e.put_array(3), "*3\r\n", "*3\r\n"),
            (|e| e.put_map(7), "*14\r\n", "%7\r\n"),
            (|e| e.put_set(10), "*10\r\n", "~10\r\n"),
            (|e| e.put_push(2), "*2\r\n", ">2\r\n"),
            (|e| e.put_double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|e| e.put_double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n"),
            (|e| e.put_boolean(true), ":1\r\n", "#t\r\n"),
            (|e| e.put_boolean(false), ":0\r\n", "#f\r\n"),
            (|e| e.put_verbatim(*b"txt", b"a\nb"), "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"),
            (
                |e| e.put_big_number(b"-12345678901234567890"),
                "$21\r\n-12345678901234567890\r\n",
                "(-12345678901234567890\r\n",
            ),
        ];
        for (put, resp2, resp3) in cases {
            for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
                let mut out = BytesMut::new();
                put(&mut Encoder::new(&mut out, protocol));
                assert_eq!(out.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
            }
        }
    }
}
