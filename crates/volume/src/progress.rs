//! How far a long piece of work has come.

/// The bytes of a long piece of work that are done, and all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the volume that are done.
    pub done_bytes: u64,
    /// Bytes of the volume.
    pub total_bytes: u64,
}
