//! Bounds of a target process.

use std::time::Duration;

/// Bytes of buffers for data in flight, of all sessions together.
pub const DEFAULT_BUFFER_BYTES: usize = 256 << 20;

/// Threads for file operations. They wait for the medium, not for a core.
pub const DEFAULT_FILE_THREADS: usize = 8;

/// File operations that wait for a thread. Beyond it, the reactor does them itself and so slows its initiators down.
pub(crate) const MAX_QUEUED_FILE_OPS: usize = 4096;

/// The share of the buffers that one connection may hold, in tasks and in data that its peer does not read: one part in
/// this many. It may always hold one buffer.
pub(crate) const CONNECTION_BUFFER_SHARE: usize = 4;

/// The share of the buffers that only tasks which hold a buffer already may take from: one part in this many.
pub(crate) const SECOND_BUFFER_RESERVE: usize = 8;

/// Connections that are served at one time. More are closed as they come.
pub(crate) const MAX_CONNECTIONS: usize = 8192;

/// The time that initiators have to log out when the target stops.
pub(crate) const LOGOUT_GRACE: Duration = Duration::from_secs(3);

/// When a stop that does not come to an end is ended all the same.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(9);
