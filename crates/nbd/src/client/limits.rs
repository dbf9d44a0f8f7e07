//! Bounds on what a server can make the client keep or do. The time of the negotiation is that of the server's side,
//! [`HANDSHAKE_TIMEOUT`](crate::limits::HANDSHAKE_TIMEOUT).

use std::time::Duration;

/// The longest URI of an export, in bytes.
pub const MAX_URI_LEN: usize = 8192;

/// The most addresses of a host that are tried in one attempt.
pub const MAX_ADDRESSES: usize = 8;

/// The time in which one address has to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most replies in one negotiation. A server that sends more loses its connection.
pub const MAX_OPTION_REPLIES: usize = 256;

/// The longest data of one reply to an option.
pub const MAX_OPTION_REPLY_LEN: u32 = 64 << 10;

/// The most characters of a server's text that an error repeats.
pub const MAX_QUOTED_CHARS: usize = 100;

/// The longest minimum block of an export. Logical blocks of SCSI disks have 512 or 4096 bytes.
pub const MAX_MINIMUM_BLOCK_LEN: u32 = 4096;

/// The longest export: offsets in files are signed numbers of 64 bits, and so there is room for arithmetic on them.
pub const MAX_EXPORT_LEN: u64 = i64::MAX as u64;

/// The most commands under way on a connection. Further requests wait.
pub const MAX_COMMANDS: usize = 128;

/// The most bytes of one command that has no payload, such as a trim.
pub const MAX_RANGE_LEN: u32 = 1 << 30;

/// The time in which a server has to end a reply, while commands are under way. The connection of a server that takes
/// longer counts as lost.
pub const REPLY_TIMEOUT: Duration = Duration::from_mins(2);

/// The time from the beginning of a command to the end of its reply, also when others are answered meanwhile.
pub const COMMAND_TIMEOUT: Duration = Duration::from_mins(15);

/// The most chunks in one structured reply.
pub const MAX_CHUNKS: u32 = 1 << 16;

/// The most runs of a read that have arrived with gaps between them.
pub const MAX_RUNS: usize = 16;

/// The longest payload of a chunk that reports an error.
pub const MAX_ERROR_LEN: u32 = 4096 + 16;

/// The time for which the end of a store waits for its last requests, and for the leave that it takes of the server.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of connections on which one request is tried.
pub const MAX_TRIES: u32 = 4;

/// The time for which requests wait for a new connection.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_mins(1);

/// The first pause before a new connection is tried; it doubles up to [`MAX_RECONNECT_PAUSE`].
pub const FIRST_RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause before a new connection is tried.
pub const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(5);
