//! SCSI Data-In (RFC 7143, 11.7).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

use super::scsi_response::{Residual, ResidualBits};
use crate::bhs::{FINAL, Head, bit, has};
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber, TargetTransferTag};

/// A bit: the initiator must acknowledge the data received so far.
const ACKNOWLEDGE: u8 = 0x40;
/// O and U bits.
const RESIDUAL_BITS: ResidualBits = ResidualBits { overflow: 0x04, underflow: 0x02 };
/// S bit: the PDU carries the command's status.
const STATUS: u8 = 0x01;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// The status is byte 3.
    head: Head,
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    data_sn: U32,
    buffer_offset: U32,
    residual_count: U32,
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// The status of a command that ended without sense data, collapsed into its last Data-In.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataInStatus {
    /// The SCSI status (SAM-5, 5.3).
    pub status: u8,
    /// Bytes that the transfer was short of the expected length, or beyond it.
    pub residual: Residual,
    /// The status number of this PDU.
    pub stat_sn: SerialNumber,
}

/// Data of a read, from the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataIn {
    /// F: the last PDU of its sequence. Always set when there is a `status`.
    pub final_: bool,
    /// A: the initiator must acknowledge the data up to here with a SNACK.
    pub acknowledge: bool,
    /// S: the command has ended with this status.
    pub status: Option<DataInStatus>,
    /// The LUN of the command, when `ttt` is not reserved.
    pub lun: LunField,
    /// The tag of the task.
    pub itt: InitiatorTaskTag,
    /// The tag for the acknowledging SNACK; reserved without `acknowledge`.
    pub ttt: TargetTransferTag,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// The number of this PDU among the command's Data-In and R2T PDUs, from 0.
    pub data_sn: u32,
    /// The offset of this PDU's bytes in the command's data.
    pub buffer_offset: u32,
    /// Bytes of data.
    pub data_segment_len: usize,
}

impl DataIn {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::SCSI_DATA_IN;

    /// Parses a SCSI Data-In. Offset and length are the peer's claim; that they lie inside the
    /// command's buffer is for the session to check.
    ///
    /// # Errors
    ///
    /// [`PduError`] when S is set without F, when the residual both overflows and underflows, or when
    /// there are additional header segments.
    #[inline]
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            final_: bhs.final_bit(),
            acknowledge: has(bhs.flags(), ACKNOWLEDGE),
            status: parse_status(bhs, wire)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: TargetTransferTag(wire.ttt.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            data_sn: wire.data_sn.get(),
            buffer_offset: wire.buffer_offset.get(),
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        let (status_flags, status, stat_sn, residual_count) = match self.status {
            None => (0, 0, 0, 0),
            Some(DataInStatus { status, residual, stat_sn }) => {
                let (residual_flag, count) = residual.emit(RESIDUAL_BITS);
                (STATUS | residual_flag, status, stat_sn.0, count)
            }
        };
        let flags = bit(self.final_, FINAL) | bit(self.acknowledge, ACKNOWLEDGE) | status_flags;
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, flags).specific(0, status).data_segment_len(self.data_segment_len),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            stat_sn: stat_sn.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            data_sn: self.data_sn.into(),
            buffer_offset: self.buffer_offset.into(),
            residual_count: residual_count.into(),
        })
    }
}

/// Reads the fields that the S bit makes valid.
#[inline]
fn parse_status(bhs: &Bhs, wire: &Wire) -> Result<Option<DataInStatus>, PduError> {
    if !has(bhs.flags(), STATUS) {
        return Ok(None);
    }
    if !bhs.final_bit() {
        return Err(bhs.illegal_combination("S must not be set without F"));
    }
    let [_, status] = wire.head.specific;
    Ok(Some(DataInStatus {
        status,
        residual: Residual::parse(bhs, RESIDUAL_BITS, wire.residual_count)?,
        stat_sn: SerialNumber(wire.stat_sn.get()),
    }))
}
