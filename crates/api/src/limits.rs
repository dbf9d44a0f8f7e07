//! The bounds of the control plane. `docs/limits.md` has a row with a test for each that a client can meet.

use std::time::Duration;

/// The longest file of an object, and the longest body of a request.
pub const MAX_BODY_BYTES: usize = 4 << 20;

/// Objects that `conf.d` may hold.
pub const MAX_OBJECTS: usize = 16_384;

/// Connections of each listener. One more waits until another ends.
pub const MAX_CONNECTIONS: usize = 64;

/// The time in which the header of a request has to come, also that of the next one on a connection that is kept.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// The time in which the body of a request has to come.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The time for a TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest header of a request.
pub const MAX_HEADER_BYTES: usize = 16 << 10;

/// Clients that read events at once.
pub const MAX_EVENT_READERS: usize = 32;

/// Events that a reader may be behind. What it misses beyond them is counted and told.
pub const MAX_EVENTS_BEHIND: usize = 1024;

/// Requests that wait for the server's answer at once, such as changes that open disks.
pub const MAX_BUSY_REQUESTS: usize = 4;

/// The longest file of tokens.
pub const MAX_TOKEN_FILE_BYTES: usize = 64 << 10;

/// The shortest token: 128 bits in base64.
pub const MIN_TOKEN_BYTES: usize = 22;

/// How long no connection is accepted after one could not be.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
