//! Ready To Transfer (RFC 7143, 11.8).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber, TargetTransferTag};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    head: Head,
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    r2t_sn: U32,
    buffer_offset: U32,
    desired_data_transfer_length: U32,
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// A target's request for data of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct R2t {
    /// The LUN, for the Data-Out PDUs to copy.
    pub lun: LunField,
    /// The tag of the task.
    pub itt: InitiatorTaskTag,
    /// The target's tag for this transfer, for the Data-Out PDUs to copy. Never reserved.
    pub ttt: TargetTransferTag,
    /// The next status number; this PDU does not use it up.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// The number of this PDU among the command's R2Ts (and Data-Ins, when bidirectional), from 0.
    pub r2t_sn: u32,
    /// The offset of the wanted bytes in the command's data.
    pub buffer_offset: u32,
    /// The number of wanted bytes. Never 0, never above `MaxBurstLength`.
    pub desired_data_transfer_length: u32,
}

impl R2t {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::R2T;

    /// Parses an R2T. Offset and length are the peer's claim; that they lie inside the command's
    /// data is for the session to check.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when anything follows the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_header_only()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: TargetTransferTag(wire.ttt.get()),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            r2t_sn: wire.r2t_sn.get(),
            buffer_offset: wire.buffer_offset.get(),
            desired_data_transfer_length: wire.desired_data_transfer_length.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            r2t_sn: self.r2t_sn.into(),
            buffer_offset: self.buffer_offset.into(),
            desired_data_transfer_length: self.desired_data_transfer_length.into(),
        })
    }
}
