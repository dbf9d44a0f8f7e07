//! Commands as the transport delivers them, and the responses to them.

use lunette_buffer::{Buffer, FileSlice, Loan};
use lunette_scsi::{Cdb, EncodedSense, SenseData, SenseFormat, Status, TaskAttribute};

/// A SCSI command as the transport delivers it.
#[derive(Debug, Clone)]
pub struct Command {
    /// The LUN field of the command: the eight bytes that address the logical unit.
    pub lun: [u8; 8],
    /// The CDB. `[u8; 16]` converts into it.
    pub cdb: Cdb,
    /// The task attribute, which orders the task among the others of its task set.
    pub attribute: TaskAttribute,
    /// The most bytes of Data-Out that the initiator sends.
    pub data_out_len: u32,
    /// The most bytes of Data-In that the initiator accepts.
    pub data_in_len: u32,
}

/// Data-In that the transport sends without a buffer of its own.
#[derive(Debug)]
pub enum InPlace {
    /// Memory that a store lends.
    Loan(Loan),
    /// Bytes of a file: see [`Step::File`](crate::Step::File).
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

/// The response that ends a command.
#[derive(Debug)]
pub struct Response {
    /// The SCSI status of the command.
    pub status: Status,
    /// The status qualifier (SAM-5 5.3.2). With TASK SET FULL it says when the initiator should retry; 0 adds nothing
    /// to the status.
    pub status_qualifier: u16,
    /// The sense data of a response with CHECK CONDITION.
    pub sense: Option<EncodedSense>,
    /// Data-In for the initiator, already cut to the allocation length of the CDB. It may be longer than
    /// [`Command::data_in_len`]: the transport sends what fits and reports the overflow.
    pub data_in: Option<Buffer>,
    /// Data-In for the initiator that no buffer holds, in place of `data_in`.
    pub data_in_place: Option<InPlace>,
    /// Bytes of Data-Out that the CDB asked the initiator for. The transport compares it with [`Command::data_out_len`]
    /// to report the residual.
    pub data_out_transfer_len: u64,
}

impl Response {
    /// Length of the Data-In in bytes, in a buffer or in place.
    pub fn data_in_len(&self) -> usize {
        let in_place = || self.data_in_place.as_ref().map_or(0, InPlace::len);
        self.data_in.as_ref().map_or_else(in_place, Buffer::len)
    }

    /// A response with status GOOD and without data.
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

    /// A response with CHECK CONDITION and `sense` in the given format.
    pub(crate) fn check(sense: &SenseData, format: SenseFormat) -> Self {
        Self { status: Status::CHECK_CONDITION, sense: Some(sense.encode(format)), ..Self::good() }
    }
}
