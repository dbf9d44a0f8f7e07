//! How other threads reach a reactor.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

#[cfg(loom)]
use crate::sync::AtomicBool;
use crate::sync::{Arc, AtomicU8, Ordering};

/// The reactor is working through a batch and will look again before it waits.
const AWAKE: u8 = 0;
/// The reactor waits, or is about to.
const ASLEEP: u8 = 1;
/// A waker was used and the handler has not been told yet.
const CALLED: u8 = 2;

/// Wakes a reactor from any thread, so that it calls [`Handler::woken`](crate::Handler::woken).
///
/// Wake-ups coalesce, and cost a system call only while the reactor waits. What the caller put into a queue before
/// [`wake`](Self::wake) is seen by the `woken` that follows.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

struct Shared {
    event: OwnedFd,
    state: AtomicU8,
    /// The event, for the model.
    #[cfg(loom)]
    raised: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared {
            event,
            state: AtomicU8::new(AWAKE),
            #[cfg(loom)]
            raised: AtomicBool::new(false),
        })))
    }

    /// Makes the reactor call [`Handler::woken`](crate::Handler::woken) soon.
    pub fn wake(&self) {
        if self.0.state.swap(CALLED, Ordering::AcqRel) == ASLEEP {
            // The only failure of this write is a counter near 2^64, which still wakes.
            let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
            #[cfg(loom)]
            self.0.raised.store(true, Ordering::Release);
        }
    }

    /// Whether [`wake`](Self::wake) would cost a system call now: the reactor waits, or is about to.
    ///
    /// A caller with more to say may put the wake-up off. Without one the reactor does not look.
    pub fn is_asleep(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == ASLEEP
    }

    /// Before a wait. `false` when the reactor was called meanwhile and must not wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.0.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// After the wait, and once more before the sends of a batch. `true` when the reactor was called since.
    pub(crate) fn was_called(&self) -> bool {
        self.0.state.swap(AWAKE, Ordering::AcqRel) == CALLED
    }

    /// Takes the event out of the descriptor, so that it stops being readable. Whether the reactor was called is told
    /// by [`was_called`](Self::was_called) alone: the write of a wake-up may come later than its state.
    pub(crate) fn clear_event(&self) {
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
        #[cfg(loom)]
        self.0.raised.store(false, Ordering::Release);
    }

    /// Waits as a reactor does.
    #[cfg(all(test, loom))]
    pub(crate) fn wait_for_event(&self) {
        while !self.0.raised.load(Ordering::Acquire) {
            loom::thread::yield_now();
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn readable(waker: &Waker) -> bool {
        rustix::io::read(waker, &mut [0; 8]).is_ok()
    }

    #[test]
    fn a_call_while_awake_costs_no_event_and_forbids_sleep() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert!(!readable(&waker));
        assert!(!waker.fall_asleep());
        assert!(waker.was_called());
        assert!(waker.fall_asleep());
    }

    #[test]
    fn calls_while_asleep_make_one_event() {
        let waker = Waker::new().unwrap();
        assert!(!waker.is_asleep());
        assert!(waker.fall_asleep());
        assert!(waker.is_asleep());
        waker.wake();
        assert!(!waker.is_asleep());
        waker.clone().wake();
        let mut count = [0; 8];
        rustix::io::read(&waker, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        assert!(waker.was_called());
        assert!(!waker.was_called());
    }
}
