//! Lua's patterns, with every step counted: a pathological one uses up the script's work instead of the node's time.
//!
//! Written from the reference manual of Lua 5.1 (5.4.1) and the behaviour of Redis 7.0.

use super::call::Call;
use super::value::{Fault, Value};

const CAPTURES_MAX: usize = 32;
/// How deeply the items of a pattern may nest while they are tried.
const DEPTH_MAX: usize = 200;

/// How long a capture is.
#[derive(Clone, Copy, PartialEq)]
enum Span {
    Open,
    Position,
    Bytes(usize),
}

/// A pattern that is tried against a text.
pub(super) struct Matcher<'a, 'c> {
    call: &'a Call<'c>,
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, Span)>,
    depth: usize,
}

impl<'a, 'c> Matcher<'a, 'c> {
    pub(super) fn new(call: &'a Call<'c>, text: &'a [u8], pattern: &'a [u8]) -> Matcher<'a, 'c> {
        Matcher { call, text, pattern, captures: Vec::new(), depth: 0 }
    }

    /// Where a match that begins at `from` ends.
    pub(super) fn match_at(&mut self, from: usize) -> Result<Option<usize>, Fault> {
        self.captures.clear();
        self.depth = 0;
        self.try_at(from, 0)
    }

    /// The first match that begins at `from` or later: its beginning and end.
    pub(super) fn first_from(
        &mut self,
        from: usize,
        is_anchored: bool,
    ) -> Result<Option<(usize, usize)>, Fault> {
        let mut at = from;
        loop {
            if let Some(end) = self.match_at(at)? {
                return Ok(Some((at, end)));
            }
            at += 1;
            if is_anchored || at > self.text.len() {
                return Ok(None);
            }
        }
    }

    /// Whether the match captured something.
    pub(super) fn has_captures(&self) -> bool {
        !self.captures.is_empty()
    }

    /// What was captured; the whole match if the pattern captures nothing.
    pub(super) fn captured(&self, from: usize, to: usize) -> Result<Vec<Value>, Fault> {
        (0..self.captures.len().max(1)).map(|index| self.capture(index, from, to)).collect()
    }

    /// One capture, counted from 0; the whole match for the first if the pattern captures nothing.
    pub(super) fn capture(&self, index: usize, from: usize, to: usize) -> Result<Value, Fault> {
        match self.captures.get(index) {
            None if index == 0 => Ok(self.piece(from, to)),
            None => Err(Fault::text("invalid capture index")),
            Some((_, Span::Open)) => Err(Fault::text("unfinished capture")),
            Some((start, Span::Position)) => Ok(Value::Number(*start as f64 + 1.0)),
            Some((start, Span::Bytes(length))) => Ok(self.piece(*start, start + length)),
        }
    }

    /// A piece of the text, which is the first argument of every function that uses patterns.
    fn piece(&self, from: usize, to: usize) -> Value {
        if self.call.is_string(1) { Value::Piece(1, from, to) } else { Value::bytes(&self.text[from..to]) }
    }

    /// Where the item at `at` of the pattern ends.
    fn item_end(&self, at: usize) -> Result<usize, Fault> {
        let pattern = self.pattern;
        match pattern[at] {
            b'%' if at + 1 >= pattern.len() => Err(Fault::text("malformed pattern (ends with '%')")),
            b'%' => Ok(at + 2),
            b'[' => {
                let mut end = at + 1;
                if pattern.get(end) == Some(&b'^') {
                    end += 1;
                }
                let missing = || Fault::text("malformed pattern (missing ']')");
                // A closing bracket that comes first is an ordinary byte.
                loop {
                    let byte = *pattern.get(end).ok_or_else(missing)?;
                    end += 1;
                    if byte == b'%' {
                        pattern.get(end).ok_or_else(missing)?;
                        end += 1;
                    }
                    match pattern.get(end) {
                        Some(b']') => return Ok(end + 1),
                        Some(_) => {}
                        None => return Err(missing()),
                    }
                }
            }
            _ => Ok(at + 1),
        }
    }

