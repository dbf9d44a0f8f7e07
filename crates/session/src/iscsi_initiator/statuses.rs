//! Numbered PDUs of a connection in the order of their StatSN, when some were lost (RFC 7143 sections 4.2.2.2 and 7.9).
//!
//! What is dealt with is acknowledged, so nothing is dealt with before its turn: a status waits for those before it,
//! and for the data of its task. Places count from the number that is due.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::attempts::Attempts;
use super::error::SessionError;
use crate::Time;
use crate::limits::MAX_HELD_STATUS_BYTES;

const WHAT: &str = "a response";

/// The PDUs that wait for their turn, and the missing ones before them.
pub(crate) struct Statuses<T> {
    ahead: VecDeque<Slot<T>>,
    held_bytes: usize,
}

enum Slot<T> {
    Missing(Attempts),
    Here { item: T, len: usize },
}

impl<T> Default for Statuses<T> {
    fn default() -> Self {
        Self { ahead: VecDeque::new(), held_bytes: 0 }
    }
}

impl<T> Statuses<T> {
    /// Whether everything that is known of has been dealt with.
    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }

    pub(crate) fn is_here(&self, place: usize) -> bool {
        matches!(self.ahead.get(place), Some(Slot::Here { .. }))
    }

    /// All numbers before `end` have been sent. Gives those that were not known of: they are to be asked for.
    pub(crate) fn learn(&mut self, end: usize, now: Time) -> Range<usize> {
        let known = self.ahead.len();
        let end = end.max(known);
        self.ahead.resize_with(end, || Slot::Missing(Attempts::begin(now)));
        known..end
    }

    /// Keeps what has come for a place that is known of. It is lost when there is no room: then it will be asked for.
    pub(crate) fn put(&mut self, place: usize, item: T, len: usize) {
        let room = self.held_bytes + len <= MAX_HELD_STATUS_BYTES;
        if let Some(slot @ Slot::Missing(_)) = self.ahead.get_mut(place)
            && room
        {
            *slot = Slot::Here { item, len };
            self.held_bytes += len;
        }
    }

    /// Notes that a requested PDU has come damaged. False when that place is not missing.
    pub(crate) fn damaged(&mut self, place: usize, now: Time) -> Result<bool, SessionError> {
        let Some(Slot::Missing(attempts)) = self.ahead.get_mut(place) else { return Ok(false) };
        attempts.after_damage(WHAT, now)?;
        Ok(true)
    }

    /// The PDU that is due, if it is here.
    pub(crate) fn first(&self) -> Option<&T> {
        if let Some(Slot::Here { item, .. }) = self.ahead.front() { Some(item) } else { None }
    }

    /// Takes what is due: the next number is due then.
    pub(crate) fn take_first(&mut self) -> Option<T> {
        self.first()?;
        let Some(Slot::Here { item, len }) = self.ahead.pop_front() else { return None };
        self.held_bytes -= len;
        Some(item)
    }

    /// When the first of the missing numbers wants to be asked for again.
    pub(crate) fn next_timeout(&self, patience: Duration) -> Option<Time> {
        self.missing().map(|attempts| attempts.due(patience)).min()
    }

    fn missing(&self) -> impl Iterator<Item = &Attempts> {
        self.ahead.iter().filter_map(|slot| if let Slot::Missing(attempts) = slot { Some(attempts) } else { None })
    }

    /// Whether any of these places is missing.
    pub(crate) fn lacks(&self, places: Range<usize>) -> bool {
        self.ahead.range(places.start.min(self.ahead.len())..places.end.min(self.ahead.len())).any(Slot::is_missing)
    }

    /// The runs of places that have not come in time: they are to be asked for again. A peer that was `heard` before
    /// that is silent altogether, which others deal with.
    pub(crate) fn overdue(
        &mut self,
        now: Time,
        patience: Duration,
        heard: Time,
    ) -> Result<Vec<Range<usize>>, SessionError> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (place, slot) in self.ahead.iter_mut().enumerate() {
            let Slot::Missing(attempts) = slot else { continue };
            if attempts.due(patience) > now {
                continue;
            }
            if !attempts.was_before(heard) {
                attempts.wait(now);
                continue;
            }
            attempts.after_silence(WHAT, now)?;
            match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        Ok(runs)
    }
}

