//! Waiting for the end of a request, as a future or on a thread.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::Error;
use crate::request::{Outcome, Sink};

/// A place for one value that comes later, and the waker of the task that waits for it.
pub(crate) struct Slot<T>(Mutex<State<T>>);

enum State<T> {
    Empty(Option<Waker>),
    Full(T),
    Taken,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Empty(None))))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fill(&self, value: T) {
        let before = std::mem::replace(&mut *self.lock(), State::Full(value));
        if let State::Empty(Some(waker)) = before {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Full(value) => Poll::Ready(value),
            State::Empty(_) | State::Taken => {
                *state = State::Empty(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(*self.lock(), State::Empty(_))
    }
}

/// Fills the slot of a question. An event loop that ends drops it, which fills the slot with [`Error::Closed`].
pub(crate) struct Filler<T>(pub(crate) Arc<Slot<Result<T, Error>>>);

impl<T> Filler<T> {
    pub(crate) fn fill(&self, result: Result<T, Error>) {
        self.0.fill(result);
    }
}

impl<T> Drop for Filler<T> {
    fn drop(&mut self) {
        if self.0.is_empty() {
            self.0.fill(Err(Error::Closed));
        }
    }
}

impl Sink for Slot<Outcome> {
    fn complete(self: Arc<Self>, _: u64, outcome: Outcome) {
        self.fill(outcome);
    }
}

/// A future of the value of a slot.
pub(crate) struct Answer<T>(pub(crate) Arc<Slot<T>>);

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.poll(cx)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread: the blocking form of every `async fn` in this crate.
///
/// It must not be called on the event loop's thread, in a listener or a completion: that thread is the one that
/// completes the future.
///
/// ```
/// assert_eq!(lunette_initiator::wait(async { 1 + 1 }), 2);
/// ```
pub fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        thread::park();
    }
}

/// Runs a future on this thread as [`wait`] does, and drops it when the time is over.
///
/// ```
/// use std::time::Duration;
/// use lunette_initiator::wait_at_most;
///
/// assert_eq!(wait_at_most(Duration::from_secs(1), async { 1 + 1 }), Some(2));
/// assert_eq!(wait_at_most(Duration::ZERO, std::future::pending::<()>()), None);
/// ```
pub fn wait_at_most<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let (waker, start) = (Waker::from(Arc::new(Unpark(thread::current()))), Instant::now());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Some(value);
        }
        let left = limit.checked_sub(start.elapsed()).filter(|left| !left.is_zero())?;
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_another_thread_wakes_the_one_that_waits() {
        let slot = Slot::new();
        let filler = Arc::clone(&slot);
        let thread = thread::spawn(move || filler.fill(7));
        assert_eq!(wait(Answer(slot)), 7);
        thread.join().unwrap();
    }
}
