//! The medium of a unit: whether it is there at all, whether that of a removable unit is loaded, and how often others
//! have put other content on it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use lunette_scsi::AdditionalSense;

use super::LogicalUnit;

/// The way in which a command uses the medium. All but `Untouched` need a loaded medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediumUse {
    Untouched,
    Needed,
    Reads,
    Writes,
}

/// The state of a medium.
#[derive(Debug)]
pub(crate) struct MediumState {
    /// The reasons that keep commands from it: zero when there is none.
    reasons: AtomicU8,
    /// See [`LogicalUnit::medium_changed`].
    changes: AtomicU64,
}

/// An initiator has ejected the medium. Never on a unit that is not removable.
const EJECTED: u8 = 1;

/// The store is not there: whoever serves the unit has to act first.
const NOT_READY: u8 = 2;

/// The store has lost all of its blocks: whoever serves the unit has to act first.
const EMPTY: u8 = 4;

/// The store is not there yet: it is being opened.
const BECOMING_READY: u8 = 8;

/// The faults that keep commands from a unit, and that only its server can mend.
const FAULTS: u8 = NOT_READY | EMPTY;

/// All that keeps commands from a unit whose medium is loaded.
const UNSERVED: u8 = FAULTS | BECOMING_READY;

/// Whether the store of a unit is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The store is there.
    Ready,
    /// The store is being opened, and comes by itself: LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
    BecomingReady,
    /// The store is not there: LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED.
    NotReady,
}

impl Readiness {
    fn bits(self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::BecomingReady => BECOMING_READY,
            Self::NotReady => NOT_READY,
        }
    }
}

/// Why the medium cannot be ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EjectError {
    /// An initiator prevents the removal (PREVENT ALLOW MEDIUM REMOVAL).
    #[error("an initiator prevents the removal of the medium; let it allow the removal, or end its session")]
    Prevented,
    /// A sanitize operation is running.
    #[error("the unit is being sanitized; wait for the end of that")]
    SanitizeRule,
    /// The unit is not removable.
    #[error("the unit is not removable; configure it with removable = true")]
    Fixed,
}

/// Why others must not put other content on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MediumChangeError {
    /// A sanitize operation is running, or has failed: what it has erased must not come back.
    #[error("the unit is being sanitized, or that has failed; let a SANITIZE come to its end first")]
    Sanitizing,
    /// Other servers offer the unit too, and their initiators would not be told.
    #[error("other gateways offer the unit too; take it from them first")]
    Shared,
}

impl LogicalUnit {
    /// Whether others may put other content on the medium, as the roll back of a snapshot does. Ask while the unit is
    /// [frozen](Self::freeze): a sanitize operation that begins in the freeze erases all that is there after it.
    ///
    /// # Errors
    ///
    /// [`MediumChangeError`].
    pub fn may_change_medium(&self) -> Result<(), MediumChangeError> {
        if self.config.shared {
            return Err(MediumChangeError::Shared);
        }
        self.sanitize.check().map_err(|_| MediumChangeError::Sanitizing)
    }

    /// Says that the medium has other content now, after [`Self::may_change_medium`] and before the thaw. All nexuses
    /// get the unit attention NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED. Another length is a
    /// [change](Self::capacity_changed) of its own.
    ///
    /// Commands that wait for the thaw end with ABORTED COMMAND: their initiators sent them for what was there before,
    /// and an atomic one may have compared it. ROD tokens of the unit end. The unit keeps nothing else of the content.
    pub fn medium_changed(&self) {
        self.medium.changes.fetch_add(1, Ordering::AcqRel);
        self.announce_medium();
    }

    /// How often others have put other content on the medium.
    pub(crate) fn medium_changes(&self) -> u64 {
        self.medium.changes.load(Ordering::Acquire)
    }
}

impl MediumState {
    /// A loaded medium.
    pub(crate) fn new(readiness: Readiness) -> Self {
        Self { reasons: AtomicU8::new(readiness.bits()), changes: AtomicU64::new(0) }
    }

    /// Whether the medium is loaded.
    pub(crate) fn present(&self) -> bool {
        !self.has(EJECTED)
    }

    /// Loads or ejects the medium; returns whether that changed anything.
    pub(crate) fn set_present(&self, present: bool) -> bool {
        self.set(EJECTED, !present)
    }

    /// Whether the store is there, with a block at least.
    pub(crate) fn ready(&self) -> bool {
        !self.has(UNSERVED)
    }

    /// Sets whether the store is there; returns whether that is a change.
    pub(crate) fn set_readiness(&self, readiness: Readiness) -> bool {
        let bits = readiness.bits();
        let next = |state: u8| Some(state & !(NOT_READY | BECOMING_READY) | bits);
        let before = self.reasons.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_else(|state| state);
        before & (NOT_READY | BECOMING_READY) != bits
    }

    /// The store has no block left, or has some; returns whether that is a change.
    pub(crate) fn set_empty(&self, is_empty: bool) -> bool {
        self.set(EMPTY, is_empty)
    }

    /// Why commands on the medium are refused, if they are. A medium that is not there is no matter of loading.
    #[inline]
    pub(crate) fn not_ready(&self) -> Option<AdditionalSense> {
        match self.reasons.load(Ordering::Acquire) {
            0 => None,
            state if state & FAULTS != 0 => Some(AdditionalSense::MANUAL_INTERVENTION_REQUIRED),
            state if state & BECOMING_READY != 0 => Some(AdditionalSense::BECOMING_READY),
            _ => Some(AdditionalSense::MEDIUM_NOT_PRESENT),
        }
    }

    fn has(&self, bit: u8) -> bool {
        self.reasons.load(Ordering::Acquire) & bit != 0
    }

    fn set(&self, bit: u8, on: bool) -> bool {
        let before = if on {
            self.reasons.fetch_or(bit, Ordering::AcqRel)
        } else {
            self.reasons.fetch_and(!bit, Ordering::AcqRel)
        };
        (before & bit != 0) != on
    }
}
