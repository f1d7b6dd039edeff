//! Bytes that live in place when they are few.

use bytes::Bytes;
use std::fmt;

/// How many bytes fit in place. With this number the type is as large as a [`Bytes`]: 32 bytes.
const INLINE_BYTES_MAX: usize = 23;

/// Lengths of in-place bytes from here on are marks (see [`SmallBytes::mark`]), not lengths.
const MARK: u8 = 0x80;

/// Immutable bytes, in place up to 23 of them, else shared on the heap. Cloning never copies a long value.
#[derive(Clone)]
pub struct SmallBytes(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, data: [u8; INLINE_BYTES_MAX] },
    Heap(Bytes),
}

impl SmallBytes {
    /// No bytes.
    pub const EMPTY: SmallBytes = SmallBytes(Repr::Inline { len: 0, data: [0; INLINE_BYTES_MAX] });

    /// A copy of `bytes`.
    #[inline]
    #[must_use]
    pub fn new(bytes: &[u8]) -> SmallBytes {
        SmallBytes::concat(&[bytes])
    }

    /// A copy of all `parts`, one after the other.
    #[inline]
    #[must_use]
    pub fn concat(parts: &[&[u8]]) -> SmallBytes {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total <= INLINE_BYTES_MAX {
            let mut data = [0; INLINE_BYTES_MAX];
            let mut at = 0;
            for part in parts {
                data[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            // The cast is exact: total is at most 23.
            SmallBytes(Repr::Inline { len: total as u8, data })
        } else {
            let mut joined = Vec::with_capacity(total);
            parts.iter().for_each(|part| joined.extend_from_slice(part));
            SmallBytes(Repr::Heap(joined.into()))
        }
    }

    /// No bytes, but with a number that tells it apart from other empty ones. Keys shorter than their head use it.
    pub(super) const fn mark(number: u8) -> SmallBytes {
        assert!(number < MARK);
        SmallBytes(Repr::Inline { len: MARK | number, data: [0; INLINE_BYTES_MAX] })
    }

    /// Stands for a row that is removed, where layers of changes lie over each other. It has no bytes, but is not the empty value.
    pub(crate) const GONE: SmallBytes = SmallBytes::mark(1);

    /// Whether it is [`SmallBytes::GONE`].
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.marked().is_some()
    }

    /// The number given to [`SmallBytes::mark`].
    #[inline]
    pub(super) fn marked(&self) -> Option<u8> {
        match self.0 {
            Repr::Inline { len, .. } if len >= MARK => Some(len & !MARK),
            _ => None,
        }
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, data } if *len < MARK => &data[..usize::from(*len)],
            Repr::Inline { .. } => &[],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// The bytes from `from` on: shared when they are on the heap, copied when they are in place.
    ///
    /// Long values are never copied here, so a reply costs the same for one byte and for a megabyte.
    #[must_use]
    pub fn bytes_from(&self, from: usize) -> Bytes {
        match &self.0 {
            Repr::Heap(bytes) => bytes.slice(from.min(bytes.len())..),
            Repr::Inline { .. } => Bytes::copy_from_slice(self.as_slice().get(from..).unwrap_or_default()),
        }
    }

    /// How much heap the bytes hold beside their 32 bytes in place.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Heap(bytes) => bytes.len(),
            Repr::Inline { .. } => 0,
        }
    }
}

impl Default for SmallBytes {
    fn default() -> SmallBytes {
        SmallBytes::EMPTY
    }
}

impl From<Bytes> for SmallBytes {
    fn from(bytes: Bytes) -> SmallBytes {
        if bytes.len() <= INLINE_BYTES_MAX { SmallBytes::new(&bytes) } else { SmallBytes(Repr::Heap(bytes)) }
    }
}

impl std::ops::Deref for SmallBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for SmallBytes {
    fn eq(&self, other: &SmallBytes) -> bool {
        self.marked() == other.marked() && self.as_slice() == other.as_slice()
    }
}

impl Eq for SmallBytes {}

impl fmt::Debug for SmallBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.as_slice().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_as_small_as_bytes() {
        assert_eq!(size_of::<SmallBytes>(), 32);
    }

    #[test]
    fn keeps_bytes_of_any_length() {
        for length in [0, 1, 22, 23, 24, 25, 1000] {
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let small = SmallBytes::new(&bytes);
            assert_eq!(small.as_slice(), bytes);
            assert_eq!(SmallBytes::from(Bytes::from(bytes.clone())), small);
            assert_eq!(SmallBytes::concat(&[&bytes[..length / 2], &bytes[length / 2..]]), small);
            assert_eq!(small.bytes_from(1), bytes.get(1..).unwrap_or_default());
            assert_eq!(small.bytes_from(length + 1), Bytes::new());
            assert_eq!(small.heap_bytes(), if length > 23 { length } else { 0 });
        }
    }
}
