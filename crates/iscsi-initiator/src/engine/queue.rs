//! The queue of messages to an event loop.

use std::sync::{Arc, Mutex, PoisonError};

use lunette_reactor::{TurnEnd, Waker, at_turn_end};

use super::message::{Message, SessionKey};

/// The queue of messages to an event loop.
pub(crate) struct Queue {
    inbox: Mutex<Inbox>,
    waker: Waker,
}

#[derive(Default)]
struct Inbox {
    messages: Vec<Message>,
    /// Whether the event loop has ended. Messages are then dropped, which tells their senders.
    closed: bool,
}

impl Queue {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { inbox: Mutex::default(), waker })
    }

    /// Sends a message. The event loop is woken at the end of the caller's turn, if it sleeps.
    pub(crate) fn push(self: &Arc<Self>, message: Message) {
        self.push_with(|| message);
    }

    /// Sends the message that `make` makes in the queue: requests are large to be moved.
    #[inline]
    pub(crate) fn push_with(self: &Arc<Self>, make: impl FnOnce() -> Message) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.closed {
            // The drop may call a completion that pushes again, so the lock is released before.
            drop(inbox);
            return drop(make());
        }
        inbox.messages.push(make());
        drop(inbox);
        if self.waker.is_asleep() {
            at_turn_end(Arc::<Self>::clone(self));
        } else {
            // It may have fallen asleep by now, and is woken then.
            self.waker.wake();
        }
    }

    /// Whether the event loop has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Swaps the messages for an empty list.
    pub(super) fn swap(&self, list: &mut Vec<Message>) {
        std::mem::swap(&mut self.inbox.lock().unwrap_or_else(PoisonError::into_inner).messages, list);
    }

    /// Ends the queue, and gives the messages that nothing takes any more.
    pub(super) fn close(&self) -> Vec<Message> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.closed = true;
        std::mem::take(&mut inbox.messages)
    }
}

impl TurnEnd for Queue {
    fn turn_ended(&self) {
        self.waker.wake();
    }
}

/// Closes its session when it is dropped.
pub(crate) struct Owner {
    queue: Arc<Queue>,
    pub(crate) key: SessionKey,
}

impl Owner {
    pub(super) fn new(queue: &Arc<Queue>, key: SessionKey) -> Self {
        Self { queue: Arc::clone(queue), key }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.queue.push(Message::Close { session: self.key, done: None });
    }
}
