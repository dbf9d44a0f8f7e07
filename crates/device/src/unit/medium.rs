//! The medium of a removable unit: there, or taken out.

use std::sync::atomic::{AtomicBool, Ordering};

/// What the command does to the medium. Any but the first needs one in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediumUse {
    Untouched,
    Needed,
    Reads,
    Writes,
}

/// Whether the medium is in its place. Units that are not removable always have theirs.
#[derive(Debug, Default)]
pub(crate) struct MediumState {
    ejected: AtomicBool,
}

/// The medium cannot be taken out: an initiator holds it by PREVENT ALLOW MEDIUM REMOVAL, or the unit is not removable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EjectError {
    /// An initiator has prevented it.
    #[error("an initiator prevents the removal of the medium; let it allow the removal, or end its session")]
    Prevented,
    /// A sanitize operation runs.
    #[error("the unit is being sanitized; wait for the end of that")]
    SanitizeRule,
    /// The unit is not removable.
    #[error("the unit is not removable; configure it with removable = true")]
    Fixed,
}

impl MediumState {
    /// Whether the medium is there.
    pub(crate) fn present(&self) -> bool {
        !self.ejected.load(Ordering::Acquire)
    }

    /// Puts the medium in or takes it out; tells whether that changed anything.
    pub(crate) fn set_present(&self, present: bool) -> bool {
        self.ejected.swap(!present, Ordering::AcqRel) == present
    }
}
