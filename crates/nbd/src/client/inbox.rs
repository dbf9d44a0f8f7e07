//! The way of requests from any thread to the thread of the connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_reactor::{TurnEnd, at_turn_end};
use rustix::event::{EventfdFlags, eventfd};

/// Requests that the thread of the connection has not taken yet. It is woken once for all requests of a turn.
#[derive(Debug)]
pub(crate) struct Inbox<J> {
    state: Mutex<State<J>>,
    /// Readable when the thread is to look.
    event: OwnedFd,
}

#[derive(Debug)]
struct State<J> {
    jobs: Vec<J>,
    /// The thread waits, or is about to.
    is_asleep: bool,
    /// No job will come.
    is_closed: bool,
    /// Something has changed since the thread looked.
    has_news: bool,
}

impl<J: Send + 'static> Inbox<J> {
    pub(crate) fn new() -> io::Result<Self> {
        let state = State { jobs: Vec::new(), is_asleep: false, is_closed: false, has_news: false };
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::new(state), event })
    }

    pub(crate) fn push(self: &Arc<Self>, job: J) {
        let mut state = self.lock();
        state.jobs.push(job);
        state.has_news = true;
        let is_asleep = state.is_asleep;
        drop(state);
        if is_asleep {
            at_turn_end(Arc::<Self>::clone(self));
        }
    }

    /// Says that no job will come.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.has_news = true;
        drop(state);
        self.turn_ended();
    }

    /// Moves all jobs to the end of `into`. Whether more may come.
    pub(crate) fn take(&self, into: &mut Vec<J>) -> bool {
        let mut state = self.lock();
        into.append(&mut state.jobs);
        state.has_news = false;
        !state.is_closed
    }

    /// Before a wait for the event. False when there is something to take.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut state = self.lock();
        state.is_asleep = !state.has_news;
        state.is_asleep
    }

    /// After a wait.
    pub(crate) fn wake_up(&self) {
        self.lock().is_asleep = false;
        // There is nothing to read when the wait had another reason.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Send> TurnEnd for Inbox<J> {
    fn turn_ended(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_asleep = std::mem::take(&mut state.is_asleep);
        drop(state);
        if was_asleep {
            // The only failure of this write is a counter near 2^64, which still wakes.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl<J> AsFd for Inbox<J> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use lunette_reactor::Turn;

    use super::*;

    fn is_readable(inbox: &Inbox<u32>) -> bool {
        rustix::io::read(inbox, &mut [0; 8]).is_ok()
    }

    #[test]
    fn the_thread_is_woken_once_for_a_turn_and_only_when_it_sleeps() {
        let inbox = Arc::new(Inbox::new().unwrap());
        inbox.push(1);
        assert!(!is_readable(&inbox), "it is awake");
        assert!(!inbox.fall_asleep(), "there is a job");
        let mut jobs = Vec::new();
        assert!(inbox.take(&mut jobs) && inbox.fall_asleep());
        let turn = Turn::begin();
        inbox.push(2);
        inbox.push(3);
        assert!(!is_readable(&inbox));
        drop(turn);
        assert!(is_readable(&inbox));
        inbox.wake_up();
        assert!(inbox.take(&mut jobs));
        assert_eq!(jobs, [1, 2, 3]);
        assert!(inbox.fall_asleep());
        inbox.close();
        assert!(is_readable(&inbox) && !inbox.fall_asleep(), "the end is news");
        assert!(!inbox.take(&mut jobs) && inbox.fall_asleep());
    }
}
