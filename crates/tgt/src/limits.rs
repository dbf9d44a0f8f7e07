//! The bounds of what a client of the socket can ask for.

use std::time::Duration;

use lunette_api::limits::MAX_OBJECTS;

/// The most bytes of a request behind its header, as tgtd takes them.
pub const MAX_PARAMETER_BYTES: usize = 8 << 10;

/// The time that a client has for its request, and again for taking the answer. One client is served at a time.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Numbers that are kept, of targets that are there or not. Beyond it, those of targets that are not are forgotten.
pub const KEPT_NUMBERS: usize = 2 * MAX_OBJECTS;

/// The file with the numbers, as far as it is read and written.
pub const MAX_BOOK_BYTES: usize = 16 << 20;

/// The characters of an identifier of a unit, as tgtd takes them.
pub const MAX_SCSI_ID_CHARS: usize = 36;

/// Sessions of which it is kept that a client has ended them, or taken away their rule.
pub const MAX_ENDED_SESSIONS: usize = 4096;

/// The accounts of all targets together.
pub const MAX_ACCOUNTS: usize = 1024;

/// The most bytes of the name or the password of an account: those of a value of a text key (RFC 7143 section 6.1).
pub const MAX_ACCOUNT_BYTES: usize = 255;
