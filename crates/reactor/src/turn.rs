//! The work that a thread does once for many requests.
//!
//! Waking another thread and writing to a socket cost a system call each, and on a busy machine a change of threads. A
//! thread that submits or ends many requests in a row does so in a [`Turn`]. What they lead to is put off by
//! [`at_turn_end`] and done once, for all of them.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

/// Work that can wait for the end of a turn.
pub trait TurnEnd: Send + Sync {
    /// Does what was put off, once for all requests of the turn. Must not block.
    fn turn_ended(&self);
}

thread_local! {
    /// The work that the turn of this thread has put off; `None` outside of one.
    static PUT_OFF: RefCell<Option<Vec<Arc<dyn TurnEnd>>>> = const { RefCell::new(None) };
}

/// A turn of the present thread, until it is dropped.
///
/// A thread calls [`part_ends`](Self::part_ends) before it waits for anything: what it waits for may depend on what was
/// put off.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// use lunette_reactor::{Turn, TurnEnd, at_turn_end};
///
/// struct Wakeups(AtomicU32);
///
/// impl TurnEnd for Wakeups {
///     fn turn_ended(&self) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let wakeups = Arc::new(Wakeups(AtomicU32::new(0)));
/// let wake = || at_turn_end(Arc::<Wakeups>::clone(&wakeups) as _);
/// let turn = Turn::begin();
/// (0..3).for_each(|_| wake());
/// assert_eq!(wakeups.0.load(Ordering::Relaxed), 0);
/// drop(turn);
/// assert_eq!(wakeups.0.load(Ordering::Relaxed), 1, "once for all");
/// wake();
/// assert_eq!(wakeups.0.load(Ordering::Relaxed), 2, "at once, outside of a turn");
/// ```
#[must_use = "the turn ends when it is dropped"]
pub struct Turn {
    /// Whether this is the outermost turn of the thread.
    is_outermost: bool,
    /// The mark that binds this value to a thread.
    _thread: PhantomData<*const ()>,
}

impl Turn {
    /// Begins a turn. One within another has no end of its own.
    pub fn begin() -> Self {
        let is_outermost = PUT_OFF.with_borrow_mut(|put_off| {
            let none = put_off.is_none();
            put_off.get_or_insert_default();
            none
        });
        Self { is_outermost, _thread: PhantomData }
    }

    /// Whether the present thread is in a turn.
    pub fn is_open() -> bool {
        PUT_OFF.with_borrow(Option::is_some)
    }

    /// Does what the present thread has put off so far; nothing outside of a turn.
    pub fn part_ends() {
        // What is done may put off more.
        while let Some(work) = PUT_OFF.with_borrow_mut(|put_off| put_off.as_mut().and_then(Vec::pop)) {
            work.turn_ended();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_outermost {
            Self::part_ends();
            PUT_OFF.set(None);
        }
    }
}

/// Has `work` done at the end of the turn of this thread, once, however often it is asked for; outside of a turn it is
/// done at once.
pub fn at_turn_end(work: Arc<dyn TurnEnd>) {
    let now = PUT_OFF.with_borrow_mut(|put_off| match put_off {
        None => Some(work),
        Some(put_off) => {
            // Few kinds of work are put off in one turn.
            if !put_off.iter().any(|other| Arc::ptr_eq(other, &work)) {
                put_off.push(work);
            }
            None
        }
    });
    if let Some(work) = now {
        work.turn_ended();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Counts its calls, and puts off another one as often as it is told.
    struct Work {
        calls: AtomicU32,
        again: AtomicU32,
        then: Option<Arc<Work>>,
    }

    impl Work {
        fn new(again: u32, then: Option<Arc<Work>>) -> Arc<Self> {
            Arc::new(Self { calls: AtomicU32::new(0), again: AtomicU32::new(again), then })
        }

        fn calls(&self) -> u32 {
            self.calls.load(Ordering::Relaxed)
        }
    }

    impl TurnEnd for Work {
        fn turn_ended(&self) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if let Some(then) = &self.then
                && self.again.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                at_turn_end(Arc::<Work>::clone(then));
            }
        }
    }

    #[test]
    fn work_is_done_once_by_the_outermost_turn_or_where_a_part_of_it_ends() {
        let work = Work::new(0, None);
        let outer = Turn::begin();
        {
            let _inner = Turn::begin();
            at_turn_end(Arc::<Work>::clone(&work));
            at_turn_end(Arc::<Work>::clone(&work));
        }
        assert_eq!(work.calls(), 0);
        Turn::part_ends();
        assert_eq!(work.calls(), 1);
        at_turn_end(Arc::<Work>::clone(&work));
        assert_eq!(work.calls(), 1, "the turn goes on");
        drop(outer);
        assert_eq!(work.calls(), 2);
        Turn::part_ends();
        assert_eq!(work.calls(), 2);
    }

    #[test]
    fn work_that_follows_from_work_is_done_too() {
        let last = Work::new(0, None);
        let first = Work::new(2, Some(Arc::clone(&last)));
        let turn = Turn::begin();
        at_turn_end(Arc::<Work>::clone(&first));
        drop(turn);
        assert_eq!((first.calls(), last.calls()), (1, 1));
        at_turn_end(first);
        assert_eq!(last.calls(), 2, "at once");
    }

    #[test]
    fn each_thread_has_turns_of_its_own() {
        let work = Work::new(0, None);
        let _turn = Turn::begin();
        let other = Arc::clone(&work);
        std::thread::spawn(move || at_turn_end(other)).join().unwrap();
        assert_eq!(work.calls(), 1);
    }
}
