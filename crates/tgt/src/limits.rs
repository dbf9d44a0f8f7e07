//! The bounds of what a client of the socket can ask for.

use std::time::Duration;

/// The most bytes of a request behind its header, as tgtd takes them.
pub const MAX_PARAMETER_BYTES: usize = 8 << 10;

/// The time that a client has for its request, and again for the answer. One client is served at a time.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The accounts of all targets together.
pub const MAX_ACCOUNTS: usize = 1024;

/// The most bytes of the name or the password of an account: those of a value of a text key (RFC 7143 section 6.1).
pub const MAX_ACCOUNT_BYTES: usize = 255;
