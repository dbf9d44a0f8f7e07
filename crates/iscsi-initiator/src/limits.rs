//! The limits of what callers and targets can make the client keep or do.

use std::time::Duration;

/// Bytes of one request, in either direction.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Bytes of a logical block. Disks have 512 to 4,096, or a few more with protection information.
pub const MAX_BLOCK_BYTES: u32 = 1 << 20;

/// Bytes of a disk: offsets in files are signed numbers of 64 bits, and so there is room for arithmetic on them.
pub const MAX_DISK_BYTES: u64 = i64::MAX as u64;

/// GET LBA STATUS commands of one call of `Disk::allocation`: a target may report one block at a time.
pub(crate) const MAX_MAP_COMMANDS: usize = 256;

/// Bytes of a portal's host: the longest domain name (RFC 1035 section 2.3.4).
pub(crate) const MAX_HOST_BYTES: usize = 255;

/// Characters of a target's text that an error repeats.
pub(crate) const MAX_QUOTED_CHARS: usize = 100;

/// Requests of one session that have not ended: under way, or waiting for the target's command window.
pub const MAX_UNFINISHED_REQUESTS: usize = 16_384;

/// Bytes of a CDB (SPC-6 4.2.3).
pub const MAX_CDB_BYTES: usize = 260;

/// Redirections that are followed until a login succeeds.
pub(crate) const MAX_REDIRECTS: usize = 8;

/// The number of times that one request is sent again, for all reasons together.
pub(crate) const MAX_REPEATS: u32 = 16;

/// The first pause before a request that the target had no room for is sent again; it doubles up to
/// [`MAX_BUSY_PAUSE`].
pub(crate) const FIRST_BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause after a busy status: see [`FIRST_BUSY_PAUSE`].
pub(crate) const MAX_BUSY_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause that a target may ask for with a status qualifier.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The first pause before a new connection is tried; it doubles up to [`MAX_RECONNECT_PAUSE`].
pub(crate) const FIRST_RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause before a login: see [`FIRST_RECONNECT_PAUSE`].
pub(crate) const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(5);

/// A connection that was logged in for this long has proved itself, even if it was idle. Shorter ones count as
/// failures, so that a target that drops every session at once is given up.
pub(crate) const PROVEN_AFTER: Duration = MAX_RECONNECT_PAUSE;

/// Paths of a disk.
pub const MAX_PATHS: usize = 16;

/// The time without a PDU after which a path of several is pinged, and the time limit for the answer: a silent path is
/// lost after twice this time at most.
pub(crate) const PATH_PING: Duration = Duration::from_millis(1750);

/// The time limit for making a TCP connection of a path of several.
pub(crate) const PATH_CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// The pause before a lost path is cleared over another one. What the network still carries when our end of the
/// connection is closed, the target has by then.
pub(crate) const CLEAR_PAUSE: Duration = Duration::from_secs(1);

/// The pause before a path that is not active is asked for access states again, while a request waits for it.
pub(crate) const STATES_PAUSE: Duration = Duration::from_millis(500);

/// The addition to [`STATES_PAUSE`] while no request waits.
pub(crate) const STATES_INTERVAL: Duration = Duration::from_secs(10);

/// The time limit for a logout; then the connection is closed.
pub(crate) const LOGOUT_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which the deadlines of requests are checked. Checking all of them more often would cost more than it
/// is worth.
pub(crate) const TIMEOUT_TICK: Duration = Duration::from_millis(100);

/// LUNs that the response to REPORT LUNS may list.
pub(crate) const MAX_LUNS: usize = 16_384;

/// Bytes of buffers for data in flight, unless the caller says otherwise.
pub const DEFAULT_BUFFER_BYTES: usize = 256 << 20;

/// Connections of one session.
pub const MAX_CONNECTIONS: u32 = lunette_session::limits::MAX_SESSION_CONNECTIONS;
