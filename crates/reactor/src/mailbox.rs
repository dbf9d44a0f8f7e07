//! Messages between event loops.
//!
//! An event loop owns what it has: no other one looks at its connections. What concerns several loops travels as a
//! message that the other loop reads between two batches. Messages of one sender arrive in the order in which they were
//! sent.

use crate::Waker;
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// One event loop's access to the inboxes of all.
pub struct Mailbox<M> {
    index: usize,
    inboxes: Arc<Vec<Inbox<M>>>,
}

struct Inbox<M> {
    /// Set while there are messages: all that the event loop reads when there are none.
    is_filled: AtomicBool,
    messages: Mutex<Vec<M>>,
    waker: Waker,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { index: self.index, inboxes: Arc::clone(&self.inboxes) }
    }
}

impl<M> Inbox<M> {
    fn messages(&self) -> MutexGuard<'_, Vec<M>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Mailbox<M> {
    /// The accesses of the event loops that these wake, in their order.
    pub fn between(wakers: impl IntoIterator<Item = Waker>) -> Vec<Self> {
        let inbox = |waker| Inbox { is_filled: AtomicBool::new(false), messages: Mutex::new(Vec::new()), waker };
        let inboxes: Arc<Vec<Inbox<M>>> = Arc::new(wakers.into_iter().map(inbox).collect());
        (0..inboxes.len()).map(|index| Self { index, inboxes: Arc::clone(&inboxes) }).collect()
    }

    /// The number of this event loop.
    pub fn me(&self) -> usize {
        self.index
    }

    /// Whether there is no other event loop.
    pub fn is_alone(&self) -> bool {
        self.inboxes.len() == 1
    }

    /// The number of event loops.
    pub fn cores(&self) -> usize {
        self.inboxes.len()
    }

    /// The numbers of the other event loops.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<M> {
        let me = self.index;
        (0..self.inboxes.len()).filter(move |index| *index != me)
    }

    /// Sends a message to the event loop number `to`, and wakes it. A number that there is not drops the message.
    pub fn send(&self, to: usize, message: M) {
        let Some(inbox) = self.inboxes.get(to) else { return };
        let mut messages = inbox.messages();
        messages.push(message);
        inbox.is_filled.store(true, Ordering::Release);
        drop(messages);
        inbox.waker.wake();
    }

    /// The messages that have come since the last call, in their order.
    pub fn take(&self) -> Vec<M> {
        let Some(inbox) = self.inboxes.get(self.index) else { return Vec::new() };
        if !inbox.is_filled.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut messages = inbox.messages();
        inbox.is_filled.store(false, Ordering::Release);
        std::mem::take(&mut messages)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    fn mailboxes(loops: usize) -> Vec<Mailbox<(usize, u32)>> {
        Mailbox::between((0..loops).map(|_| Waker::new().expect("a descriptor")))
    }

    #[test]
    fn messages_reach_their_event_loop_once_and_in_order() {
        let mailboxes = mailboxes(3);
        assert_eq!(mailboxes[1].others().collect::<Vec<_>>(), [0, 2]);
        mailboxes[0].send(1, (0, 1));
        mailboxes[0].send(1, (0, 2));
        mailboxes[2].send(0, (2, 1));
        assert_eq!(mailboxes[1].take(), [(0, 1), (0, 2)]);
        assert_eq!(mailboxes[1].take(), []);
        assert_eq!(mailboxes[0].take(), [(2, 1)]);
        assert_eq!(mailboxes[2].take(), []);
    }

    #[test]
    fn a_single_event_loop_has_no_others() {
        let mailboxes = mailboxes(1);
        assert!(mailboxes[0].is_alone());
        assert_eq!(mailboxes[0].others().count(), 0);
    }

    #[test]
    fn no_message_is_lost_while_several_send() {
        const EACH: u32 = 10_000;
        let mut mailboxes = mailboxes(3);
        let reader = mailboxes.remove(0);
        thread::scope(|scope| {
            for sender in &mailboxes {
                scope.spawn(move || (0..EACH).for_each(|number| sender.send(0, (sender.me(), number))));
            }
            let mut next = [0; 3];
            while next[1] < EACH || next[2] < EACH {
                for (from, number) in reader.take() {
                    assert_eq!(number, next[from], "of event loop {from}");
                    next[from] += 1;
                }
            }
        });
    }
}

/// All orders in which threads can run, as `cargo xtask test --only loom` explores them.
#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::*;

    /// An event loop that sleeps when it finds nothing, until it has `count` messages.
    fn receive(mailbox: &Mailbox<u32>, count: usize) -> Vec<u32> {
        let waker = mailbox.inboxes[mailbox.index].waker.clone();
        let mut received = Vec::new();
        while received.len() < count {
            if waker.fall_asleep() {
                // Would never end if the wake-up was lost.
                waker.wait_for_event();
                waker.clear_event();
            }
            if waker.was_called() {
                received.extend(mailbox.take());
            }
        }
        received
    }

    #[test]
    fn a_sleeping_event_loop_hears_of_every_message() {
        loom::model(|| {
            let mut mailboxes = Mailbox::between((0..2).map(|_| Waker::new().unwrap()));
            let (sender, reader) = (mailboxes.remove(1), mailboxes.remove(0));
            let sending = thread::spawn(move || (0..2).for_each(|number| sender.send(0, number)));
            assert_eq!(receive(&reader, 2), [0, 1]);
            sending.join().unwrap();
        });
    }

    #[test]
    fn no_message_of_two_senders_is_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let mut mailboxes = Mailbox::between((0..3).map(|_| Waker::new().unwrap()));
            let reader = mailboxes.remove(0);
            let sending: Vec<_> =
                mailboxes.into_iter().map(|sender| thread::spawn(move || sender.send(0, sender.me() as u32))).collect();
            let mut received = receive(&reader, 2);
            received.sort_unstable();
            assert_eq!(received, [1, 2]);
            sending.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
