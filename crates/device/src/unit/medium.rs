//! The medium of a removable unit, loaded or ejected.

use std::sync::atomic::{AtomicBool, Ordering};

/// The way in which a command uses the medium. All but `Untouched` need a loaded medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediumUse {
    Untouched,
    Needed,
    Reads,
    Writes,
}

/// Whether the medium is loaded. It always is on a unit that is not removable.
#[derive(Debug, Default)]
pub(crate) struct MediumState {
    ejected: AtomicBool,
}

/// Why the medium cannot be ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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

impl MediumState {
    /// Whether the medium is loaded.
    pub(crate) fn present(&self) -> bool {
        !self.ejected.load(Ordering::Acquire)
    }

    /// Loads or ejects the medium; returns whether that changed anything.
    pub(crate) fn set_present(&self, present: bool) -> bool {
        self.ejected.swap(!present, Ordering::AcqRel) == present
    }
}
