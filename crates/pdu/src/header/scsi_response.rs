//! SCSI Response (RFC 7143, 11.4; RFC 7144 adds the status qualifier).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head, has};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, Opcode, PduError, SerialNumber};

/// O and U bits, for the data written or read.
const RESIDUAL_BITS: ResidualBits = ResidualBits { overflow: 0x04, underflow: 0x02 };
/// o and u bits, for the data read by a bidirectional command.
const BIDI_READ_RESIDUAL_BITS: ResidualBits = ResidualBits { overflow: 0x10, underflow: 0x08 };

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// The response code is byte 2, the status byte 3.
    head: Head,
    status_qualifier: U16,
    reserved10: [u8; 6],
    itt: U32,
    snack_tag: U32,
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    exp_data_sn: U32,
    bidi_read_residual_count: U32,
    residual_count: U32,
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// Whether the target executed the command (RFC 7143, 11.4.3).
    ScsiResponseCode {
        COMMAND_COMPLETED = 0x00, "command completed at target";
        TARGET_FAILURE = 0x01, "target failure";
    }
}

/// The difference between the bytes moved and those that the initiator expected (RFC 7143, 11.4.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Residual {
    /// The expected number of bytes was moved.
    #[default]
    None,
    /// The number of bytes that could not be moved, because the initiator did not expect them.
    Overflow(u32),
    /// The number of expected bytes that were not moved.
    Underflow(u32),
}

/// The positions of a pair of residual bits in the flags byte.
#[derive(Clone, Copy)]
pub(super) struct ResidualBits {
    pub(super) overflow: u8,
    pub(super) underflow: u8,
}

impl Residual {
    /// Reads a residual; the count is reserved when no bit is set.
    #[inline]
    pub(super) fn parse(bhs: &Bhs, bits: ResidualBits, count: U32) -> Result<Self, PduError> {
        let flags = bhs.flags();
        match (has(flags, bits.overflow), has(flags, bits.underflow)) {
            (false, false) => Ok(Self::None),
            (true, false) => Ok(Self::Overflow(count.get())),
            (false, true) => Ok(Self::Underflow(count.get())),
            (true, true) => Err(bhs.illegal_combination("overflow and underflow must not both be set")),
        }
    }

    /// The flag and the count to send.
    pub(super) const fn emit(self, bits: ResidualBits) -> (u8, u32) {
        match self {
            Self::None => (0, 0),
            Self::Overflow(count) => (bits.overflow, count),
            Self::Underflow(count) => (bits.underflow, count),
        }
    }
}

/// The end of a SCSI command. Sense data and response data are in the data segment ([`crate::sense`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScsiResponse {
    /// Whether the target executed the command.
    pub response: ScsiResponseCode,
    /// The SCSI status (SAM-5, 5.3). Valid when `response` says completed.
    pub status: u8,
    /// Detail that SAM-5, 5.3.2 adds to some statuses; 0 adds nothing (RFC 7144).
    pub status_qualifier: u16,
    /// The tag of the task.
    pub itt: InitiatorTaskTag,
    /// The tag of the last R-Data SNACK for this command, or 0.
    pub snack_tag: u32,
    /// The status number of this response.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// The number of Data-In and R2T PDUs that the target sent for the command.
    pub exp_data_sn: u32,
    /// The residual of the data written or, when the command is not bidirectional, read.
    pub residual: Residual,
    /// The residual of the data read by a bidirectional command.
    pub bidi_read_residual: Residual,
    /// Bytes of sense and response data.
    pub data_segment_len: usize,
}

impl ScsiResponse {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::SCSI_RESPONSE;

    /// Parses a SCSI Response.
    ///
    /// # Errors
    ///
    /// [`PduError`] when a residual both overflows and underflows (a protocol error by RFC 7143,
    /// 11.4.1), or when there are additional header segments.
    #[inline]
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        let [response, status] = wire.head.specific;
        Ok(Self {
            response: ScsiResponseCode(response),
            status,
            status_qualifier: wire.status_qualifier.get(),
            itt: bhs.itt(),
            snack_tag: wire.snack_tag.get(),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            exp_data_sn: wire.exp_data_sn.get(),
            residual: Residual::parse(bhs, RESIDUAL_BITS, wire.residual_count)?,
            bidi_read_residual: Residual::parse(bhs, BIDI_READ_RESIDUAL_BITS, wire.bidi_read_residual_count)?,
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        let (residual_flag, residual_count) = self.residual.emit(RESIDUAL_BITS);
        let (bidi_flag, bidi_count) = self.bidi_read_residual.emit(BIDI_READ_RESIDUAL_BITS);
        let flags = FINAL | residual_flag | bidi_flag;
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, flags)
                .specific(self.response.0, self.status)
                .data_segment_len(self.data_segment_len),
            status_qualifier: self.status_qualifier.into(),
            itt: self.itt.0.into(),
            snack_tag: self.snack_tag.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            exp_data_sn: self.exp_data_sn.into(),
            bidi_read_residual_count: bidi_count.into(),
            residual_count: residual_count.into(),
            ..Wire::new_zeroed()
        })
    }
}
