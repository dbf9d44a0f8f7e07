//! A command and its response.

use lunette_buffer::{Buffer, FileSlice, Loan};
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

/// Data-In that is sent from where it lies.
#[derive(Debug)]
pub enum InPlace {
    /// From the memory of a store.
    Loan(Loan),
    /// From a file: see [`Step::File`](crate::Step::File).
    File(FileSlice),
}

impl InPlace {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Loan(loan) => loan.len(),
            Self::File(file) => file.len(),
        }
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
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
    /// Bytes for the initiator that no buffer holds, in place of `data_in`.
    pub data_in_place: Option<InPlace>,
    /// Bytes that the CDB asked the initiator to send. The transport compares it with [`Command::data_out_len`] to report
    /// the residual.
    pub data_out_transfer_len: u64,
}

impl Response {
    /// Bytes for the initiator.
    pub fn data_in_len(&self) -> usize {
        let in_place = || self.data_in_place.as_ref().map_or(0, InPlace::len);
        self.data_in.as_ref().map_or_else(in_place, Buffer::len)
    }

    /// GOOD without data.
    pub(crate) fn good() -> Self {
        Self {
            status: Status::GOOD,
            status_qualifier: 0,
            sense: None,
            data_in: None,
            data_in_place: None,
            data_out_transfer_len: 0,
        }
    }

    /// CHECK CONDITION.
    pub(crate) fn check(sense: &SenseData, format: SenseFormat) -> Self {
        Self { status: Status::CHECK_CONDITION, sense: Some(sense.encode(format)), ..Self::good() }
    }
}
