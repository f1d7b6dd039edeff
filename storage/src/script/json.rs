//! `cjson`: texts in JSON from values, and values from texts. Written from the behaviour of Redis 7.0.

use super::call::{Call, DEPTH_MAX};
use super::number;
use super::value::{Entry, Fault, Value};

pub(super) const ENTRIES: &[Entry] = &[
    ("cjson", "encode", |call| {
        if call.len() != 1 {
            return Err(Fault::argument(1, "expected 1 argument"));
        }
        let settings = call.room.with_job(|job| job.json).unwrap_or_default();
        let value = call.value(1)?;
        let mut out = Vec::new();
        encode(call, &settings, &value, &mut out, 0)?;
        Ok(vec![Value::Str(out.into())])
    }),
    ("cjson", "decode", |call| {
        if call.len() != 1 {
            return Err(Fault::argument(1, "expected 1 argument"));
        }
        let text = call.string(1)?;
        call.spend(text.len())?;
        let mut reader = Reader { call, text: &text, at: 0, depth: 0 };
        let value = reader.value()?;
        match reader.token() {
            (Token::End, _) => Ok(vec![value]),
            found => Err(reader.unexpected("the end", &found)),
        }
    }),
    ("cjson", "encode_sparse_array", |call| {
        let mut settings = call.room.with_job(|job| job.json).unwrap_or_default();
        if call.has(1) {
            settings.converts = call.truth(1);
        }
        settings.ratio = call.number_or(2, settings.ratio)?;
        settings.safe = call.number_or(3, settings.safe)?;
        call.room.with_job(|job| job.json = settings);
        Ok(vec![Value::Bool(settings.converts), Value::Number(settings.ratio), Value::Number(settings.safe)])
    }),
    ("cjson", "encode_number_precision", |call| {
        let mut settings = call.room.with_job(|job| job.json).unwrap_or_default();
        if call.has(1) {
            let digits = call.integer(1)?;
            if !(1..=14).contains(&digits) {
                return Err(Fault::argument(1, "expected integer between 1 and 14"));
            }
            settings.digits = digits as usize;
            call.room.with_job(|job| job.json = settings);
        }
        Ok(vec![Value::Number(settings.digits as f64)])
    }),
    // Settings that nobody changes: they say what holds.
    ("cjson", "encode_max_depth", |_| Ok(vec![Value::Number(DEPTH_MAX as f64)])),
    ("cjson", "decode_max_depth", |_| Ok(vec![Value::Number(DEPTH_MAX as f64)])),
    ("cjson", "encode_invalid_numbers", |_| Ok(vec![Value::Bool(false)])),
    ("cjson", "decode_invalid_numbers", |_| Ok(vec![Value::Bool(true)])),
    ("cjson", "encode_keep_buffer", |_| Ok(vec![Value::Bool(true)])),
];

/// What a script may change about encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// A list with too many holes becomes an object.
    converts: bool,
    ratio: f64,
    safe: f64,
    digits: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { converts: false, ratio: 2.0, safe: 10.0, digits: 14 }
    }
}

