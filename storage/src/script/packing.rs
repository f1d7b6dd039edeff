//! `struct`: numbers and texts as bytes, by a format.
//!
//! `>` `<` `=` choose the order of bytes, `!n` the alignment; `b` `B` `h` `H` `l` `L` `T` `i`n `I`n are integers (1, 2, 8, 8 and n or 4 bytes), `f` `d`
//! floating-point numbers, `s` a text that ends with a zero byte, `c`n one of n bytes (`c0`: of the number before it), `x` a byte of nothing.

use super::call::Call;
use super::outcome::to_integer;
use super::value::{Entry, Fault, Value};

pub(super) const ENTRIES: &[Entry] = &[
    ("struct", "pack", pack),
    ("struct", "unpack", unpack),
    ("struct", "size", |call| {
        let format = call.string(1)?;
        call.spend(format.len())?;
        let mut reader = Reader::new(&format);
        let mut size = 0_usize;
        while let Some(item) = reader.next()? {
            size += reader.padding(&item, size)?;
            size = match item.kind {
                Kind::Text => return Err(Fault::argument(1, "variable-size format for string")),
                Kind::Bytes if item.size == 0 => {
                    return Err(Fault::argument(1, "variable-length format for string"));
                }
                _ => size.saturating_add(item.size),
            };
            if size > i32::MAX as usize {
                return Err(Fault::argument(1, "item size out of range"));
            }
        }
        Ok(vec![Value::Number(size as f64)])
    }),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Signed,
    Unsigned,
    Float,
    Double,
    Text,
    Bytes,
    Nothing,
}

struct Item {
    kind: Kind,
    size: usize,
}

struct Reader<'f> {
    rest: &'f [u8],
    is_little: bool,
    align: usize,
}

impl<'f> Reader<'f> {
    fn new(format: &'f [u8]) -> Reader<'f> {
        Reader { rest: format, is_little: true, align: 1 }
    }

    fn number(&mut self) -> Result<Option<usize>, Fault> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, behind) = self.rest.split_at(digits);
        self.rest = behind;
        if digits == 0 {
            return Ok(None);
        }
        let number = std::str::from_utf8(number).ok().and_then(|text| text.parse::<i32>().ok());
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.map(Some).ok_or_else(|| Fault::text("integral size overflow"))
    }

    fn integer_size(&mut self) -> Result<usize, Fault> {
        match self.number()? {
            None => Ok(4),
            Some(size) if size <= 32 => Ok(size),
            Some(size) => Err(Fault::text(format!("integral size {size} is larger than limit of 32"))),
        }
    }

    /// The next item; what only changes settings is done on the way.
    fn next(&mut self) -> Result<Option<Item>, Fault> {
        loop {
            let Some((&letter, behind)) = self.rest.split_first() else { return Ok(None) };
            self.rest = behind;
            let item = |kind, size| Ok(Some(Item { kind, size }));
            return match letter {
                b'b' => item(Kind::Signed, 1),
                b'B' => item(Kind::Unsigned, 1),
                b'h' => item(Kind::Signed, 2),
                b'H' => item(Kind::Unsigned, 2),
                b'l' => item(Kind::Signed, 8),
                b'L' | b'T' => item(Kind::Unsigned, 8),
                b'i' => {
                    let size = self.integer_size()?;
                    item(Kind::Signed, size)
                }
                b'I' => {
                    let size = self.integer_size()?;
                    item(Kind::Unsigned, size)
                }
                b'f' => item(Kind::Float, 4),
                b'd' => item(Kind::Double, 8),
                b's' => item(Kind::Text, 0),
                b'x' => item(Kind::Nothing, 1),
                b'c' => {
                    let size = self.number()?.unwrap_or(1);
                    item(Kind::Bytes, size)
                }
                b' ' => continue,
                b'>' => {
                    self.is_little = false;
                    continue;
                }
                b'<' | b'=' => {
                    self.is_little = true;
                    continue;
                }
                b'!' => {
                    let align = self.number()?.unwrap_or(8);
                    if !align.is_power_of_two() {
                        return Err(Fault::text("alignment is not a power of 2"));
                    }
                    self.align = align;
                    continue;
                }
                other => Err(Fault::text(format!("invalid format option '{}'", char::from(other)))),
            };
        }
    }

    /// Bytes before an item, so that it lies at a multiple of its size.
    fn padding(&self, item: &Item, at: usize) -> Result<usize, Fault> {
        if matches!(item.kind, Kind::Bytes | Kind::Text | Kind::Nothing) {
            return Ok(0);
        }
        let align = item.size.min(self.align);
        if align <= 1 {
            return Ok(0);
        }
        if !align.is_power_of_two() {
            return Err(Fault::text("alignment is not a power of 2"));
        }
        Ok(at.next_multiple_of(align) - at)
    }
}

