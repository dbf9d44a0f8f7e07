//! The bounds of what a pool keeps.

use std::time::Duration;

/// Bytes of a name of a volume or snapshot.
pub const MAX_NAME_BYTES: usize = 64;

/// Volumes of a pool.
pub const MAX_VOLUMES: usize = 4096;

/// Snapshots of a volume.
pub const MAX_SNAPSHOTS: usize = 1024;

/// Volumes of one snapshot.
pub const MAX_GROUP: usize = 256;

/// The time for which a snapshot waits until another one of its volume is taken.
pub const MAX_SNAPSHOT_WAIT: Duration = Duration::from_secs(10);

/// Bytes of a block of the file system, of an image that is taken in parts.
pub const MAX_PART_BLOCK_BYTES: u64 = 64 << 10;

/// Labels of a volume or snapshot.
pub const MAX_LABELS: usize = 64;

/// Bytes of a key or a value of a label.
pub const MAX_LABEL_BYTES: usize = 256;

/// Bytes of a serial number, as a disk has them.
pub const MAX_SERIAL_BYTES: usize = 200;

/// Bytes of a file in a pool that is no image: a record, or the log of a change of [`MAX_GROUP`] volumes.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// Ranges of a list of changes. When there are more, neighbours become one.
pub const MAX_CHANGES: usize = 1 << 20;

/// Bytes of the shortest block of a disk. The length of a volume is a multiple of it.
pub const BLOCK_BYTES: u32 = 512;

/// Bytes of a volume: what a signed offset reaches, in whole megabytes.
pub const MAX_VOLUME_BYTES: u64 = (i64::MAX as u64) & !0xf_ffff;

/// Bytes of the header of a stream: more than the labels of a volume and a snapshot take.
pub const MAX_STREAM_HEADER_BYTES: usize = 1 << 20;

/// Bytes of the data of one record of a stream.
pub const MAX_CHUNK_BYTES: usize = 4 << 20;

/// Bytes of the identity of a snapshot.
pub const MAX_ID_BYTES: usize = 64;
