//! Bounds on what a store asks of Ceph at one time.

use std::time::Duration;

use lunette_buffer::MAX_BUFFER_LEN;

/// Requests of one image that librbd works on at the same time. Later ones wait in the store, in the order of coming.
/// librbd itself stops the thread that submits a request when 1024 operations of a client are under way, so there are
/// never as many.
pub const MAX_REQUESTS: usize = 512;

/// Bytes of reads and writes of one image that librbd works on at the same time, the longest request apart, which
/// always may. librbd stops the thread at 100 MiB.
pub const MAX_REQUEST_BYTES: usize = 4 * MAX_BUFFER_LEN;

/// Bytes that one request to librbd makes read as zero: librbd begins one operation for each object of it (4 MiB) at
/// once. Longer requests are made in pieces, one after the other.
pub const MAX_ZERO_BYTES: u64 = 256 << 20;

/// Bytes of an image that one question about its allocation covers. Without `fast-diff`, librbd asks the cluster for
/// each object of it.
pub const MAX_MAP_BYTES: u64 = 64 << 30;

/// The longest time that the monitors have for the first answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest URL, in bytes.
pub const MAX_URL_LEN: usize = 4096;

/// The time that a gateway gives an image to close, with the requests under way. Then it puts the client of the image
/// on the blocklist.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// The time between two questions to the cluster whether it still takes requests. librbd's own watch tells nothing of
/// a client that came onto the blocklist within a second of its start (16.2).
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Seconds that a client stays on the blocklist: ten years. A gateway that was stopped for longer than the cluster's
/// own limit, an hour, would still have writes to send. The time of the end has 32 bits of seconds.
pub const BLOCKLIST_S: u32 = 315_360_000;

/// Bytes of metadata, or entries of a list, that one question of the management has an answer of.
pub const MAX_LIST: usize = 1 << 20;

/// The time that an operation of the management has. librbd makes several for one call. An operation that ends by the
/// limit may still be carried out later.
pub const MANAGE_LIMIT: Duration = Duration::from_secs(30);

/// The bytes of a question of another server, and of an answer.
pub const MAX_QUESTION_BYTES: usize = 256 << 10;

/// The questions of other servers that a [`Register`](crate::Register) answers at once.
pub const MAX_QUESTIONS: usize = 16;

/// The bytes of a value that servers share in a [`Register`](crate::Register).
pub const MAX_REGISTER_BYTES: usize = 4 << 20;