fn pack(call: &mut Call<'_>) -> Result<Vec<Value>, Fault> {
    let format = call.string(1)?;
    call.spend(format.len())?;
    let mut reader = Reader::new(&format);
    let mut out = Vec::new();
    let mut at = 2;
    while let Some(item) = reader.next()? {
        out.resize(out.len() + reader.padding(&item, out.len())?, 0);
        match item.kind {
            Kind::Nothing => {
                out.push(0);
                continue;
            }
            Kind::Signed | Kind::Unsigned => {
                let number = to_integer(call.number(at)?);
                // Longer than 8 bytes: the sign goes on.
                let fill = if number < 0 { 0xFF } else { 0 };
                let mut bytes = vec![fill; item.size];
                bytes.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
                put(&mut out, bytes, reader.is_little);
            }
            // The cast rounds, as in C.
            Kind::Float => put(&mut out, (call.number(at)? as f32).to_le_bytes().to_vec(), reader.is_little),
            Kind::Double => put(&mut out, call.number(at)?.to_le_bytes().to_vec(), reader.is_little),
            Kind::Text | Kind::Bytes => {
                let text = call.string(at)?;
                let length = if item.kind == Kind::Bytes && item.size > 0 { item.size } else { text.len() };
                let Some(part) = text.get(..length) else {
                    return Err(Fault::argument(at, "string too short"));
                };
                call.spend_bytes(length)?;
                out.extend_from_slice(part);
                if item.kind == Kind::Text {
                    out.push(0);
                }
            }
        }
        at += 1;
    }
    Ok(vec![Value::Str(out.into())])
}

fn put(out: &mut Vec<u8>, mut bytes: Vec<u8>, is_little: bool) {
    if !is_little {
        bytes.reverse();
    }
    out.extend(bytes);
}

fn unpack(call: &mut Call<'_>) -> Result<Vec<Value>, Fault> {
    let (format, data) = (call.string(1)?, call.string(2)?);
    call.spend(format.len())?;
    let mut at = match call.integer_or(3, 1)? {
        first @ 1.. => usize::try_from(first - 1).unwrap_or(usize::MAX),
        _ => return Err(Fault::argument(3, "offset must be 1 or greater")),
    };
    let mut reader = Reader::new(&format);
    let mut values: Vec<Value> = Vec::new();
    let short = || Fault::argument(2, "data string too short");
    while let Some(item) = reader.next()? {
        at = at.saturating_add(reader.padding(&item, at)?);
        let rest = data.get(at..).ok_or_else(short)?;
        let size = match (item.kind, item.size) {
            (Kind::Text, _) => {
                let end = rest.iter().position(|byte| *byte == 0);
                call.spend_bytes(end.unwrap_or(rest.len()))?;
                end.ok_or_else(|| Fault::argument(2, "unfinished string in data"))?
            }
            (Kind::Bytes, 0) => match values.pop() {
                Some(Value::Number(length)) if length >= 0.0 => length as usize,
                _ => return Err(Fault::text("format 'c0' needs a previous size")),
            },
            (_, size) => size,
        };
        let bytes = rest.get(..size).ok_or_else(short)?;
        call.spend_bytes(size)?;
        let mut ordered = bytes.to_vec();
        if !reader.is_little && !matches!(item.kind, Kind::Text | Kind::Bytes) {
            ordered.reverse();
        }
        let first8 = |fill: u8| {
            let mut wide = [fill; 8];
            wide.iter_mut().zip(&ordered).for_each(|(to, from)| *to = *from);
            wide
        };
        at += size;
        match item.kind {
            Kind::Nothing => continue,
            Kind::Signed => {
                let is_negative = ordered.last().is_some_and(|byte| byte & 0x80 != 0);
                let fill = if is_negative { 0xFF } else { 0 };
                values.push(Value::Number(i64::from_le_bytes(first8(fill)) as f64));
            }
            Kind::Unsigned => values.push(Value::Number(u64::from_le_bytes(first8(0)) as f64)),
            Kind::Float => {
                let bits = u64::from_le_bytes(first8(0)) as u32;
                values.push(Value::Number(f64::from(f32::from_bits(bits))));
            }
            Kind::Double => values.push(Value::Number(f64::from_le_bytes(first8(0)))),
            Kind::Bytes => values.push(Value::bytes(bytes)),
            Kind::Text => {
                values.push(Value::bytes(bytes));
                at += 1;
            }
        }
        if values.len() > 4000 {
            return Err(Fault::text("too many results"));
        }
    }
    values.push(Value::Number(at as f64 + 1.0));
    Ok(values)
}