    /// Whether the byte at `at` of the text is what the item `from..to` of the pattern asks for.
    fn fits(&self, at: usize, from: usize, to: usize) -> bool {
        let Some(&byte) = self.text.get(at) else { return false };
        match self.pattern[from] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[from + 1]),
            b'[' => in_set(byte, &self.pattern[from + 1..to - 1]),
            other => other == byte,
        }
    }

    fn try_at(&mut self, from: usize, item: usize) -> Result<Option<usize>, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::text("pattern too complex"));
        }
        let found = self.try_items(from, item);
        self.depth -= 1;
        found
    }

    fn try_items(&mut self, mut at: usize, mut item: usize) -> Result<Option<usize>, Fault> {
        loop {
            self.call.spend(1)?;
            let Some(&first) = self.pattern.get(item) else { return Ok(Some(at)) };
            let next = self.pattern.get(item + 1).copied();
            match (first, next) {
                (b'(', Some(b')')) => return self.open(at, item + 2, Span::Position),
                (b'(', _) => return self.open(at, item + 1, Span::Open),
                (b')', _) => return self.close(at, item + 1),
                (b'$', None) => return Ok(Some(at).filter(|at| *at == self.text.len())),
                (b'%', Some(b'b')) => match self.balance(at, item + 2)? {
                    Some(end) => {
                        at = end;
                        item += 4;
                    }
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    item += 2;
                    if self.pattern.get(item) != Some(&b'[') {
                        return Err(Fault::text("missing '[' after '%f' in pattern"));
                    }
                    let end = self.item_end(item)?;
                    self.call.spend((end - item) / 4)?;
                    let set = &self.pattern[item + 1..end - 1];
                    let before = at.checked_sub(1).map_or(0, |before| self.text[before]);
                    let here = self.text.get(at).copied().unwrap_or(0);
                    if in_set(before, set) || !in_set(here, set) {
                        return Ok(None);
                    }
                    item = end;
                }
                (b'%', Some(digit @ b'0'..=b'9')) => match self.again(at, digit)? {
                    Some(end) => {
                        at = end;
                        item += 2;
                    }
                    None => return Ok(None),
                },
                _ => {
                    let end = self.item_end(item)?;
                    // Sets are looked through from end to end.
                    self.call.spend((end - item) / 4)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.fits(at, item, end)
                                && let Some(found) = self.try_at(at + 1, end + 1)?
                            {
                                return Ok(Some(found));
                            }
                            item = end + 1;
                        }
                        Some(b'*') => return self.most(at, item, end, 0),
                        Some(b'+') => return self.most(at, item, end, 1),
                        Some(b'-') => return self.least(at, item, end),
                        _ if self.fits(at, item, end) => {
                            at += 1;
                            item = end;
                        }
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn open(&mut self, at: usize, item: usize, span: Span) -> Result<Option<usize>, Fault> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Fault::text("too many captures"));
        }
        let before = self.captures.len();
        self.captures.push((at, span));
        let found = self.try_at(at, item)?;
        if found.is_none() {
            self.captures.truncate(before);
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, item: usize) -> Result<Option<usize>, Fault> {
        let open = self.captures.iter().rposition(|(_, span)| *span == Span::Open);
        let open = open.ok_or_else(|| Fault::text("invalid pattern capture"))?;
        let start = self.captures[open].0;
        self.captures[open].1 = Span::Bytes(at - start);
        let found = self.try_at(at, item)?;
        if found.is_none()
            && let Some(capture) = self.captures.get_mut(open)
        {
            capture.1 = Span::Open;
        }
        Ok(found)
    }

    fn most(&mut self, at: usize, item: usize, end: usize, least: usize) -> Result<Option<usize>, Fault> {
        let mut count = 0;
        while self.fits(at + count, item, end) {
            count += 1;
            if count % 1024 == 0 {
                self.call.spend(1024 * (1 + (end - item) / 8))?;
            }
        }
        let paid = count / 1024 * 1024;
        self.call.spend((count - paid) * (1 + (end - item) / 8))?;
        loop {
            if count < least {
                return Ok(None);
            }
            if let Some(found) = self.try_at(at + count, end + 1)? {
                return Ok(Some(found));
            }
            let Some(fewer) = count.checked_sub(1) else { return Ok(None) };
            count = fewer;
        }
    }

    fn least(&mut self, mut at: usize, item: usize, end: usize) -> Result<Option<usize>, Fault> {
        loop {
            if let Some(found) = self.try_at(at, end + 1)? {
                return Ok(Some(found));
            }
            self.call.spend((end - item) / 8)?;
            if !self.fits(at, item, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    /// `%bxy`
    fn balance(&self, at: usize, item: usize) -> Result<Option<usize>, Fault> {
        let (Some(&open), Some(&close)) = (self.pattern.get(item), self.pattern.get(item + 1)) else {
            return Err(Fault::text("unbalanced pattern"));
        };
        if self.text.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (index, byte) in self.text.iter().enumerate().skip(at + 1) {
            self.call.spend(1)?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(index + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%1` … `%9`
    fn again(&self, at: usize, digit: u8) -> Result<Option<usize>, Fault> {
        let capture = digit.checked_sub(b'1').and_then(|index| self.captures.get(usize::from(index)));
        let Some((start, Span::Bytes(length))) = capture else {
            return Err(Fault::text("invalid capture index"));
        };
        self.call.spend_bytes(*length)?;
        let is_same = self.text[at..].starts_with(&self.text[*start..start + length]);
        Ok(is_same.then_some(at + length))
    }
}

/// Whether a byte is in a class such as `%a`; a letter that names none stands for itself.
fn in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

/// Whether a byte is in a set, given without its brackets.
fn in_set(byte: u8, set: &[u8]) -> bool {
    let (is_negated, mut rest) = match set {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_in = false;
    loop {
        rest = match rest {
            [] => return is_in != is_negated,
            [b'%', class, rest @ ..] => {
                is_in |= in_class(byte, *class);
                rest
            }
            [from, b'-', to, rest @ ..] => {
                is_in |= (*from..=*to).contains(&byte);
                rest
            }
            [one, rest @ ..] => {
                is_in |= *one == byte;
                rest
            }
        };
    }
}
