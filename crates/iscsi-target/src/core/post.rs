//! Letters between cores.
//!
//! A core owns what it has: no other one looks at its connections and tasks. What concerns several cores is rare, and travels as
//! a letter that the other core reads between two batches. Letters of one sender arrive in the order in which they were sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_reactor::Waker;

/// The core that listens, applies changes and leads the stop.
pub(crate) const FIRST: usize = 0;

/// One core's access to the boxes of all.
pub(crate) struct Post<L> {
    me: usize,
    boxes: Arc<[Inbox<L>]>,
}

struct Inbox<L> {
    /// All that the core reads while there is no letter.
    waiting: AtomicBool,
    letters: Mutex<Vec<L>>,
    waker: Waker,
}

impl<L> Clone for Post<L> {
    fn clone(&self) -> Self {
        Self { me: self.me, boxes: Arc::clone(&self.boxes) }
    }
}

impl<L> Inbox<L> {
    fn letters(&self) -> MutexGuard<'_, Vec<L>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L> Post<L> {
    /// Boxes for the cores that these wake, each with its own access.
    pub(crate) fn between(wakers: impl IntoIterator<Item = Waker>) -> Vec<Self> {
        let inbox = |waker| Inbox { waiting: AtomicBool::new(false), letters: Mutex::default(), waker };
        let boxes: Arc<[Inbox<L>]> = wakers.into_iter().map(inbox).collect();
        (0..boxes.len()).map(|me| Self { me, boxes: Arc::clone(&boxes) }).collect()
    }

    /// The number of this core.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Whether there is no other core.
    pub(crate) fn is_alone(&self) -> bool {
        self.boxes.len() == 1
    }

    /// How many cores there are.
    pub(crate) fn cores(&self) -> usize {
        self.boxes.len()
    }

    /// The numbers of the others.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<L> {
        let me = self.me;
        (0..self.boxes.len()).filter(move |core| *core != me)
    }

    pub(crate) fn send(&self, to: usize, letter: L) {
        let Some(inbox) = self.boxes.get(to) else { return };
        let mut letters = inbox.letters();
        letters.push(letter);
        inbox.waiting.store(true, Ordering::Release);
        drop(letters);
        inbox.waker.wake();
    }

    /// The letters that have come since the last call, in their order.
    pub(crate) fn take(&self) -> Vec<L> {
        let Some(inbox) = self.boxes.get(self.me) else { return Vec::new() };
        if !inbox.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut letters = inbox.letters();
        inbox.waiting.store(false, Ordering::Release);
        std::mem::take(&mut letters)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use lunette_reactor::Reactor;

    use super::*;

    fn post(cores: usize) -> Vec<Post<(usize, u32)>> {
        let reactors: Vec<_> = (0..cores).map(|_| Reactor::new().unwrap()).collect();
        Post::between(reactors.iter().map(Reactor::waker))
    }

    #[test]
    fn letters_reach_the_one_they_are_for_once_and_in_order() {
        let post = post(3);
        assert_eq!(post[1].others().collect::<Vec<_>>(), [0, 2]);
        post[0].send(1, (0, 1));
        post[0].send(1, (0, 2));
        post[2].send(0, (2, 1));
        assert_eq!(post[1].take(), [(0, 1), (0, 2)]);
        assert_eq!(post[1].take(), []);
        assert_eq!(post[0].take(), [(2, 1)]);
        assert_eq!(post[2].take(), []);
    }

    #[test]
    fn a_core_of_its_own_has_nobody_to_write_to() {
        let post = post(1);
        assert!(post[0].is_alone());
        assert_eq!(post[0].others().count(), 0);
    }

    #[test]
    fn no_letter_is_lost_while_several_write() {
        const EACH: u32 = 10_000;
        let mut post = post(3);
        let reader = post.remove(0);
        thread::scope(|scope| {
            for writer in &post {
                scope.spawn(move || (0..EACH).for_each(|number| writer.send(FIRST, (writer.me(), number))));
            }
            let mut next = [0; 3];
            while next[1] < EACH || next[2] < EACH {
                for (from, number) in reader.take() {
                    assert_eq!(number, next[from], "of core {from}");
                    next[from] += 1;
                }
            }
        });
    }
}
