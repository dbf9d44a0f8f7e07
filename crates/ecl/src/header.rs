//! The one header of a packet, 128 bytes, as a table.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0 | version, type | 4 bits each: [`VERSION`], [`PacketType`] |
//! | 1 | flags | [`Flags`] |
//! | 2 | log₂ Q | the quantum of the unit that the data belongs to; 0 where there is none |
//! | 3 | | 0 |
//! | 4 | association | the receiver's number for the association |
//! | 8 | packet number | counts the packets of one direction; no number is used twice |
//! | 16 | acknowledged | the largest packet number received; all ones before there is one |
//! | 24 | acknowledged bits | bit *i*: the packet *i* + 1 before it was received, too |
//! | 32 | credit | up to where in the stream the receiver takes bytes, in units of [`CREDIT_UNIT`] bytes |
//! | 36 | acknowledgement delay | µs from the receipt of the acknowledged packet to the sending of this one |
//! | 40 | congestion count | packets that came with ECN's mark "congestion experienced" |
//! | 44 | payload check | CRC32C of the payload |
//! | 48 | stream offset | where in the stream of its direction the packet's first byte stands |
//! | 56 | PDU offset | bytes of the PDU, beyond its basic header segment, that stand before the payload |
//! | 60 | | 0 |
//! | 64 | header check | authenticates bytes 0 to 63 and 80 to 127: module `protection` |
//! | 80 | basic header segment | of the PDU that the payload belongs to (RFC 7143 section 11.2.1); zeroes where there is none |
//!
//! The stream of a direction is what a TCP connection without digests would carry: PDU after PDU, each with its basic
//! header segment, additional ones, data and pad. A PDU that is longer than a packet may be travels in several, each
//! with the same basic header segment. It counts in the stream once, in the packet whose PDU offset is 0.

use lunette_pdu::BHS_LEN;

/// The version of the protocol that this crate speaks.
pub const VERSION: u8 = 1;

/// The length of a packet's header.
pub const HEADER_LEN: usize = 128;

/// The length of the header check.
pub const CHECK_LEN: usize = 16;

/// Where the receiver's number for the association stands: 4 bytes.
pub const ASSOCIATION_AT: usize = 4;

/// Where the header check stands.
pub const CHECK_AT: usize = 64;

/// Where the basic header segment stands.
pub const BHS_AT: usize = CHECK_AT + CHECK_LEN;
const _: () = assert!(BHS_AT + BHS_LEN == HEADER_LEN);

/// Stream bytes in a unit of credit. With 32 bits that is a window of up to 8 TiB, of which half can be told apart.
pub const CREDIT_UNIT: u64 = 2048;

/// "Nothing is acknowledged": as a packet number it is never reached.
pub const NOTHING_ACKNOWLEDGED: u64 = u64::MAX;

/// The purpose of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// The client begins an association, without or with a token of [`Retry`](Self::Retry). Not authenticated.
    Initial = 1,
    /// The server asks the client to prove its address: the payload is a token. Not authenticated.
    Retry = 2,
    /// The server agrees to an association. Not authenticated by itself: it is the second message of the key exchange.
    Accept = 3,
    /// Bytes of the stream.
    Stream = 4,
    /// Acknowledges and credits, with ranges of packet numbers in the payload when the header has no room for them.
    Ack = 5,
    /// Asks whether the path carries packets of this length, and for an acknowledgement.
    Probe = 6,
    /// Asks whether the peer is at the address to which it is sent: 8 random bytes.
    PathChallenge = 7,
    /// Answers with the same bytes.
    PathResponse = 8,
    /// The sender has ended the association; the payload is a code and text.
    Close = 9,
    /// The server knows no such association. In the place of the header check is a token that proves that it is the
    /// server.
    Reset = 10,
}

