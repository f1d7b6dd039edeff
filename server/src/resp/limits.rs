//! What a client may ask us to hold in memory.

/// The longest header line (`*3`, `$16`) without its CR LF. A length has at most 20 characters.
pub const HEADER_BYTES_MAX: usize = 64;

/// The longest inline command without its line end.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Limits of one request. They are checked when a length is announced, before its bytes are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of one request, its name included.
    pub arguments_max: usize,
    /// Bytes of one argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Bytes of one whole request on the wire, headers included. Many arguments below `bulk_bytes_max` could
    /// otherwise add up to terabytes. At most 4 GiB whatever is set here.
    pub request_bytes_max: usize,
    /// As `arguments_max`, while the client must still authenticate.
    pub unauthenticated_arguments_max: usize,
    /// As `bulk_bytes_max`, while the client must still authenticate.
    pub unauthenticated_bulk_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            arguments_max: 1024 * 1024,
            // A value travels through the log, so this is lower than Redis's 512 MB.
            bulk_bytes_max: 64 * 1024 * 1024,
            request_bytes_max: 128 * 1024 * 1024,
            unauthenticated_arguments_max: 10,
            unauthenticated_bulk_bytes_max: 16 * 1024,
        }
    }
}
