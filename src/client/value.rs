//! A reply as a client sees it: RESP2 and RESP3, in the order in which it was sent.

use bytes::Bytes;
use std::fmt;

/// Replies nested deeper than this are nonsense.
const DEPTH_MAX: usize = 32;

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing (`_`, `$-1`, `*-1`).
    Nil,
    /// `+`.
    Simple(String),
    /// `-`, with its prefix.
    Error(String),
    /// `:`.
    Integer(i64),
    /// `,`, as it was written.
    Double(String),
    /// `#`.
    Boolean(bool),
    /// `(`.
    BigNumber(String),
    /// `$`, and `=` without its format.
    Bulk(Bytes),
    /// `*`.
    Array(Vec<Value>),
    /// `~`.
    Set(Vec<Value>),
    /// `>`.
    Push(Vec<Value>),
    /// `%`.
    Map(Vec<(Value, Value)>),
}

/// Bytes that are no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is not a Redis reply: {}", self.0)
    }
}

impl Value {
    /// The first reply in `bytes` and its length; nothing when it has not arrived whole.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        Ok(reader.value(0)?.map(|value| (value, reader.at)))
    }

    /// Text, number or error as text; nothing for the rest.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Value::Simple(text) | Value::Error(text) | Value::Double(text) | Value::BigNumber(text) => {
                Some(text.clone())
            }
            Value::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Value::Integer(number) => Some(number.to_string()),
            Value::Boolean(value) => Some(value.to_string()),
            Value::Nil | Value::Array(_) | Value::Set(_) | Value::Push(_) | Value::Map(_) => None,
        }
    }

    /// A number, also when it came as text.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            other => other.text()?.parse().ok(),
        }
    }

    /// The elements of an array, a set or a push; nothing for the rest.
    #[must_use]
    pub fn elements(&self) -> &[Value] {
        match self {
            Value::Array(all) | Value::Set(all) | Value::Push(all) => all,
            _ => &[],
        }
    }

    /// A field of a map, also when RESP2 sent it as a flat array.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        let is_it = |key: &Value| key.text().as_deref() == Some(name);
        match self {
            Value::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value),
            Value::Array(flat) => flat.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1]),
            _ => None,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Option<Value>, Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed("nested too deeply".to_string()));
        }
        let Some(line) = self.line()? else { return Ok(None) };
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| Malformed(format!("{line:?}")))?;
        let text = || rest.to_string();
        let value = match kind {
            "+" => Value::Simple(text()),
            "-" => Value::Error(text()),
            ":" => Value::Integer(number(&line, rest)?),
            "," => Value::Double(text()),
            "(" => Value::BigNumber(text()),
            "#" => Value::Boolean(rest == "t"),
            "_" => Value::Nil,
            "$" | "=" | "!" => return self.blob(&line, kind, rest),
            "*" | "~" | ">" => {
                let Some(count) = count(&line, rest)? else { return Ok(Some(Value::Nil)) };
                let Some(all) = self.all(count, depth)? else { return Ok(None) };
                match kind {
                    "*" => Value::Array(all),
                    "~" => Value::Set(all),
                    _ => Value::Push(all),
                }
            }
            "%" => {
                let pairs = count(&line, rest)?.unwrap_or(0);
                let Some(all) = self.all(pairs.saturating_mul(2), depth)? else { return Ok(None) };
                let mut all = all.into_iter();
                Value::Map(std::iter::from_fn(|| Some((all.next()?, all.next()?))).collect())
            }
            _ => return Err(Malformed(format!("{line:?}"))),
        };
        Ok(Some(value))
    }

    fn line(&mut self) -> Result<Option<String>, Malformed> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            return if rest.len() > 65_536 {
                Err(Malformed("a line without end".to_string()))
            } else {
                Ok(None)
            };
        };
        self.at += end + 2;
        Ok(Some(String::from_utf8_lossy(&rest[..end]).into_owned()))
    }

    fn blob(&mut self, line: &str, kind: &str, rest: &str) -> Result<Option<Value>, Malformed> {
        let Some(length) = count(line, rest)? else { return Ok(Some(Value::Nil)) };
        let Some(bytes) = self.bytes.get(self.at..self.at.saturating_add(length)) else { return Ok(None) };
        if self.bytes.len() < self.at + length + 2 {
            return Ok(None);
        }
        self.at += length + 2;
        Ok(Some(match kind {
            "=" => Value::Bulk(Bytes::copy_from_slice(bytes.get(4..).unwrap_or_default())),
            "!" => Value::Error(String::from_utf8_lossy(bytes).into_owned()),
            _ => Value::Bulk(Bytes::copy_from_slice(bytes)),
        }))
    }

    fn all(&mut self, count: usize, depth: usize) -> Result<Option<Vec<Value>>, Malformed> {
        let mut all = Vec::new();
        for _ in 0..count {
            match self.value(depth + 1)? {
                Some(value) => all.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }
}

fn number(line: &str, digits: &str) -> Result<i64, Malformed> {
    digits.parse().map_err(|_| Malformed(format!("{line:?}")))
}

/// A length; nothing for -1.
fn count(line: &str, digits: &str) -> Result<Option<usize>, Malformed> {
    match number(line, digits)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| Malformed(format!("{line:?}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Value {
        let (value, length) = Value::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        value
    }

    #[test]
    fn every_kind_is_read() {
        assert_eq!(parse("$-1\r\n"), Value::Nil);
        assert_eq!(parse("_\r\n"), Value::Nil);
        assert_eq!(parse("=6\r\ntxt:ab\r\n"), Value::Bulk(Bytes::from_static(b"ab")));
        let map = parse("%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n#t\r\n,1.5\r\n");
        assert_eq!(map.field("a"), Some(&Value::Integer(1)));
        assert_eq!(
            map.field("b").unwrap().elements(),
            [Value::Boolean(true), Value::Double("1.5".to_string())]
        );
        assert_eq!(parse("*2\r\n+a\r\n:1\r\n").field("a").unwrap().integer(), Some(1));
        assert_eq!(parse("-ERR no\r\n"), Value::Error("ERR no".to_string()));
    }

    #[test]
    fn a_part_of_a_reply_is_no_reply_yet() {
        let whole = b"*2\r\n$3\r\nabc\r\n%1\r\n+k\r\n:7\r\n";
        for end in 0..whole.len() {
            assert_eq!(Value::parse(&whole[..end]).unwrap(), None, "{end} bytes");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for nonsense in ["hello\r\n", "\r\n", "$x\r\n", "*-7\r\n", &"*1\r\n".repeat(40)] {
            assert!(Value::parse(nonsense.as_bytes()).is_err(), "{nonsense:?}");
        }
    }
}
