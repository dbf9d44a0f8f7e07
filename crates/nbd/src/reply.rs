//! Replies to the client.

use std::io::{self, Write};

use lunette_buffer::Buffer;
use lunette_store::{Run, StoreError};

use crate::wire::{BASE_ALLOCATION_ID, Errno, STATE_HOLE, STATE_ZERO, chunk, only_chunk, simple_reply};

/// The reply to one request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) body: Body,
    /// The bytes of the connection's window that the request holds.
    pub(crate) held_bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Body {
    /// Success, or an error number, without more.
    Simple(Option<Errno>),
    /// An error in the form of structured replies.
    Error(Errno),
    /// The bytes of a read, for a client without structured replies.
    Plain(Buffer),
    /// The bytes of a read, in a structured reply.
    Data { offset: u64, bytes: Buffer },
    /// Lengths and states of `base:allocation`.
    Status(Vec<(u32, u32)>),
}

impl Reply {
    /// Writes the reply.
    pub(crate) fn write(&self, writer: &mut impl Write) -> io::Result<()> {
        match &self.body {
            Body::Simple(error) => writer.write_all(&simple_reply(self.cookie, *error)),
            Body::Error(error) => {
                writer.write_all(&only_chunk(self.cookie, chunk::ERROR, 6))?;
                writer.write_all(&(*error as u32).to_be_bytes())?;
                // The length of a message for people, which is empty.
                writer.write_all(&[0, 0])
            }
            Body::Plain(bytes) => {
                writer.write_all(&simple_reply(self.cookie, None))?;
                writer.write_all(bytes)
            }
            Body::Data { offset, bytes } => {
                writer.write_all(&only_chunk(self.cookie, chunk::OFFSET_DATA, bytes.len() as u32 + 8))?;
                writer.write_all(&offset.to_be_bytes())?;
                writer.write_all(bytes)
            }
            Body::Status(runs) => {
                writer.write_all(&only_chunk(self.cookie, chunk::BLOCK_STATUS, 4 + 8 * runs.len() as u32))?;
                writer.write_all(&BASE_ALLOCATION_ID.to_be_bytes())?;
                for (len, state) in runs {
                    writer.write_all(&len.to_be_bytes())?;
                    writer.write_all(&state.to_be_bytes())?;
                }
                Ok(())
            }
        }
    }
}

/// The error number for a failure of the store.
pub(crate) fn errno(error: &StoreError) -> Errno {
    match error {
        StoreError::OutOfRange { .. } => Errno::Inval,
        StoreError::ReadOnly => Errno::Perm,
        StoreError::NoSpace => Errno::NoSpc,
        StoreError::FlushFailed(_) | StoreError::Refused { .. } | StoreError::Io(_) => Errno::Io,
    }
}

/// The block status of `len` bytes. Bytes that the store does not report count as allocated.
pub(crate) fn status(runs: &[Run], len: u32, only_one: bool) -> Vec<(u32, u32)> {
    let mut left = len;
    let mut found = Vec::new();
    for run in runs.iter().take(if only_one { 1 } else { runs.len() }) {
        let run_len = u32::try_from(run.len).unwrap_or(u32::MAX).min(left);
        if run_len > 0 {
            found.push((run_len, if run.allocated { 0 } else { STATE_HOLE | STATE_ZERO }));
            left -= run_len;
        }
    }
    if found.is_empty() {
        found.push((len, 0));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_status_stays_within_what_was_asked() {
        let runs = [Run { len: 4096, allocated: false }, Run { len: u64::MAX, allocated: true }];
        assert_eq!(status(&runs, 8192, false), [(4096, 3), (4096, 0)]);
        assert_eq!(status(&runs, 8192, true), [(4096, 3)]);
        assert_eq!(status(&runs, 512, false), [(512, 3)]);
        assert_eq!(status(&[], 512, true), [(512, 0)]);
    }
}
