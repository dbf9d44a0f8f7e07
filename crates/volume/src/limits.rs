//! Bounds on what an open volume holds.

/// Bytes of the longest read or write that is made of the unit at once. Longer requests are cut into pieces of this length. It is the default of
/// MaxBurstLength: tgt 1.0.85 sends more than a burst in one sequence when a longer read is answered.
pub const MAX_PIECE_BYTES: usize = 256 << 10;

/// Bytes of parity groups that are read or written at once: at least one of the largest.
pub const MAX_GROUP_BYTES: usize = 1 << 20;

/// Bytes of buffers that requests of an open volume hold together. Requests beyond it wait.
pub const POOL_BYTES: usize = 64 << 20;

/// Records of a packed volume that are written at the same time. Small writes that come meanwhile share the next record.
pub const MAX_RECORDS_UNDER_WAY: usize = 4;

/// Quanta whose newest content is in the journal. At this number a checkpoint is due; twice as many are never there.
pub const MAX_LIVE: usize = 1 << 17;

/// Requests to the unit that a tool, or a checkpoint, has under way.
pub const TOOL_DEPTH: usize = 16;

/// Bytes of buffers that a tool, or the checkpoints of a volume, hold.
pub const TOOL_POOL_BYTES: usize = 2 * TOOL_DEPTH * MAX_PIECE_BYTES;

/// Quanta of the longest volume that can have an anchor: 2 GiB of entries, in the file and in memory.
pub const MAX_ANCHORED_QUANTA: u64 = 1 << 28;
