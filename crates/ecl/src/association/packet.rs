//! A packet that is built.

use crate::header::HEADER_LEN;
use crate::limits::MAX_DATAGRAM_LEN;
use crate::outgoing::{Cut, Outgoing, Slices};

/// The filling of probes.
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
    /// In the PDUs that are kept. When they are acknowledged before the packet leaves, it leaves without them, and the
    /// peer drops it.
    Cut(Cut),
    /// Made for the packet.
    Bytes(Box<[u8]>),
    /// A run of zeroes of this length.
    Zeroes(usize),
}

impl Packet {
    /// The payload, as it lies in memory.
    pub(super) fn payload<'a>(&'a self, outgoing: &'a Outgoing) -> Slices<'a> {
        match &self.body {
            Body::Cut(cut) => outgoing.slices(*cut),
            Body::Bytes(bytes) => Slices::of(bytes),
            Body::Zeroes(len) => Slices::of(&ZEROES[..*len]),
        }
    }
}
