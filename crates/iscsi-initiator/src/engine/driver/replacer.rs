//! Recovery level 2: replaces connections that were lost or could not be made, while the session lives.

use lunette_session::Time;
use lunette_session::iscsi_initiator::Session;

use super::{ActiveSession, Phase, SessionDriver};
use crate::engine::dial::dial;
use crate::engine::env::Env;
use crate::engine::retry::backoff;
use crate::limits::{FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, PROVEN_AFTER};

/// Decides when a session makes another connection to keep its number of them.
pub(super) struct ConnectionReplacer {
    wanted: usize,
    /// Failures since a command last completed, or a connection last proved itself.
    failures: u32,
    /// No attempt is made before this time.
    pause: Option<Time>,
    /// The time of the last login.
    logged_in_at: Time,
}

impl ConnectionReplacer {
    /// Begins with the login of the leading connection.
    pub(super) fn new(wanted: u32, now: Time) -> Self {
        Self { wanted: wanted as usize, failures: 0, pause: None, logged_in_at: now }
    }

    pub(super) fn succeeded(&mut self, now: Time) {
        (self.pause, self.logged_in_at) = (None, now);
    }

    /// A command has completed.
    pub(super) fn worked(&mut self) {
        self.failures = 0;
    }

    /// A connection was lost. Unless the last login is long ago, a pause comes before the next attempt, so that a
    /// target that drops each connection at once causes no busy loop. Several connections that are lost together count
    /// as one.
    pub(super) fn lost(&mut self, now: Time) {
        if now - self.logged_in_at >= PROVEN_AFTER {
            self.worked();
        } else if self.pause.is_none() {
            self.failed(now);
        }
    }

    pub(super) fn failed(&mut self, now: Time) {
        self.pause = Some(now + backoff(FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.pause
    }

    /// The number of connections to make now. One is enough to save a session that has none. Otherwise a lost one is
    /// replaced once its tasks are reassigned: until then the target may still count it.
    fn due(&mut self, session: &Session, made: usize, joining: usize, now: Time) -> usize {
        self.pause.take_if(|at| *at <= now);
        if self.pause.is_some() {
            return 0;
        }
        if session.wants_connection() {
            return usize::from(joining == 0);
        }
        if session.is_recovering() { 0 } else { self.wanted.saturating_sub(made + joining) }
    }
}

impl SessionDriver {
    /// Makes the connections that the session lacks. Ends the session if it waited too long for one.
    pub(super) fn replace_connections(&mut self, env: &mut Env<'_, '_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        let made = active.logged_in_connections();
        let ActiveSession { session, connections, joining, replacer: Some(replacer), .. } = &mut **active else {
            return;
        };
        if let Some(why) = session.why_over().filter(|_| connections.is_empty()).cloned() {
            return self.lost(why, env);
        }
        let due = replacer.due(session, made, *joining as usize, env.now);
        if session.is_logging_out() {
            return;
        }
        *joining += due as u32;
        for _ in 0..due {
            dial(env, self.key, self.attempt, self.portal.clone(), &self.options);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_that_are_dropped_at_once_are_made_again_less_and_less_often() {
        let mut now = Time::default();
        let mut replacer = ConnectionReplacer::new(1, now);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            replacer.lost(now);
            let until = replacer.next_timeout().expect("a pause");
            replacer.lost(now);
            assert_eq!(replacer.next_timeout(), Some(until), "lost together");
            pauses.push(until - now);
            now = until;
            replacer.succeeded(now);
            assert_eq!(replacer.next_timeout(), None);
        }
        assert!(pauses.is_sorted() && pauses[0] == FIRST_RECONNECT_PAUSE && pauses[8] == MAX_RECONNECT_PAUSE);
        replacer.worked();
        replacer.lost(now);
        assert_eq!(replacer.next_timeout(), Some(now + FIRST_RECONNECT_PAUSE));
    }

    #[test]
    fn a_connection_that_has_lived_is_replaced_at_once() {
        let now = Time::new(Duration::from_secs(7));
        let mut replacer = ConnectionReplacer::new(1, now);
        replacer.lost(now + PROVEN_AFTER);
        assert_eq!(replacer.next_timeout(), None);
    }
}
