//! How long and how often a lost session tries to reconnect.

use std::time::Duration;

use lunette_session::Time;

use super::retry::backoff;
use crate::limits::{FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, PROVEN_AFTER};

/// Decides whether and when a lost session tries again to connect.
#[derive(Default)]
pub(super) struct ReconnectPolicy {
    /// The time of the first failure since a command last completed, or a connection last proved itself.
    lost_since: Option<Time>,
    failures: u32,
    /// The time of the login of the present connection.
    logged_in_at: Option<Time>,
}

impl ReconnectPolicy {
    pub(super) fn logged_in(&mut self, now: Time) {
        self.logged_in_at = Some(now);
    }

    /// A command has completed.
    pub(super) fn worked(&mut self) {
        (self.lost_since, self.failures) = (None, 0);
    }

    /// The connection was lost, or could not be made. Gives the pause before the next attempt, or `None` once `limit`
    /// has passed since the first failure.
    pub(super) fn failed(&mut self, limit: Duration, time2wait: Duration, now: Time) -> Option<Duration> {
        if self.logged_in_at.take().is_some_and(|at| now - at >= PROVEN_AFTER) {
            self.worked();
        }
        let elapsed = now - *self.lost_since.get_or_insert(now);
        let left = limit.checked_sub(elapsed).filter(|left| !left.is_zero())?;
        let pause = backoff(FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, self.failures).max(time2wait).min(left);
        self.failures += 1;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    fn at(seconds: u64) -> Time {
        Time::new(Duration::from_secs(seconds))
    }

    #[test]
    fn an_idle_session_has_all_its_time_again_at_the_next_loss() {
        let mut reconnect = ReconnectPolicy::default();
        assert!(reconnect.failed(LIMIT, Duration::ZERO, at(10)).is_some());
        reconnect.logged_in(at(11));
        assert_eq!(reconnect.failed(LIMIT, Duration::ZERO, at(4000)), Some(FIRST_RECONNECT_PAUSE));
        assert!(reconnect.failed(LIMIT, Duration::ZERO, at(4059)).is_some());
        assert_eq!(reconnect.failed(LIMIT, Duration::ZERO, at(4060)), None);
    }

    #[test]
    fn logins_that_are_dropped_at_once_come_to_an_end() {
        let mut reconnect = ReconnectPolicy::default();
        let given_up = (0..1000).find(|second| {
            reconnect.logged_in(at(*second));
            reconnect.failed(LIMIT, Duration::ZERO, at(*second)).is_none()
        });
        assert_eq!(given_up, Some(60));
    }

    #[test]
    fn pauses_grow_respect_time2wait_and_end_with_the_limit() {
        let mut reconnect = ReconnectPolicy::default();
        assert_eq!(reconnect.failed(LIMIT, Duration::ZERO, at(0)), Some(FIRST_RECONNECT_PAUSE));
        assert_eq!(reconnect.failed(LIMIT, Duration::ZERO, at(0)), Some(FIRST_RECONNECT_PAUSE * 2));
        assert_eq!(reconnect.failed(LIMIT, Duration::from_secs(7), at(0)), Some(Duration::from_secs(7)));
        assert_eq!(reconnect.failed(LIMIT, Duration::from_hours(1), at(50)), Some(Duration::from_secs(10)));
        assert_eq!(reconnect.failed(Duration::ZERO, Duration::ZERO, at(51)), None);
    }
}
