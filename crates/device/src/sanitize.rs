//! Sanitize operations of a logical unit (SBC-4 4.11): all data of the medium, and of its cache, becomes unreadable.
//!
//! An operation is background work: the command that asks for it may end, be aborted, or lose its nexus, and it goes on. With
//! a state store it goes on after the end of the process, too, from where it stood at its last checkpoint.
//!
//! # Who else is at work
//!
//! The gate lets no command at the medium in from the moment at which the operation begins. Commands that are in already
//! either have claimed their blocks: then the operation waits for them before it writes. Or they claim later: then they look
//! behind their claim whether an operation has begun since the gate ([`SanitizeEpoch`]), and end. So no older write lands on what was
//! sanitized, also when the operation has ended meanwhile.

mod job;
mod operation;

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey};
use lunette_state::{StateError, StateStore};

use crate::persist;
use crate::persist::{PendingSave, StateSlot};
pub(crate) use job::{SanitizeJob, SanitizeMethod, SavedSanitize};
pub(crate) use operation::{Milestone, SanitizeOperation};

const AUSE_FIELD: FieldPointer = FieldPointer::cdb(1).bit(5);
const SERVICE_ACTION_FIELD: FieldPointer = FieldPointer::cdb(1).bit(4);

const READY: u32 = 0;
const RUNNING: u32 = 1;
const FAILED: u32 = 2;
/// The bits of a word that hold one of these. The others count operations.
const CONDITION: u32 = 0x03;

/// What a sanitize operation keeps from running (SBC-4 4.11.2, 4.11.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SanitizeRule {
    /// Refused while one runs, and after one that has failed.
    Refused,
    /// Refused while one runs.
    Ends,
    /// Always runs.
    AccessRule,
}

/// The time between the beginnings of two operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SanitizeEpoch(u32);

impl SanitizeEpoch {
    fn of(word: u32) -> Self {
        Self(word & !CONDITION)
    }
}

pub(crate) const SANITIZE_FAILED: SenseData =
    SenseData::new(SenseKey::MEDIUM_ERROR, AdditionalSense::SANITIZE_COMMAND_FAILED);

/// Whether a unit is being sanitized, or could not be.
pub(crate) struct Sanitize {
    /// SanitizeEpoch and condition: all that a command reads while nothing is the matter.
    word: AtomicU32,
    /// PROGRESS INDICATION.
    progress: AtomicU16,
    /// No operation may begin. Only changed under the lock of the state.
    removal_prepared: AtomicBool,
    state: Mutex<SanitizeState>,
    slot: Option<Arc<StateSlot>>,
}

pub(crate) enum SanitizeState {
    Ready,
    /// An earlier process has begun it, and nobody in this one goes on yet.
    Interrupted(SanitizeJob),
    Running,
    Failed {
        /// EXIT FAILURE MODE ends the failure (AUSE).
        unrestricted: bool,
    },
}

impl Sanitize {
    /// What `state` has kept for the unit of this serial number.
    pub(crate) fn open(state: Option<&Arc<dyn StateStore>>, serial: &str) -> Result<Self, StateError> {
        let (slot, kept) = persist::open(state, format!("sanitize/{serial}"), SavedSanitize::decode)?;
        let (condition, state) = match kept {
            None => (READY, SanitizeState::Ready),
            Some(SavedSanitize::Running(job)) => (RUNNING, SanitizeState::Interrupted(job)),
            Some(SavedSanitize::Failed { unrestricted }) => (FAILED, SanitizeState::Failed { unrestricted }),
        };
        let (word, progress) = (AtomicU32::new(condition), AtomicU16::new(0));
        Ok(Self { word, progress, removal_prepared: AtomicBool::new(false), state: Mutex::new(state), slot })
    }

    /// Whether the medium may be looked at.
    ///
    /// # Errors
    ///
    /// Sense data: NOT READY with the progress while an operation runs, MEDIUM ERROR after one that has failed.
    pub(crate) fn check(&self) -> Result<(), SenseData> {
        self.check_word(self.word())
    }

    /// As [`Self::check`], for a command that came in `era`.
    pub(crate) fn check_since(&self, epoch: SanitizeEpoch) -> Result<(), SenseData> {
        let word = self.word();
        if SanitizeEpoch::of(word) == epoch { self.check_word(word) } else { Err(self.in_progress()) }
    }

    /// Whether a command of this kind may run, and when that was.
    pub(crate) fn admit(&self, rule: SanitizeRule) -> Result<SanitizeEpoch, SenseData> {
        let word = self.word();
        let passes = match rule {
            SanitizeRule::AccessRule => true,
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
        SenseData::new(SenseKey::NOT_READY, AdditionalSense::SANITIZE_IN_PROGRESS).with_progress(progress)
    }

    pub(crate) fn set_progress(&self, progress: u16) {
        self.progress.store(progress, Ordering::Relaxed);
    }

    /// Whether a restart would know of an operation.
    pub(crate) fn can_keep(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether an operation runs.
    pub(crate) fn runs(&self) -> bool {
        self.word() & CONDITION == RUNNING
    }

    /// The unit is to go. False when an operation runs; else none begins until it comes back.
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

    /// EXIT FAILURE MODE: what has to be saved before [`Self::leave_failure`].
    ///
    /// # Errors
    ///
    /// INVALID FIELD IN CDB after an operation without AUSE: only a new operation helps then.
    pub(crate) fn exit_failure(&self) -> Result<Option<PendingSave>, SenseData> {
        match *self.state() {
            SanitizeState::Failed { unrestricted: false } => Err(SERVICE_ACTION_FIELD.into()),
            SanitizeState::Failed { unrestricted: true } => Ok(self.save(None)),
            SanitizeState::Ready | SanitizeState::Interrupted(_) | SanitizeState::Running => Ok(None),
        }
    }

    /// The failure is over, unless an operation has begun since.
    pub(crate) fn leave_failure(&self) {
        let mut state = self.state();
        if matches!(*state, SanitizeState::Failed { unrestricted: true }) {
            self.change(&mut state, SanitizeState::Ready);
        }
    }

    /// An operation is to begin. Gives the state that comes back when it cannot.
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
        self.word.fetch_add(CONDITION + 1, Ordering::AcqRel);
        self.change(&mut state, SanitizeState::Running);
        Ok(before)
    }

    /// What an earlier process has begun.
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

    /// An operation ends, or does not begin.
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
        // Only changed under the lock of the state.
        self.word.store(self.word() & !CONDITION | condition, Ordering::Release);
    }

    /// Commands decide by the state, and only one work at a time saves it.
    pub(crate) fn save(&self, record: Option<&SavedSanitize>) -> Option<PendingSave> {
        self.slot.as_ref().map(|slot| slot.update(record.map(SavedSanitize::encode)))
    }

    fn state(&self) -> MutexGuard<'_, SanitizeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