impl<T> Slot<T> {
    fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_DAMAGED_RESENDS, MAX_UNANSWERED_REQUESTS};

    const PATIENCE: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Time {
        Time::new(Duration::from_secs(seconds))
    }

    fn overdue(statuses: &mut Statuses<char>, seconds: u64) -> Result<Vec<(usize, usize)>, SessionError> {
        let runs = statuses.overdue(at(seconds), PATIENCE, at(seconds))?;
        Ok(runs.into_iter().map(|run| (run.start, run.end)).collect())
    }

    #[test]
    fn a_gap_is_learned_once_and_filled_in_any_order() {
        let mut statuses = Statuses::default();
        assert_eq!(statuses.learn(3, at(0)), 0..3);
        statuses.put(2, 'c', 1);
        assert_eq!(statuses.learn(3, at(1)), 3..3);
        assert_eq!(statuses.learn(5, at(1)), 3..5);
        statuses.put(4, 'e', 1);
        assert_eq!((statuses.first(), statuses.lacks(0..5), statuses.lacks(2..3)), (None, true, false));
        statuses.put(0, 'a', 1);
        statuses.put(0, 'x', 1);
        assert_eq!((statuses.take_first(), statuses.take_first()), (Some('a'), None));
        statuses.put(0, 'b', 1);
        let taken: Vec<char> = std::iter::from_fn(|| statuses.take_first()).collect();
        assert_eq!((taken, statuses.learn(2, at(1))), (vec!['b', 'c'], 2..2));
        statuses.put(0, 'd', 1);
        assert_eq!((statuses.take_first(), statuses.take_first(), statuses.is_empty()), (Some('d'), Some('e'), true));
    }

    #[test]
    fn what_does_not_come_is_asked_for_again_as_often_as_the_limit_says() {
        let mut statuses = Statuses::default();
        statuses.learn(2, at(0));
        statuses.learn(4, at(2));
        statuses.put(1, 'b', 0);
        assert_eq!(statuses.next_timeout(PATIENCE), Some(at(5)));
        assert_eq!(overdue(&mut statuses, 5), Ok(vec![(0, 1)]));
        assert_eq!(statuses.next_timeout(PATIENCE), Some(at(7)));
        assert_eq!(overdue(&mut statuses, 10), Ok(vec![(0, 1), (2, 4)]));
        for n in 2..MAX_UNANSWERED_REQUESTS {
            assert!(overdue(&mut statuses, 5 + 5 * u64::from(n)).is_ok());
        }
        assert_eq!(overdue(&mut statuses, 1000), Err(SessionError::Unrecovered(WHAT)));
    }

    #[test]
    fn a_silent_peer_is_not_asked_again() {
        let mut statuses: Statuses<char> = Statuses::default();
        statuses.learn(1, at(3));
        for n in 0..10 {
            let runs = statuses.overdue(at(8 + 5 * n), PATIENCE, at(3)).unwrap();
            assert!(runs.is_empty());
        }
        assert_eq!(statuses.overdue(at(100), PATIENCE, at(99)).map(|runs| runs.len()), Ok(1));
    }

    #[test]
    fn what_always_comes_damaged_is_given_up() {
        let mut statuses: Statuses<char> = Statuses::default();
        statuses.learn(1, at(0));
        for _ in 0..MAX_DAMAGED_RESENDS {
            assert_eq!(statuses.damaged(0, at(0)), Ok(true));
        }
        assert_eq!(statuses.damaged(0, at(0)), Err(SessionError::Unrecovered(WHAT)));
        assert_eq!(statuses.damaged(1, at(0)), Ok(false));
    }

    #[test]
    fn what_finds_no_room_stays_missing() {
        let mut statuses = Statuses::default();
        statuses.learn(3, at(0));
        statuses.put(1, 'b', MAX_HELD_STATUS_BYTES);
        statuses.put(2, 'c', 1);
        assert!(!statuses.is_here(2) && statuses.lacks(2..3));
        statuses.put(0, 'a', 0);
        assert_eq!((statuses.take_first(), statuses.take_first()), (Some('a'), Some('b')));
        statuses.put(0, 'c', 1);
        assert_eq!(statuses.take_first(), Some('c'));
    }
}
