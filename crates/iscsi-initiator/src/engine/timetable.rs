//! The timers of all sessions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lunette_session::Time;

use super::SessionKey;

/// A heap of times that may be too early: a session whose timer has moved to a later time is called once for nothing, and entered
/// again. So entries need not be moved while data flows.
#[derive(Default)]
pub(super) struct Timetable(BinaryHeap<Reverse<(Time, SessionKey)>>);

impl Timetable {
    /// Makes sure that the session is called at `at` or before. `watched_for` is the time of its earliest entry.
    pub(super) fn watch(&mut self, key: SessionKey, at: Time, watched_for: &mut Option<Time>) {
        if watched_for.is_none_or(|watched| at < watched) {
            *watched_for = Some(at);
            self.0.push(Reverse((at, key)));
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn pop_due(&mut self, now: Time) -> Option<(Time, SessionKey)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(due)| due)
    }
}
