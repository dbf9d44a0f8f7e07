//! Bounds on what a client can make the server keep or do.

use std::time::Duration;

use lunette_buffer::MAX_BUFFER_LEN;

/// Connections at one time. More are closed as they come.
pub const MAX_CONNECTIONS: usize = 64;

/// From the first byte to the transmission phase, however the bytes come.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// From a request's first byte to its last, not counting the wait for replies that take its room. Between requests a client
/// may be silent as long as it likes.
pub const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// From the first byte of a reply to its last.
pub const REPLY_TIMEOUT: Duration = Duration::from_mins(1);

/// Options of one negotiation. A client that needs more ends its connection.
pub const MAX_OPTIONS: usize = 256;

/// Data of one option: the longest export name and a few short lists.
pub const MAX_OPTION_LEN: u32 = 64 << 10;

/// Longer data of an option, or of a write, is not even skipped: the connection ends.
pub const MAX_SKIPPED_LEN: u32 = 64 << 20;

/// An export name, or any other string ("Values", `proto.md`).
pub const MAX_STRING_LEN: usize = 4096;

/// Bytes of one read or write.
pub const MAX_PAYLOAD_LEN: u32 = MAX_BUFFER_LEN as u32;

/// The least that a client may be told to ask for ("Block size constraints", `proto.md`).
pub const MAX_BLOCK_LEN: u32 = 64 << 10;

/// Requests that a connection may have in hand.
pub const MAX_REQUESTS: usize = 256;

/// Bytes of buffers that the requests of one connection hold: the longest request always fits.
pub const MAX_REQUEST_BYTES: usize = 2 * MAX_BUFFER_LEN;
