//! The bounds of the control plane. `docs/limits.md` has a row with a test for each that a client can meet.

use std::time::Duration;

/// The longest file of an object, and the longest body of a request.
pub const MAX_BODY_BYTES: usize = 4 << 20;

/// Objects that `conf.d` may hold.
pub const MAX_OBJECTS: usize = 16_384;

/// Connections of a Unix socket, and those of clients with a token at a port of TCP.
pub const MAX_CONNECTIONS: usize = 64;

/// Connections of one address over TCP.
pub const MAX_ADDRESS_CONNECTIONS: usize = 32;

/// Connections at a port of TCP that have not sent a token yet. One more ends the oldest. As many may wait for a place.
pub const MAX_STRANGERS: usize = 32;

/// Connections without a token of one address. A browser opens six at once. As many may wait for a place.
pub const MAX_ADDRESS_STRANGERS: usize = 8;

/// The time that such a connection has to send its token, however many others come from addresses that have as many.
pub const GRACE: Duration = Duration::from_millis(250);

/// Bytes that a connection without a token may send and get. The files of the login page are a fifth of it.
pub const MAX_STRANGER_BYTES: usize = 1 << 20;

/// The time in which a client has to take [`SEND_STEP_BYTES`] of an answer, or what is left of it.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of an answer that give the client more time.
pub const SEND_STEP_BYTES: usize = 64 << 10;

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

/// Requests that wait for the server's answer at once, and change nothing.
pub const MAX_BUSY_REQUESTS: usize = 4;

/// Changes and plans that wait for the server at once. The server makes one after the other, and while it opens disks,
/// all others are answered.
pub const MAX_BUSY_CHANGES: usize = 2;

/// The longest file of tokens.
pub const MAX_TOKEN_FILE_BYTES: usize = 64 << 10;

/// The shortest token: 128 bits in base64.
pub const MIN_TOKEN_BYTES: usize = 22;

/// How long no connection is accepted after one could not be.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The longest file of the audit log. A full one is kept under another name.
pub const MAX_AUDIT_FILE_BYTES: usize = 4 << 20;

/// Files of the audit log that are kept beside the one that is written.
pub const KEPT_AUDIT_FILES: usize = 4;

/// The objects of one entry of the audit log. Of more, their names are kept.
pub const MAX_AUDIT_ENTRY_BYTES: usize = 256 << 10;

/// A text of a client in the audit log.
pub const MAX_AUDIT_TEXT_BYTES: usize = 512;

/// Entries of the audit log that can be read through the API.
pub const MAX_AUDIT_READ: usize = 1000;

/// The time that a client of the API gives each step of its connection to a server.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Jobs that are kept. The oldest one that has ended makes room for the next.
pub const MAX_JOBS: usize = 256;

/// Jobs that run at once. The others wait.
pub const MAX_RUNNING_JOBS: usize = 4;

/// Jobs that were cancelled while their work has not stopped, beside those that run. Work that hangs in a read stops
/// when the read ends, which may be never. Jobs beyond this number keep their places among [`MAX_RUNNING_JOBS`].
pub const MAX_STOPPING_JOBS: usize = 16;

/// How long a job is kept after its end.
pub const JOB_AGE: Duration = Duration::from_hours(7 * 24);

/// The longest time that a request waits for the end of a job.
pub const MAX_JOB_WAIT: Duration = Duration::from_mins(1);

/// Ranges of one answer with the changes of a volume.
pub const MAX_CHANGED_RANGES: usize = 32 << 10;