fn encode(
    call: &Call<'_>,
    settings: &Settings,
    value: &Value,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Fault> {
    call.spend(10)?;
    match value {
        Value::Nil | Value::Null => out.extend(b"null"),
        Value::Bool(true) => out.extend(b"true"),
        Value::Bool(false) => out.extend(b"false"),
        Value::Number(number) => encode_number(settings, *number, out)?,
        Value::Str(text) => {
            call.spend(text.len())?;
            encode_text(text, out);
        }
        Value::Map(pairs) => {
            if depth >= DEPTH_MAX {
                return Err(Fault::text(format!("Cannot serialise, excessive depth ({})", depth + 1)));
            }
            let length = list_length(settings, pairs)?;
            if length > 0.0 {
                encode_list(call, settings, pairs, length, out, depth + 1)?;
            } else {
                encode_object(call, settings, pairs, out, depth + 1)?;
            }
        }
        Value::Other("table") => {
            return Err(Fault::text(format!("Cannot serialise, excessive depth ({})", depth + 1)));
        }
        other => {
            return Err(Fault::text(format!("Cannot serialise {}: type not supported", other.type_name())));
        }
    }
    Ok(())
}

fn encode_number(settings: &Settings, number: f64, out: &mut Vec<u8>) -> Result<(), Fault> {
    if !number.is_finite() {
        return Err(Fault::text("Cannot serialise number: must not be NaN or Inf"));
    }
    out.extend(number::general(number, settings.digits, false).bytes());
    Ok(())
}

fn encode_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' => out.extend(b"\\\""),
            b'\\' => out.extend(b"\\\\"),
            b'/' => out.extend(b"\\/"),
            8 => out.extend(b"\\b"),
            12 => out.extend(b"\\f"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0..=31 | 127 => out.extend(format!("\\u{byte:04x}").bytes()),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The length of a table that is a list; 0 if it is none.
fn list_length(settings: &Settings, pairs: &[(Value, Value)]) -> Result<f64, Fault> {
    let mut length = 0.0_f64;
    for (key, _) in pairs {
        match key {
            Value::Number(index) if *index >= 1.0 && index.fract() == 0.0 => length = length.max(*index),
            _ => return Ok(0.0),
        }
    }
    let is_sparse =
        settings.ratio > 0.0 && length > pairs.len() as f64 * settings.ratio && length > settings.safe;
    match is_sparse {
        true if settings.converts => Ok(0.0),
        true => Err(Fault::text("Cannot serialise table: excessively sparse array")),
        false => Ok(length),
    }
}

fn encode_list(
    call: &Call<'_>,
    settings: &Settings,
    pairs: &[(Value, Value)],
    length: f64,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Fault> {
    // Not longer than twice the pairs, or ten.
    let mut items: Vec<&Value> = Vec::new();
    call.spend(length as usize)?;
    items.resize(length as usize, &Value::Nil);
    for (key, value) in pairs {
        if let Value::Number(index) = key
            && let Some(item) = items.get_mut(*index as usize - 1)
        {
            *item = value;
        }
    }
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode(call, settings, item, out, depth)?;
    }
    out.push(b']');
    Ok(())
}

fn encode_object(
    call: &Call<'_>,
    settings: &Settings,
    pairs: &[(Value, Value)],
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Fault> {
    out.push(b'{');
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match key {
            Value::Str(text) => {
                call.spend(text.len())?;
                encode_text(text, out);
            }
            Value::Number(number) => {
                call.spend(10)?;
                out.push(b'"');
                encode_number(settings, *number, out)?;
                out.push(b'"');
            }
            _ => return Err(Fault::text("Cannot serialise table: table key must be a number or string")),
        }
        out.push(b':');
        encode(call, settings, value, out, depth)?;
    }
    out.push(b'}');
    Ok(())
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Wrong(what) => what,
        }
    }
}

