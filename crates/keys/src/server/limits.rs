//! Bounds of what clients can make the server keep or do.

use std::time::Duration;

/// The most connections at one time. More are closed on arrival.
pub const MAX_CONNECTIONS: usize = 64;

/// The most connections of one client's certificate name.
pub const MAX_CLIENT_CONNECTIONS: usize = 16;

/// The time for a TLS handshake, however its bytes arrive.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time from the first byte of a request to the last byte of its answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that a connection may be silent between requests.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// The longest request in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;

/// The most objects, destroyed ones included.
pub const MAX_OBJECTS: usize = 65536;

/// The most objects of one owner, destroyed ones included. The oldest destroyed one makes room for a new one.
pub const MAX_OWNER_OBJECTS: usize = 8192;

/// The most users of an object besides its owner.
pub const MAX_USERS: usize = 64;

/// The most identifiers in an answer to Locate.
pub const MAX_LOCATED: usize = 8192;
