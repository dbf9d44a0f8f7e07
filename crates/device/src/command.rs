//! Commands as the transport delivers them, and the responses to them.

use lunette_buffer::Payload;
use lunette_scsi::{Cdb, EncodedSense, SenseData, SenseFormat, Status, TaskAttribute};

use crate::unit::StoredDigests;

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
    /// [`Command::data_in_len`]: the transport sends what fits and reports the overflow. Of a file, only after
    /// [`Step::File`](crate::Step::File).
    pub data_in: Payload,
    /// Which blocks [`Self::data_in`] holds, of a unit with
    /// [`QuantaOptions::stored_digests`](crate::QuantaOptions::stored_digests): a transport need not read them to
    /// compute their CRC32C. When its peer finds such a digest wrong, or the connection is lost, it calls
    /// [`TargetDevice::doubt_digests`](crate::TargetDevice::doubt_digests).
    pub digests: Option<StoredDigests>,
    /// The length of the blocks that [`Self::data_in`] holds, where each is a quantum with its slot; else 0.
    pub edu_len: u16,
    /// Bytes of Data-Out that the CDB asked the initiator for. The transport compares it with [`Command::data_out_len`]
    /// to report the residual.
    pub data_out_transfer_len: u64,
}

impl Response {
    /// A response with status GOOD and without data.
    pub(crate) fn good() -> Self {
        Self {
            status: Status::GOOD,
            status_qualifier: 0,
            sense: None,
            data_in: Payload::Empty,
            digests: None,
            edu_len: 0,
            data_out_transfer_len: 0,
        }
    }

    /// A response with CHECK CONDITION and `sense` in the given format.
    pub(crate) fn check(sense: &SenseData, format: SenseFormat) -> Self {
        Self { status: Status::CHECK_CONDITION, sense: Some(sense.encode(format)), ..Self::good() }
    }
}
