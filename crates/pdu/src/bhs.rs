//! The view over a basic header segment that serves all PDUs (RFC 7143, 11.2.1).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{BHS_LEN, InitiatorTaskTag, LunField, MAX_AHS_LEN, MAX_DATA_SEGMENT_LEN, Opcode, PduError};

/// Bit of byte 0 that marks a request for immediate delivery.
const IMMEDIATE: u8 = 0x40;

/// Bit of byte 1 that ends a sequence; the RFC's F bit. PDUs without sequences send it as one.
pub(crate) const FINAL: u8 = 0x80;

/// Bit of byte 1 that says more text follows; the C bit of Login and Text PDUs.
pub(crate) const CONTINUE: u8 = 0x40;

/// The eight bytes that every header starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    /// Byte 0: I bit and opcode.
    first: u8,
    /// Byte 1: the F bit, and flags of the PDU's own.
    pub(crate) flags: u8,
    /// Bytes 2 and 3, which each PDU defines.
    pub(crate) specific: [u8; 2],
    /// Byte 4: `TotalAHSLength`, in words of four bytes.
    total_ahs_words: u8,
    /// Bytes 5 to 7: `DataSegmentLength`, in bytes without pad.
    data_segment_len: [u8; 3],
}

impl Head {
    /// The start of a header with no segments behind it.
    pub(crate) const fn new(opcode: Opcode, flags: u8) -> Self {
        Self { first: opcode.0 & Opcode::MASK, flags, specific: [0; 2], total_ahs_words: 0, data_segment_len: [0; 3] }
    }

    pub(crate) const fn immediate(mut self, immediate: bool) -> Self {
        self.first |= bit(immediate, IMMEDIATE);
        self
    }

    pub(crate) const fn specific(mut self, byte2: u8, byte3: u8) -> Self {
        self.specific = [byte2, byte3];
        self
    }

    /// Sets `TotalAHSLength`. A length that the field cannot hold is a mistake of the caller that
    /// would shift every byte that follows, hence the assertion.
    pub(crate) const fn ahs_len(mut self, len: usize) -> Self {
        assert!(len <= MAX_AHS_LEN && len.is_multiple_of(4), "AHS length must be a multiple of 4, at most MAX_AHS_LEN");
        self.total_ahs_words = (len / 4) as u8;
        self
    }

    /// Sets `DataSegmentLength`. A length that the field cannot hold is a mistake of the caller that
    /// would shift every byte that follows, hence the assertion.
    pub(crate) const fn data_segment_len(mut self, len: usize) -> Self {
        assert!(len <= MAX_DATA_SEGMENT_LEN, "data segment is longer than MAX_DATA_SEGMENT_LEN");
        let [_, high, middle, low] = (len as u32).to_be_bytes();
        self.data_segment_len = [high, middle, low];
        self
    }
}

/// A basic header segment: 48 bytes with the fields that all PDUs share.
///
/// ```
/// use lunette_pdu::{Bhs, Opcode};
///
/// let mut bytes = [0; 48];
/// bytes[..8].copy_from_slice(&[0x41, 0x80, 0, 0, 2, 0x01, 0x00, 0x05]);
/// let bhs = Bhs::ref_from(&bytes).unwrap();
/// assert_eq!(bhs.opcode(), Opcode::SCSI_COMMAND);
/// assert!(bhs.immediate());
/// assert_eq!(bhs.ahs_len(), 8);
/// assert_eq!(bhs.data_segment_len(), 0x1_0005);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bhs {
    head: Head,
    /// Bytes 8 to 15: the LUN, or another field of the PDU in its place.
    lun: [u8; 8],
    /// Bytes 16 to 19: the initiator task tag.
    itt: U32,
    /// Bytes 20 to 47, which each PDU defines.
    rest: [u8; 28],
}

const _: () = assert!(size_of::<Bhs>() == BHS_LEN);

impl Bhs {
    /// Views `bytes` as a header, or returns `None` when they are not [`BHS_LEN`] bytes.
    #[inline]
    pub fn ref_from(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_bytes(bytes).ok()
    }

    /// The header's bytes.
    pub fn as_array(&self) -> &[u8; BHS_LEN] {
        zerocopy::transmute_ref!(self)
    }

    /// The operation code.
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.head.first & Opcode::MASK)
    }

    /// The I bit: the request does not wait for its turn in `CmdSN` order.
    pub const fn immediate(&self) -> bool {
        has(self.head.first, IMMEDIATE)
    }

    /// The F bit, which Login PDUs call T: the first bit of byte 1.
    pub const fn final_bit(&self) -> bool {
        has(self.head.flags, FINAL)
    }

    /// All of byte 1.
    pub const fn flags(&self) -> u8 {
        self.head.flags
    }

    /// Length of all additional header segments, in bytes. At most [`MAX_AHS_LEN`].
    pub const fn ahs_len(&self) -> usize {
        self.head.total_ahs_words as usize * 4
    }

    /// Length of the data segment, in bytes, without its pad. At most [`MAX_DATA_SEGMENT_LEN`].
    pub const fn data_segment_len(&self) -> usize {
        let [high, middle, low] = self.head.data_segment_len;
        u32::from_be_bytes([0, high, middle, low]) as usize
    }

    /// Bytes 8 to 15. In PDUs without a LUN they are reserved or hold something else.
    pub const fn lun(&self) -> LunField {
        LunField(self.lun)
    }

    /// The initiator task tag.
    pub const fn itt(&self) -> InitiatorTaskTag {
        InitiatorTaskTag(self.itt.get())
    }

    /// Refuses the header of another PDU.
    #[inline]
    pub(crate) fn expect_opcode(&self, expected: Opcode) -> Result<(), PduError> {
        let found = self.opcode();
        if found == expected { Ok(()) } else { Err(PduError::WrongOpcode { expected, found }) }
    }

    /// Refuses additional header segments: only the SCSI Command has them (RFC 7143, 11.2.1.5).
    #[inline]
    pub(crate) fn expect_no_ahs(&self) -> Result<(), PduError> {
        self.expect_empty("TotalAHSLength", self.ahs_len())
    }

    /// Refuses segments of any kind, for PDUs that consist of a header alone.
    pub(crate) fn expect_header_only(&self) -> Result<(), PduError> {
        self.expect_no_ahs()?;
        self.expect_empty("DataSegmentLength", self.data_segment_len())
    }

    #[inline]
    fn expect_empty(&self, field: &'static str, len: usize) -> Result<(), PduError> {
        if len == 0 {
            return Ok(());
        }
        Err(PduError::Length { opcode: self.opcode(), field, len, max: 0 })
    }

    /// The error for flags that contradict each other.
    pub(crate) fn illegal_combination(&self, rule: &'static str) -> PduError {
        PduError::IllegalCombination { opcode: self.opcode(), rule, flags: self.flags() }
    }
}

impl From<[u8; BHS_LEN]> for Bhs {
    fn from(bytes: [u8; BHS_LEN]) -> Self {
        zerocopy::transmute!(bytes)
    }
}

impl From<Bhs> for [u8; BHS_LEN] {
    fn from(bhs: Bhs) -> Self {
        zerocopy::transmute!(bhs)
    }
}

/// Whether any bit of `mask` is set in `byte`.
pub(crate) const fn has(byte: u8, mask: u8) -> bool {
    byte & mask != 0
}

/// `mask` when `on`, else 0.
pub(crate) const fn bit(on: bool, mask: u8) -> u8 {
    if on { mask } else { 0 }
}
