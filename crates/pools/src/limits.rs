//! The bounds of what a pool keeps.

/// Bytes of a name of a volume or snapshot.
pub const MAX_NAME_BYTES: usize = 64;

/// Volumes of a pool.
pub const MAX_VOLUMES: usize = 4096;

/// Snapshots of a volume.
pub const MAX_SNAPSHOTS: usize = 1024;

/// Volumes of one snapshot.
pub const MAX_GROUP: usize = 256;

/// Labels of a volume or snapshot.
pub const MAX_LABELS: usize = 64;

/// Bytes of a key or a value of a label.
pub const MAX_LABEL_BYTES: usize = 256;

/// Bytes of a volume: what a signed offset reaches, in whole megabytes.
pub const MAX_VOLUME_BYTES: u64 = (i64::MAX as u64) & !0xf_ffff;
