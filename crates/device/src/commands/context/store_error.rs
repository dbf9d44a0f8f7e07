//! The mapping of store errors to sense data.

use lunette_scsi::{AdditionalSense, SenseData};
use lunette_store::{OpKind, StoreError};

use crate::unit::LogicalUnit;

/// Sense data for `error` of a request of `kind` at `offset`. INFORMATION is the block at `offset` where SBC-4 defines
/// it.
pub(crate) fn to_sense(error: &StoreError, kind: OpKind, offset: u64, unit: &LogicalUnit) -> SenseData {
    let lba = offset / u64::from(unit.block_size());
    let sense = match error {
        StoreError::ReadOnly => SenseData::data_protect(AdditionalSense::WRITE_PROTECTED),
        StoreError::NoSpace => SenseData::data_protect(AdditionalSense::SPACE_ALLOCATION_FAILED),
        StoreError::OutOfRange { .. } => SenseData::illegal_request(AdditionalSense::LBA_OUT_OF_RANGE),
        StoreError::FlushFailed(_) => SenseData::medium_error(AdditionalSense::WRITE_ERROR),
        StoreError::Refused { offset, .. } => {
            medium_error(kind).with_information(offset / u64::from(unit.block_size()))
        }
        // Another server has the store, or is about to.
        StoreError::ShutOut(_) if unit.config().shared => {
            SenseData::not_ready(AdditionalSense::ACCESS_STATE_TRANSITION)
        }
        StoreError::ShutOut(_) => SenseData::not_ready(AdditionalSense::MANUAL_INTERVENTION_REQUIRED),
        StoreError::Io(_) => medium_error(kind).with_information(lba),
    };
    tracing::warn!(serial = %unit.config().serial, ?kind, lba, %error, "a store failed");
    sense
}

fn medium_error(kind: OpKind) -> SenseData {
    let code = match kind {
        OpKind::Read | OpKind::Allocation => AdditionalSense::UNRECOVERED_READ_ERROR,
        OpKind::Write | OpKind::WriteZeroes | OpKind::Unmap | OpKind::Copy | OpKind::Flush => {
            AdditionalSense::WRITE_ERROR
        }
    };
    SenseData::medium_error(code)
}
