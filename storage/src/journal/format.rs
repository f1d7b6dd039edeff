//! The bytes of the journal's files: names, the segment header, the frame around each record.
//!
//! Pure functions over byte slices; the layout is drawn in the module documentation of [`journal`](super).
//!
//! Invariant F1: a frame is valid only in the segment and at the offset for which it was encoded. Its checksum starts from
//! a seed made of directory id and segment number, then covers the offset. CRC32C finds every difference within 32 adjacent
//! bits, so two segment numbers never share a seed, and what a recycled file still holds of its former life never passes
//! (certain, not merely likely).

use std::ops::Range;

/// First bytes of each segment file.
pub(super) const MAGIC: [u8; 8] = *b"WARLOCKJ";
/// Version of the layout below. Magic, version and header checksum stay where they are in every version, so that an older
/// or newer file is told apart from a damaged one.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Length of the segment header; the first frame starts here.
pub(super) const HEADER_BYTES: u32 = 64;
/// Length of a frame without its payload.
pub(super) const FRAME_BYTES: u32 = 16;
/// Name of the file that carries the exclusive lock.
pub(super) const LOCK_NAME: &str = "lock";

const SEGMENT_PREFIX: &str = "segment-";
const SPARE_PREFIX: &str = "spare-";
const PREPARING_PREFIX: &str = "preparing-";
const HEADER_CHECKSUM_AT: usize = 60;

/// Why a segment was started, which decides whether a replay may begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentKind {
    /// The first segment of the journal: nothing came before it.
    Origin = 1,
    /// Goes on where the previous segment ended.
    Continuation = 2,
    /// Begins with a checkpoint; a replay may begin here if the checkpoint is complete.
    Checkpoint = 3,
}

/// What a segment says about itself. Durable before the file gets its name, never changed afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: SegmentKind,
    pub(super) id: [u8; 16],
    pub(super) number: u64,
    /// Length of the file in bytes.
    pub(super) capacity: u32,
    /// Where the frames of the previous segment end, all of them synced before this segment got its name; 0 for the origin.
    pub(super) previous_end: u32,
}

/// Why 64 bytes are not a header of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// Wrong magic, checksum or field; the text says which.
    Damaged(&'static str),
    /// An intact header of another format.
    Version(u32),
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.previous_end.to_le_bytes());
        seal_header(&mut bytes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Header, HeaderError> {
        if bytes[0..8] != MAGIC {
            return Err(HeaderError::Damaged(
                "the file does not begin with the magic bytes of a journal segment",
            ));
        }
        if read_u32(bytes, HEADER_CHECKSUM_AT) != crc32c::crc32c(&bytes[..HEADER_CHECKSUM_AT]) {
            return Err(HeaderError::Damaged("the checksum of the segment header does not match"));
        }
        let version = read_u32(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(HeaderError::Version(version));
        }
        let kind = match read_u32(bytes, 12) {
            1 => SegmentKind::Origin,
            2 => SegmentKind::Continuation,
            3 => SegmentKind::Checkpoint,
            _ => return Err(HeaderError::Damaged("the segment header has an unknown kind")),
        };
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        let number = u64::from(read_u32(bytes, 32)) | u64::from(read_u32(bytes, 36)) << 32;
        Ok(Header { kind, id, number, capacity: read_u32(bytes, 40), previous_end: read_u32(bytes, 44) })
    }
}

/// Puts the checksum into an encoded header. Apart from `encode`, so that a test can forge another version.
pub(super) fn seal_header(bytes: &mut [u8; HEADER_BYTES as usize]) {
    let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM_AT]);
    bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A record of an appended batch.
    Record = 1,
    /// A live record of a checkpoint.
    CheckpointRecord = 2,
    /// The checkpoint is complete; the payload is the number of its records (u64).
    CheckpointEnd = 3,
    /// No record; proves by its `write_start` that everything before it was synced.
    Barrier = 4,
    /// The next segment exists: its name was durable before this frame was written.
    Seal = 5,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        match byte {
            1 => Some(FrameKind::Record),
            2 => Some(FrameKind::CheckpointRecord),
            3 => Some(FrameKind::CheckpointEnd),
            4 => Some(FrameKind::Barrier),
            5 => Some(FrameKind::Seal),
            _ => None,
        }
    }
}

/// A valid frame found in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// Everything in this segment before this offset was synced before the frame was written.
    pub(super) write_start: u32,
    /// Where the payload lies in the segment's bytes.
    pub(super) payload: Range<usize>,
    /// Offset behind the frame.
    pub(super) end: u32,
}

/// Encodes and decodes the frames of one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    seed: u32,
}

impl Framing {
    pub(super) fn new(id: &[u8; 16], number: u64) -> Framing {
        Framing { seed: crc32c::crc32c_append(crc32c::crc32c(id), &number.to_le_bytes()) }
    }

