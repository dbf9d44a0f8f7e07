//! Why a disk is not taken over.

use std::io;

use lunette_store::StoreError;

use crate::limits::{CHUNK_BYTES, MAX_LEN_BYTES};

/// Says why a disk is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk is longer than [`MAX_LEN_BYTES`].
    #[error("the source has {0} bytes, and disks of up to {MAX_LEN_BYTES} are taken over; copy it instead")]
    TooLong(u64),
    /// The source has another length than when it was begun to be taken over, so it may be another disk.
    #[error("the source has {there} bytes now, and had {expected} before; give it that length again")]
    SourceLength {
        /// Bytes of the source.
        there: u64,
        /// Bytes that it had.
        expected: u64,
    },
    /// The target has no room for the disk.
    #[error("the volume has {there} bytes, and the source {needed}")]
    TargetLength {
        /// Bytes of the target.
        there: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// The map has no room for the disk.
    #[error("the map has {there} bytes, and needs {needed}")]
    MapLength {
        /// Bytes of the map.
        there: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// The source is missing, and the map does not tell that all is copied.
    #[error("the source is missing, and not all of it is copied")]
    NoSource,
    /// A chunk is no whole number of the source's blocks.
    #[error("the source has blocks of {0} bytes, and only blocks that divide {CHUNK_BYTES} are copied so")]
    Blocks(u32),
    /// The map cannot be read.
    #[error("the map cannot be read: {0}")]
    Map(StoreError),
    /// No memory for the map.
    #[error("there is no memory for the map")]
    Memory,
    /// The system gives no threads.
    #[error("the system gives no threads: {0}")]
    Threads(#[from] io::Error),
}
