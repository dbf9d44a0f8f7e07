//! Bounds of this crate.

/// Bytes of a chunk: the unit in which blocks are copied, and of which one bit of the map tells.
pub const CHUNK_BYTES: u64 = 64 << 10;

/// The longest disk that is taken over. Its map has 32 MiB, in memory twice.
pub const MAX_LEN_BYTES: u64 = 16 << 40;

/// Bytes that are read from the source at once. tgt 1.0.85 sends more than a burst in one sequence when a longer read
/// is answered.
pub(crate) const MAX_RUN_BYTES: u64 = 256 << 10;

/// Threads that copy.
pub(crate) const WORKERS: usize = 8;

/// Threads that copy what no request has asked for yet. The others are free for what is asked for.
pub(crate) const MAX_BACKGROUND: usize = WORKERS - 2;

/// Chunks that were copied in the background and of which the map on the medium does not tell yet.
pub(crate) const MAX_UNMAPPED_CHUNKS: u64 = 1024;
