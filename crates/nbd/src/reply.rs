//! Replies to the client.

use arrayvec::ArrayVec;
use lunette_buffer::Payload;
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
    Plain(Payload),
    /// The bytes of a read, in a structured reply.
    Data { offset: u64, bytes: Payload },
    /// Lengths and states of `base:allocation`, as they go out.
    Status(Vec<u8>),
}

/// The bytes of a reply before its [payload](Reply::payload): a header, and what follows in a chunk.
pub(crate) type Head = ArrayVec<u8, 28>;

impl Reply {
    /// The bytes before the payload.
    pub(crate) fn head(&self) -> Head {
        let mut head = Head::new();
        let mut put = |bytes: &[u8]| head.try_extend_from_slice(bytes).expect("the longest head fits");
        match &self.body {
            Body::Simple(error) => put(&simple_reply(self.cookie, *error)),
            Body::Error(error) => {
                put(&only_chunk(self.cookie, chunk::ERROR, 6));
                put(&(*error as u32).to_be_bytes());
                // The length of a message for people, which is empty.
                put(&[0, 0]);
            }
            Body::Plain(_) => put(&simple_reply(self.cookie, None)),
            Body::Data { offset, bytes } => {
                put(&only_chunk(self.cookie, chunk::OFFSET_DATA, bytes.len() as u32 + 8));
                put(&offset.to_be_bytes());
            }
            Body::Status(runs) => {
                put(&only_chunk(self.cookie, chunk::BLOCK_STATUS, 4 + runs.len() as u32));
                put(&BASE_ALLOCATION_ID.to_be_bytes());
            }
        }
        head
    }

    /// The length of the bytes behind the head.
    pub(crate) fn payload_len(&self) -> usize {
        match &self.body {
            Body::Simple(_) | Body::Error(_) => 0,
            Body::Plain(bytes) | Body::Data { bytes, .. } => bytes.len(),
            Body::Status(runs) => runs.len(),
        }
    }

    /// The bytes behind the head, from `at` on as far as they lie in one place.
    pub(crate) fn payload_at(&self, at: usize) -> &[u8] {
        match &self.body {
            Body::Simple(_) | Body::Error(_) => &[],
            Body::Plain(bytes) | Body::Data { bytes, .. } => bytes.run_at(at),
            Body::Status(runs) => runs.get(at..).unwrap_or_default(),
        }
    }
}

/// The error number for a failure of the store.
pub(crate) fn errno(error: &StoreError) -> Errno {
    match error {
        StoreError::ReadOnly => Errno::Perm,
        StoreError::NoSpace => Errno::NoSpc,
        // What a client asks for beyond the announced size is refused before. So the disk has become shorter.
        StoreError::OutOfRange { .. }
        | StoreError::FlushFailed(_)
        | StoreError::Refused { .. }
        | StoreError::ShutOut(_)
        | StoreError::Gone(_)
        | StoreError::Unreadable { .. }
        | StoreError::Io(_) => Errno::Io,
    }
}

/// The payload of the block status of `len` bytes.
pub(crate) fn status_bytes(runs: &[Run], len: u32, only_one: bool) -> Vec<u8> {
    let words = status(runs, len, only_one).into_iter().flat_map(|(len, state)| [len, state]);
    words.flat_map(u32::to_be_bytes).collect()
}

/// The block status of `len` bytes. Bytes that the store does not report count as allocated.
fn status(runs: &[Run], len: u32, only_one: bool) -> Vec<(u32, u32)> {
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
    fn a_disk_that_has_become_shorter_is_no_mistake_of_the_client() {
        let cut = StoreError::OutOfRange { offset: 0, len: 4096, store_len: 512 };
        assert_eq!(errno(&cut), Errno::Io);
    }

    #[test]
    fn block_status_stays_within_what_was_asked() {
        let runs = [Run { len: 4096, allocated: false }, Run { len: u64::MAX, allocated: true }];
        assert_eq!(status(&runs, 8192, false), [(4096, 3), (4096, 0)]);
        assert_eq!(status(&runs, 8192, true), [(4096, 3)]);
        assert_eq!(status(&runs, 512, false), [(512, 3)]);
        assert_eq!(status(&[], 512, true), [(512, 0)]);
    }
}
