//! A reply for people (as redis-cli writes it), for pipes, and as JSON.

use super::Value;
use std::fmt::Write;

/// As redis-cli writes it on a terminal.
#[must_use]
pub fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write_pretty(value, "", &mut out);
    out
}

fn write_pretty(value: &Value, indent: &str, out: &mut String) {
    match value {
        Value::Nil => out.push_str("(nil)"),
        Value::Simple(text) => out.push_str(text),
        Value::Error(text) => drop(write!(out, "(error) {text}")),
        Value::Integer(number) => drop(write!(out, "(integer) {number}")),
        Value::Double(text) => drop(write!(out, "(double) {text}")),
        Value::BigNumber(text) => drop(write!(out, "(big number) {text}")),
        Value::Boolean(value) => out.push_str(if *value { "(true)" } else { "(false)" }),
        Value::Bulk(bytes) => out.push_str(&quoted(bytes)),
        Value::Array(all) | Value::Push(all) => write_all(all, ')', "(empty array)", indent, out),
        Value::Set(all) => write_all(all, '~', "(empty set)", indent, out),
        Value::Map(pairs) if pairs.is_empty() => out.push_str("(empty hash)"),
        Value::Map(pairs) => {
            let width = pairs.len().to_string().len();
            for (index, (key, value)) in pairs.iter().enumerate() {
                let head = format!("{:>width$}# ", index + 1);
                lead(index, indent, &head, out);
                let inner = format!("{indent}{}", " ".repeat(head.len()));
                write_pretty(key, &inner, out);
                out.push_str(" => ");
                write_pretty(value, &inner, out);
            }
        }
    }
}

fn write_all(all: &[Value], mark: char, empty: &str, indent: &str, out: &mut String) {
    if all.is_empty() {
        out.push_str(empty);
    }
    let width = all.len().to_string().len();
    for (index, value) in all.iter().enumerate() {
        let head = format!("{:>width$}{mark} ", index + 1);
        lead(index, indent, &head, out);
        write_pretty(value, &format!("{indent}{}", " ".repeat(head.len())), out);
    }
}

fn lead(index: usize, indent: &str, head: &str, out: &mut String) {
    if index > 0 {
        out.push('\n');
        out.push_str(indent);
    }
    out.push_str(head);
}

/// A string in quotes, with everything that is not printable escaped.
#[must_use]
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => drop(write!(out, "\\{}", char::from(*byte))),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x20..=0x7e => out.push(char::from(*byte)),
            other => drop(write!(out, "\\x{other:02x}")),
        }
    }
    out.push('"');
    out
}

/// Bare, a line each, as redis-cli writes it into a pipe.
#[must_use]
pub fn raw(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_raw(value, &mut out);
    out
}

fn write_raw(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bulk(bytes) => out.extend_from_slice(bytes),
        Value::Array(all) | Value::Set(all) | Value::Push(all) => {
            for (index, value) in all.iter().enumerate() {
                if index > 0 {
                    out.push(b'\n');
                }
                write_raw(value, out);
            }
        }
        Value::Map(pairs) => {
            for (index, (key, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.push(b'\n');
                }
                write_raw(key, out);
                out.push(b' ');
                write_raw(value, out);
            }
        }
        other => out.extend_from_slice(other.text().unwrap_or_default().as_bytes()),
    }
}

/// As JSON. Strings that are not UTF-8 keep their bytes as `\u00XX`.
#[must_use]
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Nil => out.push_str("null"),
        Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Integer(number) => drop(write!(out, "{number}")),
        Value::Double(text) if text.parse::<f64>().is_ok_and(f64::is_finite) => out.push_str(text),
        Value::Double(text) | Value::BigNumber(text) | Value::Simple(text) => json_text(text.as_bytes(), out),
        Value::Error(text) => {
            out.push_str("{\"error\":");
            json_text(text.as_bytes(), out);
            out.push('}');
        }
        Value::Bulk(bytes) => json_text(bytes, out),
        Value::Array(all) | Value::Set(all) | Value::Push(all) => {
            out.push('[');
            for (index, value) in all.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(value, out);
            }
            out.push(']');
        }
        Value::Map(pairs) => {
            out.push('{');
            for (index, (key, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                match key.text() {
                    Some(text) => json_text(text.as_bytes(), out),
                    None => json_text(json(key).as_bytes(), out),
                }
                out.push(':');
                write_json(value, out);
            }
            out.push('}');
        }
    }
}

fn json_text(bytes: &[u8], out: &mut String) {
    out.push('"');
    let mut write = |character: char| match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        control if control < ' ' => drop(write!(out, "\\u{:04x}", control as u32)),
        other => out.push(other),
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().for_each(&mut write),
        Err(_) => bytes.iter().for_each(|byte| write(char::from(*byte))),
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn bulk(text: &'static str) -> Value {
        Value::Bulk(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn nested_replies_are_indented_as_redis_cli_does() {
        let value = Value::Array(vec![
            bulk("a\"b"),
            Value::Array(vec![Value::Integer(1), Value::Nil]),
            Value::Map(vec![(bulk("k"), Value::Array(vec![bulk("x"), bulk("y")]))]),
        ]);
        let expected =
            "1) \"a\\\"b\"\n2) 1) (integer) 1\n   2) (nil)\n3) 1# \"k\" => 1) \"x\"\n      2) \"y\"";
        assert_eq!(pretty(&value), expected);
    }

    #[test]
    fn json_keeps_types_and_bytes() {
        let value = Value::Map(vec![
            (bulk("a"), Value::Double("1.5".to_string())),
            (bulk("b"), Value::Double("inf".to_string())),
            (bulk("c"), Value::Bulk(Bytes::from_static(b"\xff\n"))),
            (bulk("d"), Value::Error("ERR no".to_string())),
        ]);
        assert_eq!(
            json(&value),
            "{\"a\":1.5,\"b\":\"inf\",\"c\":\"\u{ff}\\n\",\"d\":{\"error\":\"ERR no\"}}"
        );
    }

    #[test]
    fn a_pipe_gets_bare_lines() {
        assert_eq!(raw(&Value::Array(vec![bulk("a"), Value::Integer(2)])), b"a\n2");
        assert_eq!(raw(&Value::Nil), b"");
    }
}
