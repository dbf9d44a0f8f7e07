//! A buffer in which PDUs are written where they are sent from, one behind the other.

use lunette_buffer::{Buffer, Payload};
use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{BHS_LEN, DIGEST_LEN, pad_len};

use super::{Digests, Part};

/// The last PDUs of an outbox: those whose data was put into its place by the one that answers.
pub(super) struct Sheet {
    buffer: Buffer,
    filled: usize,
    pdus: u16,
}

impl Sheet {
    pub(super) fn new(buffer: Buffer) -> Self {
        Self { buffer, filled: 0, pdus: 0 }
    }

    /// The bytes that are ready to be sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    pub(super) fn len(&self) -> usize {
        self.filled
    }

    pub(super) fn room(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn pdus(&self) -> u16 {
        self.pdus
    }

    /// Whether a PDU of `len` bytes fits behind the others.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.buffer.len() - self.filled >= len && self.pdus < u16::MAX
    }

    /// Where the data segment of the next PDU lies. There is room for it.
    #[inline]
    pub(super) fn place(&mut self, data_len: usize, digests: Digests) -> &mut [u8] {
        let at = self.filled + digests.head_len();
        &mut self.buffer[at..at + data_len]
    }

    /// Adds the PDU whose data segment is in its [`place`](Self::place). Gives its length.
    #[inline]
    pub(super) fn push(&mut self, bhs: &[u8; BHS_LEN], data_len: usize, digests: Digests) -> usize {
        let len = digests.pdu_len(data_len);
        let pdu = &mut self.buffer[self.filled..self.filled + len];
        let (head, body) = pdu.split_at_mut(digests.head_len());
        head[..BHS_LEN].copy_from_slice(bhs);
        if digests.header {
            head[BHS_LEN..].copy_from_slice(&to_wire(crc32c(bhs)));
        }
        let padded = data_len + pad_len(data_len);
        body[data_len..padded].fill(0);
        if digests.data && data_len > 0 {
            let digest = to_wire(crc32c(&body[..padded]));
            body[padded..padded + DIGEST_LEN].copy_from_slice(&digest);
        }
        self.filled += len;
        self.pdus += 1;
        len
    }

    /// The bytes as a part of the queue: other PDUs follow.
    pub(super) fn into_part(self) -> Part {
        let Self { mut buffer, filled, pdus } = self;
        buffer.truncate(filled);
        Part { ended_pdus: pdus, ..Part::of(Payload::from(buffer)) }
    }
}
