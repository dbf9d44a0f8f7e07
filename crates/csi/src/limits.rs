//! The bounds of the driver. `docs/limits.md` has a row for each that a caller can meet.

use std::time::Duration;

/// Calls of one connection that are worked on at once. The others wait.
pub const MAX_CALLS: usize = 32;

/// Bytes of a name, an identifier or another text of a call (CSI, "Size Limits").
pub const MAX_TEXT_BYTES: usize = 128;

/// Bytes of a path of a call. Linux takes no longer one.
pub const MAX_PATH_BYTES: usize = 4096;

/// Bytes of the identifier of a node (CSI, `NodeGetInfoResponse`).
pub const MAX_NODE_ID_BYTES: usize = 256;

/// Bytes of the keys and values of a map of a call together (CSI, "Size Limits").
pub const MAX_MAP_BYTES: usize = 4096;

/// Bytes of the name of a volume in its pool.
pub const MAX_VOLUME_NAME_BYTES: usize = 40;

/// Bytes of the name of a snapshot in its volume: with this, a pool and a volume, an identifier has
/// [`MAX_TEXT_BYTES`].
pub const MAX_SNAPSHOT_NAME_BYTES: usize = 45;

/// Bytes of the name of a pool that the driver uses.
pub const MAX_POOL_NAME_BYTES: usize = MAX_TEXT_BYTES - MAX_VOLUME_NAME_BYTES - MAX_SNAPSHOT_NAME_BYTES - 2;

/// Bytes of the name of a host of a target.
pub const MAX_HOST_NAME_BYTES: usize = 64;

/// Bytes of an iSCSI name (RFC 7143 section 4.2.7.1).
pub const MAX_ISCSI_NAME_BYTES: usize = 223;

/// Portals of a volume.
pub const MAX_PORTALS: usize = 16;

/// Volumes of a snapshot of a group, as many as a pool takes.
pub const MAX_GROUP: usize = 256;

/// Bytes of a volume that names no length.
pub const DEFAULT_VOLUME_BYTES: u64 = 1 << 30;

/// The lengths of volumes are multiples of this many bytes where the limit of the caller allows.
pub const GRANULE_BYTES: u64 = 1 << 20;

/// The lengths of volumes are multiples of this many bytes always.
pub const BLOCK_BYTES: u64 = 4096;

/// The time that the sessions of a node have to end when its access is taken away.
pub const SESSIONS_END: Duration = Duration::from_secs(15);

/// The time between two looks at something that ends or appears.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The time that a disk has to appear after its login.
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that dm-multipath has to claim a disk with several paths, and to give it back. Events of udev come first.
pub const MULTIPATH_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that a program on the node has. `mkfs` and the growth of a file system on a slow disk take longest.
pub const PROGRAM_TIMEOUT: Duration = Duration::from_mins(5);

/// Bytes of the output of a program that are kept.
pub const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// Bytes of a file of the system that the node reads, such as the table of mounts.
pub const MAX_SYSTEM_FILE_BYTES: u64 = 16 << 20;

/// The time that a thread waits for the output of a program that has ended.
pub const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes at each end of a device that have to be zero before a file system is made on it.
pub const BLANK_BYTES: u64 = 4 << 20;

/// The time that the server has for a request: longer than a snapshot of a large group takes.
pub const API_TIMEOUT: Duration = Duration::from_mins(3);
