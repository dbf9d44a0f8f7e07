//! Running copies: counted, recorded, and aborted on request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_scsi::copy::results::{CopyReport, CopyState};
use lunette_scsi::copy::tokens::TOKEN_LEN;
use lunette_scsi::{AdditionalSense, SenseData, ServiceAction, Status};

use crate::limits::MAX_COPIES;
use crate::unit::copy_records::CopyRecord;
use crate::unit::itl_nexus::ItlNexus;

/// A running copy. A copy that is dropped before its end counts as aborted.
pub(crate) struct RunningCopy {
    itl: Arc<ItlNexus>,
    record: Option<Arc<CopyRecord>>,
}

impl RunningCopy {
    /// Begins a copy for the command `action` on `itl`. Without a list identifier no record is kept. `None` when the
    /// maximum number of copies is running.
    pub(crate) fn begin(
        itl: &Arc<ItlNexus>,
        list_id: Option<u32>,
        action: ServiceAction,
    ) -> Result<Option<Self>, SenseData> {
        let running = itl.unit.running_copies();
        let count = |count: u32| (count < u32::from(MAX_COPIES)).then_some(count + 1);
        if running.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).is_err() {
            return Ok(None);
        }
        // From here on, the drop of `copy` decrements the count.
        let mut copy = Self { itl: Arc::clone(itl), record: None };
        if let Some(list_id) = list_id {
            let report = CopyReport {
                action,
                state: CopyState::InProgress,
                segments: 0,
                bytes: 0,
                block_len: itl.unit.block_size(),
                status: 0,
                sense: Vec::new(),
                token: None,
            };
            copy.record = Some(itl.copy_records.begin(list_id, report)?);
        }
        Ok(Some(copy))
    }

    /// Adds to the bytes copied.
    ///
    /// # Errors
    ///
    /// COPY ABORTED when an abort was requested.
    pub(crate) fn count_bytes(&self, len: u64) -> Result<(), SenseData> {
        let Some(record) = &self.record else { return Ok(()) };
        record.report().bytes += len;
        if record.abort.load(Ordering::Acquire) {
            return Err(SenseData::copy_aborted(AdditionalSense::NONE));
        }
        Ok(())
    }

    /// Adds one segment or range to those completed.
    pub(crate) fn count_segment(&self) {
        if let Some(record) = &self.record {
            record.report().segments += 1;
        }
    }

    /// Ends the copy with `result`, which holds the token that POPULATE TOKEN has created.
    pub(crate) fn end(self, result: &Result<Option<Box<[u8; TOKEN_LEN]>>, SenseData>) {
        let Some(record) = &self.record else { return };
        let mut report = record.report();
        match result {
            Ok(token) => {
                report.state = CopyState::Completed;
                report.token.clone_from(token);
            }
            Err(sense) => {
                let aborted = record.abort.load(Ordering::Acquire);
                report.state = if aborted { CopyState::Aborted } else { CopyState::Failed };
                report.status = Status::CHECK_CONDITION.0;
                report.sense = sense.encode(self.itl.unit.sense_format()).to_vec();
            }
        }
    }
}

impl Drop for RunningCopy {
    fn drop(&mut self) {
        self.itl.unit.running_copies().fetch_sub(1, Ordering::AcqRel);
        if let Some(record) = self.record.as_ref().filter(|record| record.runs()) {
            record.report().state = CopyState::Aborted;
        }
    }
}
