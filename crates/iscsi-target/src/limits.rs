//! Bounds of a target process.

use std::time::Duration;

use lunette_session::limits::{COMMAND_WINDOW, MAX_EXTRA_COMMANDS, MAX_IMMEDIATE_TASKS, MAX_SESSION_TABLES};

/// Event loops that a server may have, each on a thread of its own.
pub const MAX_CORES: usize = 64;
const _: () = assert!(MAX_CORES <= MAX_SESSION_TABLES);

/// Bytes of buffers for data in flight, of all sessions together.
pub const DEFAULT_BUFFER_BYTES: usize = 256 << 20;

/// The least of them: a largest command, beside one that has its first buffer and takes a second.
pub const MIN_BUFFER_BYTES: usize = 16 << 20;
const _: () =
    assert!(MIN_BUFFER_BYTES - MIN_BUFFER_BYTES / SECOND_BUFFER_RESERVE >= lunette_device::MAX_TRANSFER_BYTES);

/// Threads for file operations. They wait for the medium, not for a core.
pub const DEFAULT_FILE_THREADS: usize = 8;

/// The longest read or write of a file that the reactor's thread makes itself when it need not wait for the medium. The
/// hop to another thread that it saves costs more than copying this many bytes; longer copies are better made side by
/// side, and keep the connections waiting.
pub(crate) const MAX_INLINE_FILE_BYTES: usize = 16 << 10;

/// File operations that wait for a thread. Beyond it, the reactor does them itself and so slows its initiators down.
/// There is room for every command that may be running, or a medium that hangs would stop the reactor too.
pub(crate) const MAX_QUEUED_FILE_OPS: usize =
    MAX_CONNECTIONS * (COMMAND_WINDOW + MAX_IMMEDIATE_TASKS) as usize + MAX_EXTRA_COMMANDS as usize;

/// Buffers of this length and longer get their memory when it is first looked at: a store may lend what they are to
/// hold.
pub(crate) const MIN_LENDABLE_LEN: usize = 64 << 10;

/// The share of the buffers that one connection may hold, in tasks and in data that its peer does not read: one part in
/// this many, and no more than is free. As long as it holds less, it may have another buffer of any length.
pub(crate) const CONNECTION_BUFFER_SHARE: usize = 4;

/// The share of the buffers that is for short commands of connections that hold nothing and initiators that hold
/// little: one part in this many. While others hold all that they can, these are served.
pub(crate) const SHORT_BUFFER_RESERVE: usize = 8;

/// The longest buffer that is taken from that part.
pub(crate) const SHORT_BUFFER_LEN: usize = 64 << 10;

/// The longest buffer into which the answers to several commands are written, one behind the other.
pub(crate) const ANSWER_BUFFER_LEN: usize = 128 << 10;

/// The divisor of all buffers that gives an initiator's most from the part for short commands.
pub(crate) const SHORT_BUFFER_SHARE: usize = 64;

/// How many times what is free the initiators of one target may hold. A target that is alone gets three quarters of
/// what is there for all.
pub(crate) const TARGET_BUFFER_FACTOR: usize = 3;

/// The factor for an initiator's first buffers: others may have taken all that the target's initiators may hold by the
/// other factor.
pub(crate) const TARGET_FIRST_BUFFER_FACTOR: usize = 7;

/// The time after which work that waits for a buffer tries again though none has returned. Where the address space was
/// used up (`RLIMIT_AS`), others make room, and no buffer of the core's pool may be out that could return.
pub(crate) const BUFFER_RETRY: Duration = Duration::from_millis(100);

/// The share of the buffers that only tasks which hold a buffer already may take from: one part in this many.
pub(crate) const SECOND_BUFFER_RESERVE: usize = 8;

/// Tasks that wait for buffers and are tried in one round. The others have their turn in the next ones: a turn of the
/// event loop must not cost more because others wait.
pub(crate) const MAX_FED_TASKS: usize = 256;

/// Connections that are served at one time. More are closed as they come.
pub(crate) const MAX_CONNECTIONS: usize = 8192;

/// Connections of one address (for IPv6, one network of 64 bits), so that others find a place.
pub(crate) const MAX_ADDRESS_CONNECTIONS: usize = MAX_CONNECTIONS / 2;

/// Connections that have no target: logins that are not finished, discovery sessions, and what was refused and is not
/// gone yet. Each keeps up to some 64 KiB ([`MAX_LOGIN_BYTES`](lunette_session::limits::MAX_LOGIN_BYTES)), and a list
/// of targets. One more takes the place of the oldest of the address that has the most of them: honest logins and
/// discovery take milliseconds, so they are over before their turn comes.
pub(crate) const MAX_TARGETLESS_CONNECTIONS: usize = 1024;
const _: () = assert!(MAX_TARGETLESS_CONNECTIONS < MAX_CONNECTIONS - MAX_ADDRESS_CONNECTIONS);

/// Lost connections whose tasks wait to be taken over, of all sessions of a core; of one session there may be
/// [`MAX_SESSION_SUSPENDED`](lunette_session::limits::MAX_SESSION_SUSPENDED). Beyond it the longest waiting one is
/// given up.
pub(crate) const MAX_SUSPENDED_CONNECTIONS: usize = 1024;

/// The share of the buffers that they may hold, all together: one part in this many. Beyond it the longest waiting one
/// is given up: no initiator reads from it, and live connections want buffers.
pub(crate) const SUSPENDED_BUFFER_SHARE: usize = 4;

/// The time that initiators have to log out when the target stops.
pub(crate) const LOGOUT_GRACE: Duration = Duration::from_secs(3);

/// The time that initiators have to begin a negotiation that the target asks for. One that does not loses nothing by
/// it.
pub(crate) const NEGOTIATION_GRACE: Duration = Duration::from_secs(10);

/// When a stop that does not come to an end is ended all the same.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(9);

/// The time that a command may take before it is logged, unless the configuration says another.
pub const DEFAULT_SLOW_COMMAND: Duration = Duration::from_secs(1);

/// The time for which a standstill waits for initiators: for data of their tasks, and for the ends of PDUs and
/// negotiations. Then their sessions end with this process, if another one goes on with the rest.
pub const PEER_PATIENCE: Duration = Duration::from_millis(500);
