//! The copies of one nexus on one logical unit, by their list identifiers (SPC-5 5.18.4).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::copy::results::{CopyReport, CopyState};
use lunette_scsi::copy::tokens::TOKEN_LEN;
use lunette_scsi::{AdditionalSense, SenseData, SenseKey, ServiceAction, Status};

use crate::limits::{MAX_COPIES, MAX_COPY_REPORTS};
use crate::nexus::Link;

/// What is known of copies, running and ended. It goes with the nexus. All list identifiers are of one kind: those of one
/// byte are small ones of four.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// In the order of their beginnings: `number` counts them.
    records: BTreeMap<u32, (u64, Arc<Record>)>,
    number: u64,
}

#[derive(Debug)]
struct Record {
    report: Mutex<CopyReport>,
    abort: AtomicBool,
}

impl Record {
    fn report(&self) -> MutexGuard<'_, CopyReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> bool {
        self.report().state == CopyState::InProgress
    }
}

impl Copies {
    /// What is known of the copy `list_id`.
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

    /// Asks the copy `list_id` to end; it does so before its next piece. False when it is not known.
    pub(crate) fn abort(&self, list_id: u32) -> bool {
        let known = self.lock();
        let Some((_, record)) = known.records.get(&list_id) else { return false };
        record.abort.store(true, Ordering::Release);
        true
    }

    /// A place for a copy that begins. It takes that of an earlier copy of this identifier, or of the oldest that has ended.
    fn begin(&self, list_id: u32, report: CopyReport) -> Result<Arc<Record>, SenseData> {
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
        let record = Arc::new(Record { report: Mutex::new(report), abort: AtomicBool::new(false) });
        known.number += 1;
        let number = known.number;
        known.records.insert(list_id, (number, Arc::clone(&record)));
        Ok(record)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy at work. One that is dropped before its end was aborted.
pub(crate) struct RunningCopy {
    link: Arc<Link>,
    record: Option<Arc<Record>>,
}

impl RunningCopy {
    /// Begins a copy by the command `action` that came over `link`; without an identifier nobody will ask for it. `None` when
    /// as many run as may.
    pub(crate) fn begin(
        link: &Arc<Link>,
        list_id: Option<u32>,
        action: ServiceAction,
    ) -> Result<Option<Self>, SenseData> {
        let running = link.unit.running_copies();
        let count = |count: u32| (count < u32::from(MAX_COPIES)).then_some(count + 1);
        if running.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).is_err() {
            return Ok(None);
        }
        // From here on its end is counted.
        let mut copy = Self { link: Arc::clone(link), record: None };
        if let Some(list_id) = list_id {
            let report = CopyReport {
                action,
                state: CopyState::InProgress,
                segments: 0,
                bytes: 0,
                block_len: link.unit.block_size(),
                status: 0,
                sense: Vec::new(),
                token: None,
            };
            copy.record = Some(link.copies.begin(list_id, report)?);
        }
        Ok(Some(copy))
    }

    /// So many bytes more are done.
    ///
    /// # Errors
    ///
    /// COPY ABORTED when the copy is to end.
    pub(crate) fn count_bytes(&self, len: u64) -> Result<(), SenseData> {
        let Some(record) = &self.record else { return Ok(()) };
        record.report().bytes += len;
        if record.abort.load(Ordering::Acquire) {
            return Err(SenseData::new(SenseKey::COPY_ABORTED, AdditionalSense::NONE));
        }
        Ok(())
    }

    /// One segment or range more is done.
    pub(crate) fn count_segment(&self) {
        if let Some(record) = &self.record {
            record.report().segments += 1;
        }
    }

    /// The copy has ended, and has made a token if it was to.
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
                report.sense = sense.encode(self.link.unit.sense_format()).to_vec();
            }
        }
    }
}

impl Drop for RunningCopy {
    fn drop(&mut self) {
        self.link.unit.running_copies().fetch_sub(1, Ordering::AcqRel);
        if let Some(record) = self.record.as_ref().filter(|record| record.runs()) {
            record.report().state = CopyState::Aborted;
        }
    }
}
