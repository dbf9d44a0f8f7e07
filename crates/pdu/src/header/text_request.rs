//! Text Request (RFC 7143, 11.10).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{CONTINUE, FINAL, Head, bit, has};
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

/// A list of keys from the initiator in the full feature phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextRequest {
    /// I: delivered ahead of `CmdSN` order.
    pub immediate: bool,
    /// F: the initiator has no more keys to send in this negotiation.
    pub final_: bool,
    /// C: the keys continue in the next request. Never together with F.
    pub continue_: bool,
    /// The LUN from the response that this request continues, when `ttt` is not reserved.
    pub lun: LunField,
    /// The tag that all requests of one negotiation share.
    pub itt: InitiatorTaskTag,
    /// The tag from the response that this request continues, or reserved to begin or reset a negotiation.
    pub ttt: TargetTransferTag,
    /// The command number of this request.
    pub cmd_sn: SerialNumber,
    /// Next status number the initiator expects on this connection.
    pub exp_stat_sn: SerialNumber,
    /// Bytes of text in the data segment.
    pub data_segment_len: usize,
}

impl TextRequest {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::TEXT_REQUEST;

    /// Parses a Text Request.
    ///
    /// # Errors
    ///
    /// [`PduError`] when F and C are both set, or when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let continue_ = has(bhs.flags(), CONTINUE);
        if bhs.final_bit() && continue_ {
            return Err(bhs.illegal_combination("F and C must not both be set"));
        }
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            immediate: bhs.immediate(),
            final_: bhs.final_bit(),
            continue_,
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
        let flags = bit(self.final_, FINAL) | bit(self.continue_, CONTINUE);
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, flags).immediate(self.immediate).data_segment_len(self.data_segment_len),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..Wire::new_zeroed()
        })
    }
}
