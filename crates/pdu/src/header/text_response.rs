//! Text Response (RFC 7143, 11.11).

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
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    reserved36: [u8; 12],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// A list of keys from the target in the full feature phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextResponse {
    /// F: the negotiation is over, and `ttt` is reserved.
    pub final_: bool,
    /// C: the keys continue in the next response. Never together with F.
    pub continue_: bool,
    /// Qualifies `ttt` when `ttt` is not reserved.
    pub lun: LunField,
    /// The tag of the request.
    pub itt: InitiatorTaskTag,
    /// The tag for the next request to carry; reserved in the last response.
    pub ttt: TargetTransferTag,
    /// The status number of this response.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// Bytes of text in the data segment.
    pub data_segment_len: usize,
}

impl TextResponse {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::TEXT_RESPONSE;

    /// Parses a Text Response.
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
            final_: bhs.final_bit(),
            continue_,
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
        let flags = bit(self.final_, FINAL) | bit(self.continue_, CONTINUE);
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, flags).data_segment_len(self.data_segment_len),
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