struct Reader<'a, 'c> {
    call: &'a Call<'c>,
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Reader<'_, '_> {
    /// The next token, and where it begins.
    fn token(&mut self) -> (Token, usize) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let start = self.at;
        let Some(&byte) = self.text.get(start) else { return (Token::End, start) };
        let rest = &self.text[start..];
        let (token, length) = match byte {
            b'{' => (Token::ObjectBegin, 1),
            b'}' => (Token::ObjectEnd, 1),
            b'[' => (Token::ArrayBegin, 1),
            b']' => (Token::ArrayEnd, 1),
            b':' => (Token::Colon, 1),
            b',' => (Token::Comma, 1),
            b'"' => return self.quoted(start),
            b'-' | b'0'..=b'9' => {
                let length = rest
                    .iter()
                    .take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
                    .count();
                let number = std::str::from_utf8(&rest[..length]).ok().and_then(|text| text.parse().ok());
                (number.map_or(Token::Wrong("invalid number"), Token::Number), length)
            }
            _ if rest.starts_with(b"true") => (Token::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (Token::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (Token::Null, 4),
            _ => (Token::Wrong("invalid token"), 1),
        };
        self.at += length;
        (token, start)
    }

    fn quoted(&mut self, start: usize) -> (Token, usize) {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return (Token::Wrong("unexpected end of string"), self.at);
            };
            let escape_at = self.at;
            self.at += 1;
            match byte {
                b'"' => return (Token::Text(out), start),
                b'\\' => {
                    let escape = self.text.get(self.at).copied().unwrap_or(0);
                    self.at += 1;
                    match escape {
                        b'"' | b'\\' | b'/' => out.push(escape),
                        b'b' => out.push(8),
                        b'f' => out.push(12),
                        b'n' => out.push(b'\n'),
                        b'r' => out.push(b'\r'),
                        b't' => out.push(b'\t'),
                        b'u' => match self.unicode() {
                            Some(letter) => out.extend(letter.to_string().bytes()),
                            None => return (Token::Wrong("invalid unicode escape code"), escape_at),
                        },
                        _ => return (Token::Wrong("invalid escape code"), escape_at),
                    }
                }
                byte => out.push(byte),
            }
        }
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        self.at += 4;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    fn unicode(&mut self) -> Option<char> {
        let first = self.hex4()?;
        if (0xD800..0xDC00).contains(&first) {
            if self.text.get(self.at..self.at + 2) != Some(b"\\u") {
                return None;
            }
            self.at += 2;
            let second = self.hex4()?.checked_sub(0xDC00).filter(|second| *second < 0x400)?;
            return char::from_u32(0x10000 + ((first - 0xD800) << 10) + second);
        }
        char::from_u32(first)
    }

    fn unexpected(&self, wanted: &str, (found, at): &(Token, usize)) -> Fault {
        Fault::text(format!("Expected {wanted} but found {} at character {}", found.name(), at + 1))
    }

    fn value(&mut self) -> Result<Value, Fault> {
        let token = self.token();
        self.value_of(token)
    }

    fn value_of(&mut self, token: (Token, usize)) -> Result<Value, Fault> {
        self.call.spend(16)?;
        Ok(match token.0 {
            Token::Text(text) => Value::Str(text.into()),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(truth) => Value::Bool(truth),
            Token::Null => Value::Null,
            Token::ArrayBegin => self.nested(Self::list)?,
            Token::ObjectBegin => self.nested(Self::object)?,
            _ => return Err(self.unexpected("value", &token)),
        })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Fault>) -> Result<Value, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::text(format!("Found too many nested data structures ({})", self.depth)));
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<Value, Fault> {
        let mut items = Vec::new();
        let mut token = self.token();
        if token.0 == Token::ArrayEnd {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value_of(token)?);
            match self.token() {
                (Token::ArrayEnd, _) => return Ok(Value::List(items)),
                (Token::Comma, _) => token = self.token(),
                found => return Err(self.unexpected("comma or array end", &found)),
            }
        }
    }

    fn object(&mut self) -> Result<Value, Fault> {
        let mut pairs = Vec::new();
        let mut token = self.token();
        if token.0 == Token::ObjectEnd {
            return Ok(Value::Map(pairs));
        }
        loop {
            let key = match token {
                (Token::Text(text), _) => Value::Str(text.into()),
                found => return Err(self.unexpected("object key string", &found)),
            };
            match self.token() {
                (Token::Colon, _) => {}
                found => return Err(self.unexpected("colon", &found)),
            }
            pairs.push((key, self.value()?));
            match self.token() {
                (Token::ObjectEnd, _) => return Ok(Value::Map(pairs)),
                (Token::Comma, _) => token = self.token(),
                found => return Err(self.unexpected("comma or object end", &found)),
            }
        }
    }
}
