//! A packet that is built.

use crate::header::HEADER_LEN;
use crate::limits::MAX_DATAGRAM_LEN;
use crate::outgoing::{Cut, Outgoing};

/// What fills probes.
static ZEROES: [u8; MAX_DATAGRAM_LEN] = [0; MAX_DATAGRAM_LEN];

/// A packet that waits for the socket.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) header: [u8; HEADER_LEN],
    pub(super) body: Body,
}

/// Where the payload is.
#[derive(Debug)]
pub(super) enum Body {
    /// In the PDUs that are kept. When they are acknowledged before the packet leaves, it leaves without them, and the peer drops it.
    Cut(Cut),
    /// Made for the packet.
    Bytes(Box<[u8]>),
    /// So many zeroes.
    Zeroes(usize),
}

impl Packet {
    /// Calls `f` with the header and the slices of the payload.
    pub(super) fn for_each_slice<'a>(&'a self, outgoing: &'a Outgoing, mut f: impl FnMut(&'a [u8])) {
        f(&self.header);
        match &self.body {
            Body::Cut(cut) => outgoing.for_each_slice(*cut, f),
            Body::Bytes(bytes) if bytes.is_empty() => {}
            Body::Bytes(bytes) => f(bytes),
            Body::Zeroes(len) => f(&ZEROES[..*len]),
        }
    }
}
