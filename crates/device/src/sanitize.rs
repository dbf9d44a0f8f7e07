//! The sanitize state of a logical unit (SBC-4 4.11). A sanitize operation makes all data on the medium, and in its
//! cache, unreadable.
//!
//! An operation is background work: it continues when its command ends, is aborted, or loses its nexus. With a state
//! store it also continues after a restart of the process, from its last checkpoint.
//!
//! # Commands in progress
//!
//! From the moment an operation begins, admission refuses every command that accesses the medium. A command that was
//! admitted before either has claimed its blocks, and the operation waits for it before the first write; or it claims
//! them later, and then finds that the [`SanitizeEpoch`] has changed since its admission, and ends. So no older write
//! lands on sanitized blocks, even when the operation has ended by then.

mod job;
mod operation;

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};
use lunette_state::{StateError, StateStore};

use crate::persist::{self, PendingSave, StateSlot};
pub(crate) use job::{SanitizeJob, SanitizeMethod, SavedSanitize};
pub(crate) use operation::{Milestone, SanitizeOperation};

const AUSE_FIELD: FieldPointer = FieldPointer::cdb(1).bit(5);
const SERVICE_ACTION_FIELD: FieldPointer = FieldPointer::cdb(1).bit(4);

const READY: u32 = 0;
const RUNNING: u32 = 1;
const FAILED: u32 = 2;
/// Mask of the condition (`READY`, `RUNNING` or `FAILED`) in the word. The other bits count operations.
const CONDITION: u32 = 0x03;

/// Which conditions of a sanitize operation refuse a command (SBC-4 4.11.2, 4.11.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SanitizeRule {
    /// Refused during an operation, and after a failed one.
    Refused,
    /// Refused during an operation only.
    Ends,
    /// Permitted in every condition.
    Passes,
}

/// The number of sanitize operations begun so far. A command remembers the epoch of its admission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SanitizeEpoch(u32);

impl SanitizeEpoch {
    fn of(word: u32) -> Self {
        Self(word & !CONDITION)
    }
}

pub(crate) const SANITIZE_FAILED: SenseData = SenseData::medium_error(AdditionalSense::SANITIZE_COMMAND_FAILED);

/// The sanitize state of a logical unit: ready, running or failed.
pub(crate) struct Sanitize {
    /// Epoch and condition: the only word that a command reads while the unit is ready.
    word: AtomicU32,
    /// PROGRESS INDICATION of the operation, in parts of 65,536.
    progress: AtomicU16,
    /// Set while the unit is prepared for removal: no operation may begin. Changed under the lock of the state only.
    removal_prepared: AtomicBool,
    /// Whether a later process would go on with the operation.
    is_saved: AtomicBool,
    state: Mutex<SanitizeState>,
    slot: Option<Arc<StateSlot>>,
}

pub(crate) enum SanitizeState {
    Ready,
    /// Begun by an earlier process, and not resumed in this one yet.
    Interrupted(SanitizeJob),
    Running,
    Failed {
        /// AUSE: EXIT FAILURE MODE ends the failure.
        unrestricted: bool,
    },
}

impl Sanitize {
    /// Loads the state that `state` holds for the unit with this serial number.
    pub(crate) fn open(state: Option<&Arc<dyn StateStore>>, serial: &str) -> Result<Self, StateError> {
        let (slot, saved_value) = persist::open(state, format!("sanitize/{serial}"), SavedSanitize::decode)?;
        let (condition, state) = match saved_value {
            None => (READY, SanitizeState::Ready),
            Some(SavedSanitize::Running(job)) => (RUNNING, SanitizeState::Interrupted(job)),
            Some(SavedSanitize::Failed { unrestricted }) => (FAILED, SanitizeState::Failed { unrestricted }),
        };
        let (word, progress) = (AtomicU32::new(condition), AtomicU16::new(0));
        let (removal_prepared, is_saved) = (AtomicBool::new(false), AtomicBool::new(condition == RUNNING));
        Ok(Self { word, progress, removal_prepared, is_saved, state: Mutex::new(state), slot })
    }

    /// Whether commands may access the medium.
    ///
    /// # Errors
    ///
    /// Sense data: NOT READY with the progress during an operation, MEDIUM ERROR after a failed one.
    pub(crate) fn check(&self) -> Result<(), SenseData> {
        self.check_word(self.word())
    }

    /// Like [`Self::check`], for a command that was admitted in `epoch`.
    pub(crate) fn check_since(&self, epoch: SanitizeEpoch) -> Result<(), SenseData> {
        let word = self.word();
        if SanitizeEpoch::of(word) == epoch { self.check_word(word) } else { Err(self.in_progress()) }
    }

    /// Checks `rule` against the condition of the unit, and returns the epoch of the admission.
    pub(crate) fn admit(&self, rule: SanitizeRule) -> Result<SanitizeEpoch, SenseData> {
        let word = self.word();
        let passes = match rule {
            SanitizeRule::Passes => true,
            SanitizeRule::Ends => word & CONDITION != RUNNING,
            SanitizeRule::Refused => false,
        };
        if !passes {
            self.check_word(word)?;
        }
        Ok(SanitizeEpoch::of(word))
    }

    fn check_word(&self, word: u32) -> Result<(), SenseData> {
        match word & CONDITION {
            READY => Ok(()),
            RUNNING => Err(self.in_progress()),
            _ => Err(SANITIZE_FAILED),
        }
    }

