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
        StoreError::Refused { offset, .. } | StoreError::Unreadable { offset, .. } => {
            medium_error(kind).with_information(offset / u64::from(unit.block_size()))
        }
        // Another server has the store, or is about to.
        StoreError::ShutOut(_) if unit.config().shared => {
            SenseData::not_ready(AdditionalSense::ACCESS_STATE_TRANSITION)
        }
        StoreError::ShutOut(_) | StoreError::Gone(_) => {
            SenseData::not_ready(AdditionalSense::MANUAL_INTERVENTION_REQUIRED)
        }
        StoreError::Io(_) => medium_error(kind).with_information(lba),
    };
    if let Some(unlogged) = unit.failures().note(error, (unit.config().clock)()) {
        tracing::warn!(serial = %unit.config().serial, ?kind, lba, unlogged, %error, "a store failed");
    }
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;

    use lunette_scsi::SenseKey;
    use lunette_store::MemoryStore;

    use super::*;
    use crate::unit::LogicalUnitConfig;

    #[test]
    fn each_failure_of_a_store_has_its_sense_data() {
        let config = LogicalUnitConfig::new(Arc::new(MemoryStore::new(1 << 20).unwrap()), "1");
        let unit = LogicalUnit::new(config).unwrap();
        let io = || std::io::Error::from(ErrorKind::Other);
        let table = [
            (StoreError::ReadOnly, SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED),
            (StoreError::NoSpace, SenseKey::DATA_PROTECT, AdditionalSense::SPACE_ALLOCATION_FAILED),
            (
                StoreError::OutOfRange { offset: 0, len: 1, store_len: 0 },
                SenseKey::ILLEGAL_REQUEST,
                AdditionalSense::LBA_OUT_OF_RANGE,
            ),
            (StoreError::FlushFailed(Arc::new(io())), SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR),
            (StoreError::Gone(io()), SenseKey::NOT_READY, AdditionalSense::MANUAL_INTERVENTION_REQUIRED),
            (StoreError::ShutOut("x".into()), SenseKey::NOT_READY, AdditionalSense::MANUAL_INTERVENTION_REQUIRED),
            (StoreError::Io(io()), SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR),
        ];
        for (error, key, code) in table {
            let sense = to_sense(&error, OpKind::Write, 512, &unit);
            assert_eq!((sense.key, sense.code), (key, code), "{error}");
        }
        let read = to_sense(&StoreError::Io(io()), OpKind::Read, 1024, &unit);
        assert_eq!((read.key, read.code), (SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR));
    }
}