impl PacketType {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Initial,
        Self::Retry,
        Self::Accept,
        Self::Stream,
        Self::Ack,
        Self::Probe,
        Self::PathChallenge,
        Self::PathResponse,
        Self::Close,
        Self::Reset,
    ];

    /// The type of that number.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1..=10 => Some(Self::ALL[number as usize - 1]),
            _ => None,
        }
    }

    /// Whether its header is authenticated with the keys of the association.
    pub const fn is_protected(self) -> bool {
        !matches!(self, Self::Initial | Self::Retry | Self::Accept | Self::Reset)
    }

    /// Whether the receiver acknowledges it: it is sent again, or something in its place, when it is lost (RFC 9002's
    /// ack-eliciting).
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::Stream | Self::Probe | Self::PathChallenge | Self::PathResponse)
    }
}

/// Bits of byte 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The basic header segment and the payload are encrypted.
    pub const SEALED: Self = Self(0x01);
    /// The keys are those that the login has confirmed.
    pub const BOUND: Self = Self(0x02);
    /// The receiver should acknowledge at once.
    pub const ACK_NOW: Self = Self(0x04);
    /// The payload is whole quanta with their slots: [`Header::log2_quantum`] says of which length.
    pub const QUANTA: Self = Self(0x08);

    const KNOWN: u8 = 0x0f;

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A header, but for its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The purpose of the packet.
    pub packet_type: PacketType,
    /// More about it.
    pub flags: Flags,
    /// log₂ of the quantum's bytes, or 0.
    pub log2_quantum: u8,
    /// The receiver's number for the association.
    pub association: u32,
    /// The packet's number.
    pub packet_number: u64,
    /// The packets that the sender has received.
    pub acknowledged: Acknowledged,
    /// Up to where the sender takes the other stream, in units of [`CREDIT_UNIT`], modulo 2³².
    pub credit: u32,
    /// Packets that came marked, modulo 2³².
    pub congestion_count: u32,
    /// CRC32C of the payload.
    pub payload_check: u32,
    /// Where in the stream the packet's first byte stands.
    pub stream_offset: u64,
    /// Where in its PDU the payload begins, without the basic header segment.
    pub pdu_offset: u32,
    /// The basic header segment of that PDU.
    pub bhs: [u8; BHS_LEN],
}

/// The part of every header about packets of the other direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// The largest number received, or [`NOTHING_ACKNOWLEDGED`].
    pub largest: u64,
    /// Bit *i*: `largest − 1 − i` was received.
    pub bits: u64,
    /// µs since `largest` was received.
    pub delay_us: u32,
}

impl Acknowledged {
    /// Nothing was received.
    pub const NOTHING: Self = Self { largest: NOTHING_ACKNOWLEDGED, bits: 0, delay_us: 0 };
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Shorter than a header.
    #[error("{0} bytes are no packet: a header has {HEADER_LEN}")]
    Short(usize),
    /// Another version of the protocol.
    #[error("version {0}, and this is version {VERSION}")]
    Version(u8),
    /// No such type.
    #[error("unknown packet type {0}")]
    Type(u8),
    /// A bit or byte that must be zero is not.
    #[error("reserved bits at byte {0} are set")]
    Reserved(usize),
    /// A quantum that there is not.
    #[error("2^{0} is no quantum's length")]
    Quantum(u8),
    /// A packet cannot acknowledge more than there can be.
    #[error("acknowledges packets before the first one")]
    Acknowledged,
}

impl Header {
    /// A header of a packet that belongs to no PDU.
    pub const fn new(packet_type: PacketType, association: u32, packet_number: u64) -> Self {
        Self {
            packet_type,
            flags: Flags(0),
            log2_quantum: 0,
            association,
            packet_number,
            acknowledged: Acknowledged::NOTHING,
            credit: 0,
            congestion_count: 0,
            payload_check: 0,
            stream_offset: 0,
            pdu_offset: 0,
            bhs: [0; BHS_LEN],
        }
    }