    fn word(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    fn in_progress(&self) -> SenseData {
        let progress = self.progress.load(Ordering::Relaxed);
        SenseData::not_ready(AdditionalSense::SANITIZE_IN_PROGRESS).with_progress(progress)
    }

    pub(crate) fn set_progress(&self, progress: u16) {
        self.progress.store(progress, Ordering::Relaxed);
    }

    /// Whether the state survives a restart.
    pub(crate) fn can_save(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether an operation is running.
    pub(crate) fn runs(&self) -> bool {
        self.word() & CONDITION == RUNNING
    }

    /// Prevents further operations until [`Self::cancel_removal`]. False, and without effect, while one is running.
    pub(crate) fn prepare_removal(&self) -> bool {
        let state = self.state();
        let may_go = !matches!(*state, SanitizeState::Interrupted(_) | SanitizeState::Running);
        if may_go {
            self.removal_prepared.store(true, Ordering::Relaxed);
        }
        may_go
    }

    pub(crate) fn cancel_removal(&self) {
        let _state = self.state();
        self.removal_prepared.store(false, Ordering::Relaxed);
    }

    /// EXIT FAILURE MODE: ends a failure, saved first. The call may wait for the medium.
    ///
    /// The turn lasts until the failure has ended, and an operation that begins meanwhile saves itself in a later turn,
    /// so its record stays.
    ///
    /// # Errors
    ///
    /// INVALID FIELD IN CDB after an operation without AUSE: only another operation ends that failure.
    pub(crate) fn exit_failure(&self) -> Result<Result<(), SenseData>, StateError> {
        let turn = self.slot.as_ref().map(|slot| slot.turn());
        match *self.state() {
            SanitizeState::Failed { unrestricted: false } => return Ok(Err(SERVICE_ACTION_FIELD.into())),
            SanitizeState::Failed { unrestricted: true } => {}
            SanitizeState::Ready | SanitizeState::Interrupted(_) | SanitizeState::Running => return Ok(Ok(())),
        }
        if let Some(turn) = &turn {
            turn.save(None)?;
        }
        self.leave_failure();
        Ok(Ok(()))
    }

    /// Ends the failure, unless an operation has begun since.
    fn leave_failure(&self) {
        let mut state = self.state();
        if matches!(*state, SanitizeState::Failed { unrestricted: true }) {
            self.change(&mut state, SanitizeState::Ready);
        }
    }

    /// Marks an operation as running. Returns the state to restore when the operation cannot begin.
    pub(crate) fn start(&self, job: &SanitizeJob) -> Result<SanitizeState, SenseData> {
        let mut state = self.state();
        if self.removal_prepared.load(Ordering::Relaxed) {
            return Err(SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED));
        }
        let before = match *state {
            SanitizeState::Running | SanitizeState::Interrupted(_) => return Err(self.in_progress()),
            SanitizeState::Failed { unrestricted: false } if job.unrestricted => return Err(AUSE_FIELD.into()),
            SanitizeState::Failed { unrestricted } => SanitizeState::Failed { unrestricted },
            SanitizeState::Ready => SanitizeState::Ready,
        };
        self.set_progress(0);
        self.is_saved.store(false, Ordering::Release);
        self.word.fetch_add(CONDITION + 1, Ordering::AcqRel);
        self.change(&mut state, SanitizeState::Running);
        Ok(before)
    }

    /// Takes the operation that an earlier process began, and marks it as running.
    pub(crate) fn interrupted(&self) -> Option<SanitizeJob> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, SanitizeState::Running) {
            SanitizeState::Interrupted(job) => Some(job),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Whether an operation is running that no later process would go on with: there is no state store, or the
    /// operation is not saved yet.
    pub(crate) fn ends_with_process(&self) -> bool {
        self.runs() && !self.is_saved.load(Ordering::Acquire)
    }

    /// The operation is saved, where there is a state store.
    pub(crate) fn begun(&self) {
        self.is_saved.store(self.can_save(), Ordering::Release);
    }

    /// The failure of an operation, as it is saved; empty without one.
    pub(crate) fn handover(&self) -> Vec<u8> {
        match *self.state() {
            SanitizeState::Failed { unrestricted } => SavedSanitize::Failed { unrestricted }.encode(),
            SanitizeState::Ready | SanitizeState::Interrupted(_) | SanitizeState::Running => Vec::new(),
        }
    }

    /// Takes over the failure of an operation from a predecessor, which may not have been able to save it. `None`, and
    /// nothing changes, for other bytes than those of [`handover`](Self::handover).
    pub(crate) fn inherit(&self, failure: &[u8]) -> Option<()> {
        if failure.is_empty() {
            return Some(());
        }
        let SavedSanitize::Failed { unrestricted } = SavedSanitize::decode(failure)? else { return None };
        let mut state = self.state();
        // An operation that is under way already comes to an end of its own.
        if !matches!(*state, SanitizeState::Running) {
            self.change(&mut state, SanitizeState::Failed { unrestricted });
        }
        Some(())
    }

    /// Ends an operation, or undoes its start: the unit enters the state `new`.
    pub(crate) fn end(&self, new: SanitizeState) {
        self.change(&mut self.state(), new);
    }

    fn change(&self, state: &mut SanitizeState, new: SanitizeState) {
        let condition = match new {
            SanitizeState::Ready => READY,
            SanitizeState::Interrupted(_) | SanitizeState::Running => RUNNING,
            SanitizeState::Failed { .. } => FAILED,
        };
        *state = new;
        // The word changes under the lock of the state only.
        self.word.store(self.word() & !CONDITION | condition, Ordering::Release);
    }

    /// The change to save. Commands decide by the state in memory, and only one operation saves its own at a time.
    pub(crate) fn save(&self, record: Option<&SavedSanitize>) -> Option<PendingSave> {
        let slot = Arc::clone(self.slot.as_ref()?);
        Some(PendingSave { slot, bytes: record.map(SavedSanitize::encode) })
    }

    fn state(&self) -> MutexGuard<'_, SanitizeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
