//! NOP-Out (RFC 7143, 11.18).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber, TargetTransferTag};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    head: Head,
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    cmd_sn: U32,
    exp_stat_sn: U32,
    reserved32: [u8; 16],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// A ping from the initiator, an answer to the target's ping, or an update of `ExpStatSN` alone. The answer to a ping
/// returns its data segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NopOut {
    /// I: delivered ahead of `CmdSN` order. Always set when `itt` is reserved.
    pub immediate: bool,
    /// The LUN of the ping that this answers; otherwise zero.
    pub lun: LunField,
    /// The tag of the ping, or reserved when no answer is wanted.
    pub itt: InitiatorTaskTag,
    /// The tag of the ping that this answers; otherwise reserved.
    pub ttt: TargetTransferTag,
    /// The command number of this request, or the next one when `itt` is reserved.
    pub cmd_sn: SerialNumber,
    /// Next status number the initiator expects on this connection.
    pub exp_stat_sn: SerialNumber,
    /// Bytes of ping data.
    pub data_segment_len: usize,
}

impl NopOut {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::NOP_OUT;

    /// Parses a NOP-Out.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            immediate: bhs.immediate(),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: TargetTransferTag(wire.ttt.get()),
            cmd_sn: SerialNumber(wire.cmd_sn.get()),
            exp_stat_sn: SerialNumber(wire.exp_stat_sn.get()),
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL).immediate(self.immediate).data_segment_len(self.data_segment_len),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..Wire::new_zeroed()
        })
    }
}