    /// The bytes, with a check of zeroes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = VERSION << 4 | self.packet_type as u8;
        bytes[1] = self.flags.0;
        bytes[2] = self.log2_quantum;
        bytes[ASSOCIATION_AT..8].copy_from_slice(&self.association.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.packet_number.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.acknowledged.largest.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.acknowledged.bits.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.credit.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.acknowledged.delay_us.to_be_bytes());
        bytes[40..44].copy_from_slice(&self.congestion_count.to_be_bytes());
        bytes[44..48].copy_from_slice(&self.payload_check.to_be_bytes());
        bytes[48..56].copy_from_slice(&self.stream_offset.to_be_bytes());
        bytes[56..60].copy_from_slice(&self.pdu_offset.to_be_bytes());
        bytes[BHS_AT..].copy_from_slice(&self.bhs);
        bytes
    }

    /// Reads a header from the front of a packet. The check is not looked at, and a [sealed](Flags::SEALED) basic
    /// header segment is ciphertext.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] when the bytes are no header of this version.
    pub fn parse(packet: &[u8]) -> Result<Self, HeaderError> {
        let bytes = packet.first_chunk::<HEADER_LEN>().ok_or(HeaderError::Short(packet.len()))?;
        if bytes[0] >> 4 != VERSION {
            return Err(HeaderError::Version(bytes[0] >> 4));
        }
        let packet_type = PacketType::of(bytes[0] & 0x0f).ok_or(HeaderError::Type(bytes[0] & 0x0f))?;
        if bytes[1] & !Flags::KNOWN != 0 {
            return Err(HeaderError::Reserved(1));
        }
        if !matches!(bytes[2], 0 | 9..=12) {
            return Err(HeaderError::Quantum(bytes[2]));
        }
        if bytes[3] != 0 {
            return Err(HeaderError::Reserved(3));
        }
        if let Some(at) = (60..CHECK_AT).find(|at| bytes[*at] != 0) {
            return Err(HeaderError::Reserved(at));
        }
        let acknowledged =
            Acknowledged { largest: u64_at(bytes, 16), bits: u64_at(bytes, 24), delay_us: u32_at(bytes, 36) };
        let reaches_back = u64::from(64 - acknowledged.bits.leading_zeros());
        if acknowledged.largest.wrapping_add(1) <= reaches_back && reaches_back > 0 {
            return Err(HeaderError::Acknowledged);
        }
        let mut bhs = [0; BHS_LEN];
        bhs.copy_from_slice(&bytes[BHS_AT..]);
        Ok(Self {
            packet_type,
            flags: Flags(bytes[1]),
            log2_quantum: bytes[2],
            association: u32_at(bytes, ASSOCIATION_AT),
            packet_number: u64_at(bytes, 8),
            acknowledged,
            credit: u32_at(bytes, 32),
            congestion_count: u32_at(bytes, 40),
            payload_check: u32_at(bytes, 44),
            stream_offset: u64_at(bytes, 48),
            pdu_offset: u32_at(bytes, 56),
            bhs,
        })
    }

    /// Whether the packet's first stream byte is that of its basic header segment, and not of its payload.
    pub const fn begins_pdu(&self) -> bool {
        self.pdu_offset == 0
    }
}

/// The association that a packet is for, when the bytes are as long as a header. Nothing else of it is looked at.
pub fn association_of(packet: &[u8]) -> Option<u32> {
    packet.first_chunk::<HEADER_LEN>().map(|bytes| u32_at(bytes, ASSOCIATION_AT))
}

/// Whether a packet says that it is a Reset. Nothing else of it is looked at.
pub const fn is_reset(packet: &[u8]) -> bool {
    matches!(packet.first(), Some(first) if *first & 0x0f == PacketType::Reset as u8)
}

fn u32_at(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("a field lies within the header"))
}

fn u64_at(bytes: &[u8; HEADER_LEN], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("a field lies within the header"))
}

#[cfg(test)]
mod tests;
