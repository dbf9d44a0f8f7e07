//! What was lost and asked for again, until it comes.

use std::time::Duration;

use super::error::SessionError;
use crate::Time;
use crate::limits::{MAX_DAMAGED_RESENDS, MAX_UNANSWERED_REQUESTS};

/// When something was asked for, and how often in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    at: Time,
    unanswered: u32,
    damaged: u32,
}

impl Asked {
    /// For the first time.
    pub(crate) fn first(now: Time) -> Self {
        Self { at: now, unanswered: 0, damaged: 0 }
    }

    /// When it should have come.
    pub(crate) fn due(&self, patience: Duration) -> Time {
        self.at + patience
    }

    /// Whether something came from the peer since.
    pub(crate) fn was_before(&self, heard: Time) -> bool {
        self.at < heard
    }

    /// No more than waiting can be done.
    pub(crate) fn wait(&mut self, now: Time) {
        self.at = now;
    }

    /// Once more: it has not come.
    pub(crate) fn after_silence(&mut self, what: &'static str, now: Time) -> Result<(), SessionError> {
        self.at = now;
        self.unanswered += 1;
        if self.unanswered > MAX_UNANSWERED_REQUESTS { Err(SessionError::Unrecovered(what)) } else { Ok(()) }
    }

    /// Once more: it has come, and was damaged again. That ends somewhere, too: a peer may be wrong about digests.
    pub(crate) fn after_damage(&mut self, what: &'static str, now: Time) -> Result<(), SessionError> {
        self.at = now;
        self.damaged += 1;
        if self.damaged > MAX_DAMAGED_RESENDS { Err(SessionError::Unrecovered(what)) } else { Ok(()) }
    }
}
