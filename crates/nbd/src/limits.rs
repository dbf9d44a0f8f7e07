//! Bounds on what a client can make the server keep or do.

use std::time::Duration;

use lunette_buffer::MAX_BUFFER_LEN;

/// The most connections at one time. For one more the oldest gives way that has named no export.
pub const MAX_CONNECTIONS: usize = 256;

/// Connections that have given way and have not ended yet. With more of them, new ones are closed on arrival.
pub const MAX_GIVEN_UP: usize = 64;

/// The time from the first byte of a connection to the transmission phase, however the bytes arrive.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time from a request's first byte to its last, not counting the wait for replies that hold its room. Between
/// requests a client may be silent for any time.
pub const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The time from the first byte of a reply to its last.
pub const REPLY_TIMEOUT: Duration = Duration::from_mins(1);

/// The time limit for the flush at the end of a server.
pub const LAST_FLUSH_TIMEOUT: Duration = Duration::from_mins(1);

/// The most options in one negotiation. A client that sends more loses its connection.
pub const MAX_OPTIONS: usize = 256;

/// The longest data of one option: the longest export name and a few short lists.
pub const MAX_OPTION_LEN: u32 = 64 << 10;

/// The longest data that is skipped, of an option or a write. Longer data ends the connection.
pub const MAX_SKIPPED_LEN: u32 = 64 << 20;

/// The longest string, such as an export name ("Values", `proto.md`).
pub const MAX_STRING_LEN: usize = 4096;

/// The most bytes in one read or write.
pub const MAX_PAYLOAD_LEN: u32 = MAX_BUFFER_LEN as u32;

/// The longest minimum request length that a server may announce ("Block size constraints", `proto.md`).
pub const MAX_BLOCK_LEN: u32 = 64 << 10;

/// The most requests that a connection may have under way.
pub const MAX_REQUESTS: usize = 256;

/// The most bytes of buffers that the requests of one connection hold. The longest request always fits.
pub const MAX_REQUEST_BYTES: usize = 2 * MAX_BUFFER_LEN;
