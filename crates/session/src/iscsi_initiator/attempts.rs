//! The lost PDUs that were asked for again, until they come.

use std::time::Duration;

use super::error::SessionError;
use crate::Time;
use crate::limits::{MAX_DAMAGED_RESENDS, MAX_UNANSWERED_REQUESTS};

/// When something was asked for, and how often without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempts {
    at: Time,
    /// Asking was put off then, as nothing had come.
    put_off: bool,
    unanswered: u32,
    damaged: u32,
}

impl Attempts {
    /// The first attempt is made.
    pub(crate) fn begin(now: Time) -> Self {
        Self { at: now, put_off: false, unanswered: 0, damaged: 0 }
    }

    /// When it should have come.
    pub(crate) fn due(&self, patience: Duration) -> Time {
        self.at + patience
    }

    /// Whether something came from the peer since. In the very moment of asking that is not known: what came then may
    /// be what showed the loss. When asking was put off then, it came later: it was put off because nothing had come.
    pub(crate) fn was_before(&self, heard: Time) -> bool {
        self.at < heard || (self.put_off && self.at == heard)
    }

    /// No more than waiting can be done: nothing has come from the peer.
    pub(crate) fn wait(&mut self, now: Time) {
        (self.at, self.put_off) = (now, true);
    }

    /// Delays the next request, because it is too early to ask again.
    pub(crate) fn later(&mut self, now: Time) {
        (self.at, self.put_off) = (now, false);
    }

    /// Once more: it has not come.
    pub(crate) fn after_silence(&mut self, what: &'static str, now: Time) -> Result<(), SessionError> {
        (self.at, self.put_off) = (now, false);
        self.unanswered += 1;
        if self.unanswered > MAX_UNANSWERED_REQUESTS { Err(SessionError::Unrecovered(what)) } else { Ok(()) }
    }

    /// Once more: it has come, and was damaged again. That ends somewhere, too: a peer may be wrong about digests.
    pub(crate) fn after_damage(&mut self, what: &'static str, now: Time) -> Result<(), SessionError> {
        (self.at, self.put_off) = (now, false);
        self.damaged += 1;
        if self.damaged > MAX_DAMAGED_RESENDS { Err(SessionError::Unrecovered(what)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_the_moment_of_waiting_is_heard() {
        let at = |seconds| Time::new(Duration::from_secs(seconds));
        let mut attempts = Attempts::begin(at(1));
        assert!(!attempts.was_before(at(1)) && attempts.was_before(at(2)));
        attempts.wait(at(6));
        assert!(!attempts.was_before(at(1)) && attempts.was_before(at(6)));
        assert_eq!(attempts.after_silence("it", at(11)), Ok(()));
        assert!(!attempts.was_before(at(11)));
        attempts.wait(at(16));
        assert_eq!(attempts.after_damage("it", at(16)), Ok(()));
        assert!(!attempts.was_before(at(16)));
    }
}
