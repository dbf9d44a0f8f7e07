//! The counts of an event loop.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that one thread adds to and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Not a read-modify-write of the memory: the loop's own thread is the only one that adds, so nothing is lost, and
    /// it costs as little as a plain integer.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of one event loop.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: Counter,
    pub(crate) system_calls: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) direct_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) file_bytes: Counter,
    pub(crate) received_datagrams: Counter,
    pub(crate) received_messages: Counter,
    pub(crate) sent_datagrams: Counter,
    pub(crate) sent_messages: Counter,
}

impl Counters {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            batches: self.batches.get(),
            system_calls: self.system_calls.get(),
            received_bytes: self.received_bytes.get(),
            direct_bytes: self.direct_bytes.get(),
            sent_bytes: self.sent_bytes.get(),
            file_bytes: self.file_bytes.get(),
            received_datagrams: self.received_datagrams.get(),
            received_messages: self.received_messages.get(),
            sent_datagrams: self.sent_datagrams.get(),
            sent_messages: self.sent_messages.get(),
        }
    }
}

/// The counts of an event loop since it was made. Each count is right by itself; together they may be of a moment
/// apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Turns of the loop.
    pub batches: u64,
    /// Calls into the system by the loop itself: waits, receives, sends, and what it tells epoll.
    pub system_calls: u64,
    /// Bytes from sockets.
    pub received_bytes: u64,
    /// The received bytes that the system put where [`Handler::direct`](crate::Handler::direct) said.
    pub direct_bytes: u64,
    /// Bytes that sockets took.
    pub sent_bytes: u64,
    /// The sent bytes that the system took out of files.
    pub file_bytes: u64,
    /// Datagrams from sockets.
    pub received_datagrams: u64,
    /// The messages that the system handed them over in: fewer, when it joined them (`UDP_GRO`).
    pub received_messages: u64,
    /// Datagrams that sockets took.
    pub sent_datagrams: u64,
    /// The messages that they were handed over in: fewer, when they were joined (`UDP_SEGMENT`).
    pub sent_messages: u64,
}

impl Counts {
    /// The sums of the counts of two event loops.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.each(other, |own, other| own + other)
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.each(earlier, u64::saturating_sub)
    }

    fn each(&self, other: &Self, make: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            batches: make(self.batches, other.batches),
            system_calls: make(self.system_calls, other.system_calls),
            received_bytes: make(self.received_bytes, other.received_bytes),
            direct_bytes: make(self.direct_bytes, other.direct_bytes),
            sent_bytes: make(self.sent_bytes, other.sent_bytes),
            file_bytes: make(self.file_bytes, other.file_bytes),
            received_datagrams: make(self.received_datagrams, other.received_datagrams),
            received_messages: make(self.received_messages, other.received_messages),
            sent_datagrams: make(self.sent_datagrams, other.sent_datagrams),
            sent_messages: make(self.sent_messages, other.sent_messages),
        }
    }
}

/// A view of an event loop's counts for other threads.
#[derive(Debug, Clone)]
pub struct CountsView(pub(crate) std::sync::Arc<Counters>);

impl CountsView {
    /// The counts by now.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_since_is_the_difference() {
        let counters = Counters::default();
        counters.sent_bytes.add(7);
        let before = counters.counts();
        counters.sent_bytes.add(5);
        counters.batches.add(1);
        let since = counters.counts().since(&before);
        assert_eq!(since, Counts { batches: 1, sent_bytes: 5, ..Counts::default() });
    }
}
