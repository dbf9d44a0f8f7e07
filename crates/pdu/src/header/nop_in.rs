//! NOP-In (RFC 7143, 11.19).

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
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    reserved36: [u8; 12],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// An answer to the initiator's ping, a ping from the target, or an update of the command window alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NopIn {
    /// Chosen by the target when `ttt` is not reserved; the answer repeats it.
    pub lun: LunField,
    /// The tag of the ping that this answers; otherwise reserved.
    pub itt: InitiatorTaskTag,
    /// The tag of the target's ping; reserved when no answer is wanted.
    pub ttt: TargetTransferTag,
    /// The status number of an answer, or the next one when `itt` is reserved.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// Bytes of ping data returned.
    pub data_segment_len: usize,
}

impl NopIn {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::NOP_IN;

    /// Parses a NOP-In.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: TargetTransferTag(wire.ttt.get()),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL).data_segment_len(self.data_segment_len),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            ..Wire::new_zeroed()
        })
    }
}
