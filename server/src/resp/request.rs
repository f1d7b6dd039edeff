//! One request: its arguments, in one block of memory.

use std::fmt;

use bytes::Bytes;

/// Where an argument lies in its request. 32 bits suffice: the parser caps a request at 4 GiB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

/// Arguments up to this number cost no allocation of their own; it covers nearly every command.
const SPANS_INLINE: usize = 8;

/// A growing list of spans. The first few live in the value itself.
#[derive(Clone, Debug)]
pub(super) enum Spans {
    Few { spans: [Span; SPANS_INLINE], count: usize },
    Many(Vec<Span>),
}

impl Default for Spans {
    fn default() -> Self {
        Spans::Few { spans: [Span::default(); SPANS_INLINE], count: 0 }
    }
}

impl Spans {
    /// Appends the span `start..start + length`; the caller has checked that it ends below 4 GiB.
    #[inline]
    pub(super) fn push(&mut self, start: usize, length: usize) {
        let span = Span { start: start as u32, end: (start + length) as u32 };
        match self {
            Spans::Few { spans, count } => match spans.get_mut(*count) {
                Some(free) => {
                    *free = span;
                    *count += 1;
                }
                None => {
                    let mut many = Vec::with_capacity(SPANS_INLINE * 2);
                    many.extend_from_slice(spans);
                    many.push(span);
                    *self = Spans::Many(many);
                }
            },
            Spans::Many(many) => many.push(span),
        }
    }

    #[inline]
    fn as_slice(&self) -> &[Span] {
        match self {
            Spans::Few { spans, count } => spans.get(..*count).unwrap_or_default(),
            Spans::Many(many) => many,
        }
    }
}

/// A complete request: the command's name and its arguments.
///
/// All arguments share one block, so that a request costs one allocation and a clone of an argument costs none.
/// A small request owns a block of its own size; a large one owns the block it was read into.
#[derive(Clone)]
pub struct Request {
    block: Bytes,
    spans: Spans,
}

impl Request {
    pub(super) fn new(block: Bytes, spans: Spans) -> Self {
        Request { block, spans }
    }

    /// The command's name as the client wrote it.
    #[inline]
    pub fn name(&self) -> &[u8] {
        self.arg(0).unwrap_or_default()
    }

    /// The number of arguments, the name included. Never zero in a request that came from a parser.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.as_slice().len()
    }

    /// Whether there is not even a name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The argument at `index`; 0 is the name.
    #[inline]
    pub fn arg(&self, index: usize) -> Option<&[u8]> {
        let span = self.spans.as_slice().get(index)?;
        self.block.get(span.start as usize..span.end as usize)
    }

    /// The argument at `index` without a copy. It keeps the whole request's block alive.
    pub fn arg_bytes(&self, index: usize) -> Option<Bytes> {
        self.arg(index).map(|arg| self.block.slice_ref(arg))
    }

    /// All arguments in order, starting with the name.
    pub fn iter(&self) -> Arguments<'_> {
        Arguments { block: &self.block, spans: self.spans.as_slice().iter() }
    }

    /// Bytes of memory this request keeps, for the accounting of a connection.
    pub fn bytes_held(&self) -> usize {
        let spans = match &self.spans {
            Spans::Few { .. } => 0,
            Spans::Many(many) => many.capacity() * size_of::<Span>(),
        };
        size_of::<Self>() + self.block.len() + spans
    }
}

impl<'a> IntoIterator for &'a Request {
    type Item = &'a [u8];
    type IntoIter = Arguments<'a>;

    fn into_iter(self) -> Arguments<'a> {
        self.iter()
    }
}

impl fmt::Debug for Request {
    /// Shows the arguments cut short: a log line must not carry 64 MB, and lossy text is enough to recognise them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_ARGUMENTS: usize = 16;
        const SHOWN_BYTES: usize = 64;
        let mut list = f.debug_list();
        for arg in self.iter().take(SHOWN_ARGUMENTS) {
            let shown = arg.get(..SHOWN_BYTES).unwrap_or(arg);
            list.entry(&format_args!("\"{}\"({})", shown.escape_ascii(), arg.len()));
        }
        if self.len() > SHOWN_ARGUMENTS {
            list.entry(&format_args!("and {} more", self.len() - SHOWN_ARGUMENTS));
        }
        list.finish()
    }
}

/// Iterator over the arguments of a [`Request`].
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    block: &'a [u8],
    spans: std::slice::Iter<'a, Span>,
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let span = self.spans.next()?;
        self.block.get(span.start as usize..span.end as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl ExactSizeIterator for Arguments<'_> {}
