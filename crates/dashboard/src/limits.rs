//! The bounds of what a client of the calls can ask for.

use std::time::Duration;

/// The longest body of a request.
pub const MAX_FORM_BYTES: usize = 256 << 10;

/// The fields of a form.
pub const MAX_FIELDS: usize = 32;

/// The longest configuration of all gateways.
pub const MAX_DOCUMENT_BYTES: usize = 2 << 20;

/// The time in which all gateways say how they are.
pub const STATE_LIMIT: Duration = Duration::from_secs(5);

/// The time in which all gateways have made a change. The dashboard gives up a call after 45 s.
pub const FOLLOW_LIMIT: Duration = Duration::from_secs(25);

/// How often a change is made again because another gateway was first.
pub const MAX_ATTEMPTS: usize = 8;

/// The LUNs of a target.
pub const MAX_LUNS: u16 = 256;

/// The longest name of a gateway, group, pool or image.
pub const MAX_NAME_BYTES: usize = 223;

/// The file with what a gateway has made, as far as it is read and written.
pub const MAX_BOOK_BYTES: usize = 4 << 20;

/// The secrets that a gateway keeps in files.
pub const MAX_SECRETS: usize = 4096;
