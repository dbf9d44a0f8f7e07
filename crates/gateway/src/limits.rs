//! Bounds on what gateways keep and on how long they wait.

use std::time::Duration;

/// Gateways of one disk.
pub const MAX_MEMBERS: usize = 16;

/// Bytes of the encoded common value.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Entries of the common value.
pub const MAX_ENTRIES: usize = 16;

/// Bytes of the name of an entry, and of the address of a client.
pub const MAX_NAME_BYTES: usize = 255;

/// Notifies that wait for their acknowledgement. A gateway that lets more wait counts as gone.
pub const MAX_PENDING_NOTIFIES: usize = 64;

/// Requests that wait in one gateway: more than a session's command window is refused.
pub const MAX_REQUESTS: usize = 1024;

/// The time between the end of one notify of a gateway and its next one, when nothing has changed.
pub const PING_INTERVAL: Duration = Duration::from_millis(500);

/// The time that a gateway has to acknowledge a notify. One that does not is removed.
pub const NOTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// The time without a sign of life after which the cluster ends the watch of a gateway. Until then each notify waits
/// for a gateway that was killed.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which what has failed is tried again.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(500);
