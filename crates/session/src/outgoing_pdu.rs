//! A PDU that leaves the outbox as a whole.

use lunette_buffer::Payload;
use lunette_pdu::{BHS_LEN, pad_len};

/// A PDU for a transport that keeps PDUs apart and has no digests of its own.
#[derive(Debug, Clone)]
pub struct OutgoingPdu {
    /// The basic header segment.
    pub bhs: [u8; BHS_LEN],
    /// Additional header segments; mostly empty.
    pub ahs: Box<[u8]>,
    /// The data segment without its pad, or the first run of it.
    pub data: Payload,
    /// The runs that follow, where the data lies in several places.
    pub more: Vec<Payload>,
    /// The length of the blocks that the data is made of, for a transport whose packets should not cut some; 0 where it
    /// is not known.
    pub block_len: u16,
}

/// The PDUs that a transport which keeps PDUs apart has taken, and its peer has not acknowledged: all from the first
/// PDU on with a missing byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unacknowledged {
    /// Bytes of these PDUs.
    pub bytes: usize,
    /// The bytes of data segments in it.
    pub data_bytes: usize,
}

impl OutgoingPdu {
    /// Bytes of the data segment.
    pub fn data_len(&self) -> usize {
        self.data.len() + self.more.iter().map(Payload::len).sum::<usize>()
    }

    /// Bytes that follow the basic header segment, pad included.
    pub fn body_len(&self) -> usize {
        let data_len = self.data_len();
        self.ahs.len() + data_len + pad_len(data_len)
    }
}
