//! The parts of a snapshot file that both sides need.

/// Names a data directory: a snapshot of another one is refused.
pub type DirectoryId = [u8; 16];

pub(super) const MAGIC: [u8; 8] = *b"WARLOCKS";
pub(super) const VERSION: u32 = 3;

/// Magic, version, directory id, slot, attachment length.
pub(super) const HEADER_BYTES: usize = 8 + 4 + 16 + 8 + 4;
/// What follows the zero length of the last part: rows, sum, CRC.
pub(super) const FOOTER_REST_BYTES: usize = 8 + 8 + 4;
pub(super) const CRC_BYTES: usize = 4;

/// A block is written when it has this many bytes. A larger row has a block of its own.
pub(super) const BLOCK_BYTES: usize = 64 * 1024;

/// The CRC of a block: over its length, its number of rows and its payload.
pub(super) fn block_crc(length: u32, rows: u32, payload: &[u8]) -> u32 {
    let head = crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), &rows.to_le_bytes());
    crc32c::crc32c_append(head, payload)
}

/// The footer, CRC included.
pub(super) fn footer(rows: u64, sum: u64) -> [u8; 4 + FOOTER_REST_BYTES] {
    let mut bytes = [0; 4 + FOOTER_REST_BYTES];
    bytes[4..12].copy_from_slice(&rows.to_le_bytes());
    bytes[12..20].copy_from_slice(&sum.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}
