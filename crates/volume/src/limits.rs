//! Bounds on what an open volume holds.

/// Bytes of the longest read or write that is made of the unit at once. Longer requests are cut into pieces of this
/// length. It is the default of MaxBurstLength: tgt 1.0.85 sends more than a burst in one sequence when a longer read
/// is answered.
pub const MAX_PIECE_BYTES: usize = 256 << 10;

/// Bytes of parity groups that are read or written at once: at least one of the largest.
pub const MAX_GROUP_BYTES: usize = 1 << 20;

/// Bytes of buffers that requests of an open volume hold together, except those of records. Requests beyond it wait.
pub const POOL_BYTES: usize = 64 << 20;

/// Bytes of buffers for records of a packed volume, and for a note. They are apart from the others, so that reads under
/// way never keep a record from being written.
pub const RECORD_POOL_BYTES: usize = (MAX_RECORDS_UNDER_WAY + 1) * MAX_PIECE_BYTES;

/// Records of a packed volume that are written at the same time. Small writes that come meanwhile share the next
/// record.
pub const MAX_RECORDS_UNDER_WAY: usize = 4;

/// Reads that wait for a key that is not known yet. More are refused at once.
pub const MAX_WAITING_FOR_KEYS: usize = 1024;

/// Quanta whose newest content is in the journal. At this number a checkpoint is due; twice as many are never there.
pub const MAX_LIVE: usize = 1 << 17;

/// Requests to the unit that a tool, or a checkpoint, has under way.
pub const TOOL_DEPTH: usize = 16;

/// Bytes of buffers that a tool, or the checkpoints of a volume, hold.
pub const TOOL_POOL_BYTES: usize = 2 * TOOL_DEPTH * MAX_PIECE_BYTES;

/// Quanta of the longest volume that can have an anchor: 2 GiB of entries, in the file and in memory.
pub const MAX_ANCHORED_QUANTA: u64 = 1 << 28;
