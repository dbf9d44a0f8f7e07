//! SCSI Data-Out (RFC 7143, 11.7).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head, bit};
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber, TargetTransferTag};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    head: Head,
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    reserved24: [u8; 4],
    exp_stat_sn: U32,
    reserved32: [u8; 4],
    data_sn: U32,
    buffer_offset: U32,
    reserved44: [u8; 4],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// Data of a write, from the initiator, sent unsolicited or at the request of an R2T.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataOut {
    /// F: the last PDU of its sequence.
    pub final_: bool,
    /// The LUN from the R2T, when `ttt` is not reserved.
    pub lun: LunField,
    /// The tag of the task.
    pub itt: InitiatorTaskTag,
    /// The tag from the R2T, or reserved in unsolicited data.
    pub ttt: TargetTransferTag,
    /// Next status number the initiator expects on this connection.
    pub exp_stat_sn: SerialNumber,
    /// The number of this PDU in its sequence, from 0.
    pub data_sn: u32,
    /// The offset of this PDU's bytes in the command's data.
    pub buffer_offset: u32,
    /// Bytes of data.
    pub data_segment_len: usize,
}

impl DataOut {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::SCSI_DATA_OUT;

    /// Parses a SCSI Data-Out. Offset and length are the peer's claim; that they lie inside the
    /// command's buffer is for the session to check.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            final_: bhs.final_bit(),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: TargetTransferTag(wire.ttt.get()),
            exp_stat_sn: SerialNumber(wire.exp_stat_sn.get()),
            data_sn: wire.data_sn.get(),
            buffer_offset: wire.buffer_offset.get(),
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, bit(self.final_, FINAL)).data_segment_len(self.data_segment_len),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            data_sn: self.data_sn.into(),
            buffer_offset: self.buffer_offset.into(),
            ..Wire::new_zeroed()
        })
    }
}
