//! The bounds of a connection to an engine.

use std::time::Duration;

/// The longest volume: offsets of the protocol are signed numbers of 64 bits.
pub const MAX_LEN_BYTES: u64 = 1 << 62;

/// The most bytes of the text of an error.
pub const MAX_ERROR_BYTES: u32 = 4096;

/// The zeroes that are written by one message.
pub const MAX_ZEROES_BYTES: u32 = 256 << 10;

/// The time in which a request whose answer has begun to come must have been sent.
pub const SEND_LIMIT: Duration = Duration::from_secs(30);
