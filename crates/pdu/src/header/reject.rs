//! Reject (RFC 7143, 11.17).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, Opcode, PduError, SerialNumber};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// The reason is byte 2.
    head: Head,
    reserved8: [u8; 8],
    /// Always the reserved tag.
    itt: U32,
    reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    data_sn: U32,
    reserved40: [u8; 8],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The reason why a PDU was rejected (RFC 7143, 11.17.1).
    RejectReason {
        DATA_DIGEST_ERROR = 0x02, "data digest error";
        SNACK_REJECT = 0x03, "SNACK reject";
        PROTOCOL_ERROR = 0x04, "protocol error";
        COMMAND_NOT_SUPPORTED = 0x05, "command not supported";
        TOO_MANY_IMMEDIATE_COMMANDS = 0x06, "too many immediate commands";
        TASK_IN_PROGRESS = 0x07, "task in progress";
        INVALID_DATA_ACK = 0x08, "invalid data acknowledgment";
        INVALID_PDU_FIELD = 0x09, "invalid PDU field";
        OUT_OF_RESOURCES = 0x0a, "out of resources for a long operation";
        /// Never sent: RFC 7143 withdrew it.
        NEGOTIATION_RESET = 0x0b, "negotiation reset";
        WAITING_FOR_LOGOUT = 0x0c, "waiting for logout";
    }
}

/// A target's refusal of a PDU, whose header is in the data segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reject {
    /// The reason of the refusal.
    pub reason: RejectReason,
    /// The status number of this PDU.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// When a Data/R2T SNACK was refused as a protocol error: the `DataSN` or `R2TSN` that the target
    /// would send next for the task. Otherwise reserved.
    pub data_sn: u32,
    /// Bytes of rejected header.
    pub data_segment_len: usize,
}

impl Reject {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::REJECT;

    /// Parses a Reject.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        let [reason, _] = wire.head.specific;
        Ok(Self {
            reason: RejectReason(reason),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            data_sn: wire.data_sn.get(),
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL).specific(self.reason.0, 0).data_segment_len(self.data_segment_len),
            itt: InitiatorTaskTag::RESERVED.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            data_sn: self.data_sn.into(),
            ..Wire::new_zeroed()
        })
    }
}
