//! Inline commands: one line of text, as typed into telnet, with Redis's quoting.

use bytes::Bytes;

use super::error::ProtocolError;
use super::request::{Request, Spans};

/// Splits a line (without its line end) into arguments; `None` if it is blank.
///
/// * Blanks separate arguments, outside quotes.
/// * `"…"` knows `\n \r \t \b \a \xHH`; a backslash before any other byte gives that byte.
/// * `'…'` knows only `\'`.
/// * A quote may open inside an argument (`a"b c"` is one), but after a closing quote a blank must follow.
pub(super) fn split_line(line: &[u8]) -> Result<Option<Request>, ProtocolError> {
    // Unquoting never lengthens, so this is the only allocation for the bytes.
    let mut block = Vec::with_capacity(line.len());
    let mut spans = Spans::default();
    let mut rest = line;
    loop {
        rest = skip_blanks(rest);
        if rest.is_empty() {
            break;
        }
        let start = block.len();
        rest = take_argument(rest, &mut block)?;
        spans.push(start, block.len() - start);
    }
    let request = Request::new(Bytes::from(block), spans);
    Ok(if request.is_empty() { None } else { Some(request) })
}

/// Appends one argument to `block` and returns what follows it.
fn take_argument<'a>(mut rest: &'a [u8], block: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            // Vertical tab and form feed end nothing here, though they are skipped between arguments: so in Redis.
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok(rest),
            [b'"', quoted @ ..] => return take_double_quoted(quoted, block),
            [b'\'', quoted @ ..] => return take_single_quoted(quoted, block),
            [byte, after @ ..] => {
                block.push(*byte);
                rest = after;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], block: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', after @ ..] => return after_quote(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                block.push(hex_value(*high) << 4 | hex_value(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                block.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                block.push(*byte);
                after
            }
        }
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], block: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', after @ ..] => return after_quote(after),
            [b'\\', b'\'', after @ ..] => {
                block.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                block.push(*byte);
                after
            }
        }
    }
}

/// A closing quote ends the argument: anything but a blank after it is an error.
fn after_quote(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !is_blank(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn skip_blanks(mut rest: &[u8]) -> &[u8] {
    while let [byte, after @ ..] = rest
        && is_blank(*byte)
    {
        rest = after;
    }
    rest
}

/// C's `isspace`, which unlike Rust's `is_ascii_whitespace` includes the vertical tab.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// The value of a hexadecimal digit; the caller has checked that it is one.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of `line`, each as escaped text; or the error.
    fn split(line: &[u8]) -> Result<Vec<String>, ProtocolError> {
        let request = split_line(line)?;
        Ok(request.iter().flat_map(|r| r.iter()).map(|arg| arg.escape_ascii().to_string()).collect())
    }

    #[test]
    fn quoting_follows_redis() {
        let cases: &[(&[u8], &[&str])] = &[
            (b"", &[]),
            (b" \t\x0b\x0c\r ", &[]),
            (b"PING", &["PING"]),
            (b"  SET  a\tb \r", &["SET", "a", "b"]),
            (b"a\x0bb", &[r"a\x0bb"]),
            (b"\x0ba", &["a"]),
            (b"\"\" ''", &["", ""]),
            (br#""\n\r\t\b\a\\\"\q""#, &[r#"\n\r\t\x08\x07\\\"q"#]),
            (br#""\x41\xfF\x4g\x""#, &[r"A\xffx4gx"]),
            (br#"'\n\'\x41"'"#, &[r#"\\n\'\\x41\""#]),
            (br#"a"b c" d'e'"#, &["ab c", "de"]),
            (b"a\\nb", &[r"a\\nb"]),
            (b"\"a\"\x0b\"b\"", &["a", "b"]),
            (b"a\0b", &[r"a\x00b"]),
        ];
        for (line, expected) in cases {
            let expected = expected.iter().map(|arg| arg.to_string()).collect();
            assert_eq!(split(line), Ok(expected), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn unbalanced_quotes_are_errors() {
        let cases: &[&[u8]] = &[
            b"\"",
            b"'",
            b"\"a",
            b"'a",
            b"\"a\"b",
            b"'a'b",
            b"\"a\\\"",
            b"'a\\'",
            b"\"\\",
            b"''''",
            br#"a"b c"'d'"#,
        ];
        for line in cases {
            assert_eq!(split(line), Err(ProtocolError::UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }
}
