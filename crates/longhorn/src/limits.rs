//! The bounds of a connection to an engine.

use std::time::Duration;

/// The longest volume: offsets of the protocol are signed numbers of 64 bits.
pub const MAX_LEN_BYTES: u64 = 1 << 62;

/// The most bytes of the text of an error.
pub const MAX_ERROR_BYTES: u32 = 4096;

/// The zeroes that are written by one message.
pub const MAX_ZEROES_BYTES: u32 = 256 << 10;

/// The most bytes that one message frees.
pub const MAX_UNMAP_BYTES: u32 = 1 << 30;

/// The time that an engine has for a request, and for taking one. Then the connection ends.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The time between two looks at requests that are not answered.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
