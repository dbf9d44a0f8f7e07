//! A command and its response.

use lunette_buffer::{Buffer, FileSlice};
use lunette_scsi::{Cdb, EncodedSense, SenseData, SenseFormat, Status, TaskAttribute};

/// A command as the transport delivers it.
#[derive(Debug, Clone)]
pub struct Command {
    /// The eight bytes that address the logical unit.
    pub lun: [u8; 8],
    /// The CDB. `[u8; 16]` converts into it.
    pub cdb: Cdb,
    /// How the task is ordered among the others.
    pub attribute: TaskAttribute,
    /// Bytes that the initiator will send at most.
    pub data_out_len: u32,
    /// Bytes that the initiator will take at most.
    pub data_in_len: u32,
}

/// How a command ended.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: Status,
    /// What SAM-5 5.3.2 adds to the status: for TASK SET FULL, when to come again. 0 adds nothing.
    pub status_qualifier: u16,
    /// Sense data, with CHECK CONDITION.
    pub sense: Option<EncodedSense>,
    /// Bytes for the initiator, already cut to the allocation length of the CDB. There may be more than
    /// [`Command::data_in_len`]: the transport sends what fits and reports the overflow.
    pub data_in: Option<Buffer>,
    /// The same, when they are sent from their file.
    pub data_in_file: Option<FileSlice>,
    /// Bytes that the CDB asked the initiator to send. The transport compares it with [`Command::data_out_len`] to report
    /// the residual.
    pub data_out_transfer_len: u64,
}

impl Response {
    /// Bytes for the initiator.
    pub fn data_in_len(&self) -> usize {
        let of_file = || self.data_in_file.as_ref().map_or(0, FileSlice::len);
        self.data_in.as_ref().map_or_else(of_file, Buffer::len)
    }

    /// GOOD without data.
    pub(crate) fn good() -> Self {
        Self {
            status: Status::GOOD,
            status_qualifier: 0,
            sense: None,
            data_in: None,
            data_in_file: None,
            data_out_transfer_len: 0,
        }
    }

    /// CHECK CONDITION.
    pub(crate) fn check(sense: &SenseData, format: SenseFormat) -> Self {
        Self { status: Status::CHECK_CONDITION, sense: Some(sense.encode(format)), ..Self::good() }
    }
}
