//! SNACK Request (RFC 7143, 11.16).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber, TargetTransferTag};

/// The type field of the flags byte.
const TYPE_MASK: u8 = 0x0f;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    head: Head,
    lun: [u8; 8],
    itt: U32,
    ttt: U32,
    reserved24: [u8; 4],
    exp_stat_sn: U32,
    reserved32: [u8; 8],
    beg_run: U32,
    run_length: U32,
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The kind of SNACK (RFC 7143, 11.16.1), four bits.
    SnackType {
        /// Asks for Data-In or R2T PDUs as they were sent first.
        DATA_R2T = 0, "Data/R2T SNACK";
        STATUS = 1, "Status SNACK";
        /// Acknowledges Data-In PDUs up to `beg_run`.
        DATA_ACK = 2, "DataACK SNACK";
        /// Asks for Data-In PDUs that may be cut differently.
        R_DATA = 3, "R-Data SNACK";
    }
}

/// An initiator's request for PDUs to be sent again, or its acknowledgement of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnackRequest {
    /// The kind of SNACK.
    pub snack_type: SnackType,
    /// The LUN of the Data-In, for a `DataACK`.
    pub lun: LunField,
    /// The tag of the task, or reserved for statuses and `DataACK`.
    pub itt: InitiatorTaskTag,
    /// For a `DataACK` the tag of the Data-In; for an R-Data SNACK its own SNACK tag, which the SCSI
    /// Response repeats; otherwise reserved.
    pub ttt: TargetTransferTag,
    /// Next status number the initiator expects on this connection.
    pub exp_stat_sn: SerialNumber,
    /// First number wanted (`DataSN`, `R2TSN` or `StatSN`); for a `DataACK` the next one expected; 0 for an
    /// R-Data SNACK.
    pub beg_run: u32,
    /// The number of PDUs wanted; 0 for all from `beg_run` on, and always 0 in `DataACK` and R-Data SNACKs.
    pub run_length: u32,
}

impl SnackRequest {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::SNACK_REQUEST;

    /// Parses a SNACK Request.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when anything follows the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_header_only()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            snack_type: SnackType(bhs.flags() & TYPE_MASK),
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: TargetTransferTag(wire.ttt.get()),
            exp_stat_sn: SerialNumber(wire.exp_stat_sn.get()),
            beg_run: wire.beg_run.get(),
            run_length: wire.run_length.get(),
        })
    }

    /// The header's bytes. Only four bits of `snack_type` are sent.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL | self.snack_type.0 & TYPE_MASK),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            ttt: self.ttt.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            beg_run: self.beg_run.into(),
            run_length: self.run_length.into(),
            ..Wire::new_zeroed()
        })
    }
}
