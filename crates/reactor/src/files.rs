//! Requests on files, for a ring.

use std::fs::File;
use std::sync::Arc;

use lunette_buffer::Buffer;

/// One system call on a file, which may have to wait for the medium. The reactor owns it, with its buffer, from
/// [`Context::submit_file`](crate::Context::submit_file) to [`Handler::file_done`](crate::Handler::file_done).
#[derive(Debug)]
pub struct FileRequest {
    /// The file or block device.
    pub file: Arc<File>,
    /// The operation.
    pub call: FileCall,
}

/// The system calls on files that a ring makes.
#[derive(Debug)]
pub enum FileCall {
    /// pread(2), of as much as the buffer holds. What the system has in memory is copied in the call that hands it in.
    Read {
        /// The offset in the file.
        offset: u64,
        /// The destination buffer.
        into: Buffer,
    },
    /// pwrite(2), of all of the buffer.
    Write {
        /// The offset in the file.
        offset: u64,
        /// The source buffer.
        from: Buffer,
    },
    /// fallocate(2): makes a range read as zero, and keeps the length of the file.
    Zero {
        /// The offset in the file.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Free the space (`FALLOC_FL_PUNCH_HOLE`) or keep it (`FALLOC_FL_ZERO_RANGE`).
        punch: bool,
    },
    /// A flush by fdatasync(2).
    Sync,
}