    /// The upper 24 bits come from the seed: a cheap filter for the search for frames behind damage. Clients do not know
    /// the directory id, so they cannot fill a value with bytes that pass the filter and make that search slow.
    fn tag(&self, kind: u8) -> u32 {
        (self.seed & 0xffff_ff00) | u32::from(kind)
    }

    fn checksum(&self, offset: u32, length: u32, write_start: u32, tag: u32, payload: &[u8]) -> u32 {
        let mut covered = [0; 16];
        covered[0..4].copy_from_slice(&offset.to_le_bytes());
        covered[4..8].copy_from_slice(&length.to_le_bytes());
        covered[8..12].copy_from_slice(&write_start.to_le_bytes());
        covered[12..16].copy_from_slice(&tag.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(self.seed, &covered), payload)
    }

    /// Appends a frame that will lie at `offset` of the segment. The caller has made sure that it fits there, so its
    /// length fits a u32.
    pub(super) fn encode(
        &self,
        into: &mut Vec<u8>,
        offset: u32,
        write_start: u32,
        kind: FrameKind,
        payload: &[u8],
    ) {
        let length = payload.len() as u32;
        let tag = self.tag(kind as u8);
        into.extend_from_slice(&length.to_le_bytes());
        into.extend_from_slice(&self.checksum(offset, length, write_start, tag, payload).to_le_bytes());
        into.extend_from_slice(&write_start.to_le_bytes());
        into.extend_from_slice(&tag.to_le_bytes());
        into.extend_from_slice(payload);
    }

    /// The frame at `offset` of a segment's bytes, if a valid one is there.
    pub(super) fn decode(&self, segment: &[u8], offset: u32) -> Option<Frame> {
        let at = offset as usize;
        let payload_at = at + FRAME_BYTES as usize;
        let head = segment.get(at..payload_at)?;
        let tag = read_u32(head, 12);
        let kind = FrameKind::from_byte(tag as u8)?;
        let (length, write_start) = (read_u32(head, 0), read_u32(head, 8));
        if tag != self.tag(kind as u8) || write_start < HEADER_BYTES || write_start > offset {
            return None;
        }
        let payload = payload_at..payload_at.checked_add(length as usize)?;
        let end = u32::try_from(payload.end).ok()?;
        let bytes = segment.get(payload.clone())?;
        if read_u32(head, 4) != self.checksum(offset, length, write_start, tag, bytes) {
            return None;
        }
        Some(Frame { kind, write_start, payload, end })
    }

    /// All valid frames that start behind `after`, wherever they may start.
    ///
    /// Looks at every byte of up to a whole segment at each open, so it goes by blocks, which the compiler turns into vector
    /// code: most have no byte in common with the tag and are skipped.
    pub(super) fn search<'a>(
        &'a self,
        segment: &'a [u8],
        after: u32,
    ) -> impl Iterator<Item = (u32, Frame)> + 'a {
        const BLOCK_BYTES: usize = 64;
        let tag = self.tag(0).to_le_bytes();
        // A byte that zeros do not have, if there is one.
        let marker_at = (1..4).find(|&index| tag[index] != 0).unwrap_or(1);
        let marker = tag[marker_at];
        let first = after as usize + 1;
        let blocks =
            segment.get(first + 12 + marker_at..).unwrap_or_default().chunks(BLOCK_BYTES).enumerate();
        let has_marker =
            move |block: &[u8]| block.iter().fold(false, |found, &byte| found | (byte == marker));
        blocks.filter(move |(_, block)| has_marker(block)).flat_map(move |(index, block)| {
            (0..block.len()).filter(move |&within| block[within] == marker).filter_map(move |within| {
                let at = u32::try_from(first + index * BLOCK_BYTES + within).ok()?;
                Some((at, self.decode(segment, at)?))
            })
        })
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A file of the journal's directory, told by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileName {
    /// A segment with this number.
    Segment(u64),
    /// An allocated file that waits to become a segment.
    Spare(u64),
    /// A file that is being allocated; worthless after a crash.
    Preparing(u64),
}

impl FileName {
    pub(super) fn parse(name: &str) -> Option<FileName> {
        let number = |digits: &str| {
            let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
            if all_digits { digits.parse::<u64>().ok() } else { None }
        };
        if let Some(digits) = name.strip_prefix(SEGMENT_PREFIX) {
            number(digits).map(FileName::Segment)
        } else if let Some(digits) = name.strip_prefix(SPARE_PREFIX) {
            number(digits).map(FileName::Spare)
        } else if let Some(digits) = name.strip_prefix(PREPARING_PREFIX) {
            number(digits).map(FileName::Preparing)
        } else {
            None
        }
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileName::Segment(number) => write!(formatter, "{SEGMENT_PREFIX}{number:020}"),
            FileName::Spare(number) => write!(formatter, "{SPARE_PREFIX}{number:020}"),
            FileName::Preparing(number) => write!(formatter, "{PREPARING_PREFIX}{number:020}"),
        }
    }
}
