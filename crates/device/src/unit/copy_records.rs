//! Records of the third-party copies of one nexus on one logical unit, by list identifier (SPC-5 5.18.4).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_handover::{ByteBuf, CopyEnd, CopyResult};
use lunette_scsi::copy::results::{CopyReport, CopyState};
use lunette_scsi::{AdditionalSense, SenseData, ServiceAction};

use crate::limits::MAX_COPY_REPORTS;

/// The copies of an `I_T_L` nexus, running and ended. One-byte and four-byte list identifiers share one number space.
#[derive(Debug, Default)]
pub(crate) struct CopyRecords(Mutex<RecordTable>);

#[derive(Debug, Default)]
struct RecordTable {
    /// The records, each with the number of its copy; `number` counts the copies.
    records: BTreeMap<u32, (u64, Arc<CopyRecord>)>,
    number: u64,
}

#[derive(Debug)]
pub(crate) struct CopyRecord {
    report: Mutex<CopyReport>,
    pub(crate) abort: AtomicBool,
}

impl CopyRecord {
    pub(crate) fn report(&self) -> MutexGuard<'_, CopyReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn runs(&self) -> bool {
        self.report().state == CopyState::InProgress
    }
}

impl CopyRecords {
    /// The report on the copy `list_id`.
    pub(crate) fn report(&self, list_id: u32) -> Option<CopyReport> {
        self.lock().records.get(&list_id).map(|(_, record)| record.report().clone())
    }

    /// Forgets the copy `list_id`, if it has ended.
    pub(crate) fn forget(&self, list_id: u32) {
        let mut known = self.lock();
        if known.records.get(&list_id).is_some_and(|(_, record)| !record.runs()) {
            known.records.remove(&list_id);
        }
    }

    /// Asks the copy `list_id` to abort, which it does before its next chunk. False for an unknown copy.
    pub(crate) fn abort(&self, list_id: u32) -> bool {
        let known = self.lock();
        let Some((_, record)) = known.records.get(&list_id) else { return false };
        record.abort.store(true, Ordering::Release);
        true
    }

    /// Creates the record of a new copy. It replaces an earlier copy with this identifier, or the oldest that has
    /// ended.
    pub(crate) fn begin(&self, list_id: u32, report: CopyReport) -> Result<Arc<CopyRecord>, SenseData> {
        let mut known = self.lock();
        if known.records.get(&list_id).is_some_and(|(_, record)| record.runs()) {
            return Err(SenseData::illegal_request(AdditionalSense::OPERATION_IN_PROGRESS));
        }
        if known.records.len() == MAX_COPY_REPORTS && !known.records.contains_key(&list_id) {
            let ended = known.records.iter().filter(|(_, (_, record))| !record.runs());
            let oldest = ended.min_by_key(|(_, (number, _))| *number).map(|(list_id, _)| *list_id);
            let full = SenseData::illegal_request(AdditionalSense::INSUFFICIENT_RESOURCES);
            known.records.remove(&oldest.ok_or(full)?);
        }
        let record = Arc::new(CopyRecord { report: Mutex::new(report), abort: AtomicBool::new(false) });
        known.number += 1;
        let number = known.number;
        known.records.insert(list_id, (number, Arc::clone(&record)));
        Ok(record)
    }

    /// The results of copies that have ended, from the oldest on.
    pub(crate) fn handover(&self) -> Vec<CopyResult> {
        let known = self.lock();
        let mut all: Vec<_> =
            known.records.iter().map(|(list_id, (number, record))| (number, list_id, record)).collect();
        all.sort_unstable_by_key(|(number, ..)| **number);
        all.into_iter().filter_map(|(_, list_id, record)| result(*list_id, &record.report())).collect()
    }

    /// Takes over the results of a predecessor. One with a token that is none is left out.
    pub(crate) fn inherit(&self, results: &[CopyResult]) {
        for result in results {
            if let Some(report) = report(result) {
                // It has ended, so there is always room for the next one.
                let _ = self.begin(result.list_id, report);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecordTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a report that a successor gets; none of a copy that runs.
fn result(list_id: u32, report: &CopyReport) -> Option<CopyResult> {
    let end = match report.state {
        CopyState::InProgress => return None,
        CopyState::Completed => CopyEnd::Completed,
        CopyState::Failed => CopyEnd::Failed,
        CopyState::Aborted => CopyEnd::Aborted,
    };
    Some(CopyResult {
        list_id,
        action: report.action.0,
        end,
        segments: report.segments,
        bytes: report.bytes,
        block_len: report.block_len,
        status: report.status,
        sense: ByteBuf::from(report.sense.clone()),
        token: report.token.as_ref().map(|token| ByteBuf::from(token.to_vec())).unwrap_or_default(),
    })
}

fn report(result: &CopyResult) -> Option<CopyReport> {
    let state = match result.end {
        CopyEnd::Completed => CopyState::Completed,
        CopyEnd::Failed => CopyState::Failed,
        CopyEnd::Aborted => CopyState::Aborted,
    };
    let token = match result.token.as_slice() {
        [] => None,
        bytes => Some(Box::new(bytes.try_into().ok()?)),
    };
    Some(CopyReport {
        action: ServiceAction(result.action),
        state,
        segments: result.segments,
        bytes: result.bytes,
        block_len: result.block_len,
        status: result.status,
        sense: result.sense.to_vec(),
        token,
    })
}
