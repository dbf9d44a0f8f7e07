//! The counts of a connection's traffic.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// PDUs, and how their data came to its place. A connection counts in plain integers; its driver takes the counts once
/// in a while ([`SharedTraffic`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// PDUs whose header has been received, of any kind.
    pub received_pdus: u64,
    /// PDUs that were queued to be sent.
    pub sent_pdus: u64,
    /// Copies of received data to its place, without a digest.
    pub copies: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// Copies of received data to its place that digested it in the same pass.
    pub digested_copies: u64,
    /// Bytes of these.
    pub digested_copied_bytes: u64,
    /// Receives that the system put at their place itself.
    pub direct_receives: u64,
    /// Headers that came with a wrong digest.
    pub header_digest_errors: u64,
    /// Data segments that came with a wrong digest.
    pub data_digest_errors: u64,
}

impl Traffic {
    /// The traffic since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// The sum of two traffics.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    pub(crate) fn copied(&mut self, len: usize, digested: bool) {
        if len == 0 {
            return;
        }
        let (copies, bytes) = if digested {
            (&mut self.digested_copies, &mut self.digested_copied_bytes)
        } else {
            (&mut self.copies, &mut self.copied_bytes)
        };
        *copies += 1;
        *bytes += len as u64;
    }

    fn zip(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            received_pdus: with(self.received_pdus, other.received_pdus),
            sent_pdus: with(self.sent_pdus, other.sent_pdus),
            copies: with(self.copies, other.copies),
            copied_bytes: with(self.copied_bytes, other.copied_bytes),
            digested_copies: with(self.digested_copies, other.digested_copies),
            digested_copied_bytes: with(self.digested_copied_bytes, other.digested_copied_bytes),
            direct_receives: with(self.direct_receives, other.direct_receives),
            header_digest_errors: with(self.header_digest_errors, other.header_digest_errors),
            data_digest_errors: with(self.data_digest_errors, other.data_digest_errors),
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        *self = self.zip(&other, |a, b| a + b);
    }
}

/// Counts of one thread, which any thread may read. The numbers of a reading need not be of one moment.
#[derive(Debug, Default)]
pub struct SharedTraffic {
    received_pdus: AtomicU64,
    sent_pdus: AtomicU64,
    copies: AtomicU64,
    copied_bytes: AtomicU64,
    digested_copies: AtomicU64,
    digested_copied_bytes: AtomicU64,
    direct_receives: AtomicU64,
    header_digest_errors: AtomicU64,
    data_digest_errors: AtomicU64,
}

impl SharedTraffic {
    /// Adds what was moved. One thread only may call this: what two add at the same time may be lost.
    pub fn add(&self, moved: Traffic) {
        let add = |count: &AtomicU64, n: u64| {
            if n > 0 {
                count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
            }
        };
        add(&self.received_pdus, moved.received_pdus);
        add(&self.sent_pdus, moved.sent_pdus);
        add(&self.copies, moved.copies);
        add(&self.copied_bytes, moved.copied_bytes);
        add(&self.digested_copies, moved.digested_copies);
        add(&self.digested_copied_bytes, moved.digested_copied_bytes);
        add(&self.direct_receives, moved.direct_receives);
        add(&self.header_digest_errors, moved.header_digest_errors);
        add(&self.data_digest_errors, moved.data_digest_errors);
    }

    /// The sum so far.
    pub fn read(&self) -> Traffic {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Traffic {
            received_pdus: read(&self.received_pdus),
            sent_pdus: read(&self.sent_pdus),
            copies: read(&self.copies),
            copied_bytes: read(&self.copied_bytes),
            digested_copies: read(&self.digested_copies),
            digested_copied_bytes: read(&self.digested_copied_bytes),
            direct_receives: read(&self.direct_receives),
            header_digest_errors: read(&self.header_digest_errors),
            data_digest_errors: read(&self.data_digest_errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(from: u64) -> Traffic {
        Traffic {
            received_pdus: from,
            sent_pdus: from + 1,
            copies: from + 2,
            copied_bytes: from + 3,
            digested_copies: from + 4,
            digested_copied_bytes: from + 5,
            direct_receives: from + 6,
            header_digest_errors: from + 7,
            data_digest_errors: from + 8,
        }
    }

    #[test]
    fn every_count_is_added_read_and_taken_off() {
        let shared = SharedTraffic::default();
        shared.add(numbered(10));
        shared.add(numbered(100));
        let mut sum = numbered(10);
        sum += numbered(100);
        assert_eq!(shared.read(), sum);
        assert_eq!(sum.since(&numbered(10)), numbered(100));
        assert_eq!(sum.digested_copied_bytes, 120);
    }

    #[test]
    fn an_empty_copy_is_none() {
        let mut traffic = Traffic::default();
        traffic.copied(0, true);
        traffic.copied(5, false);
        traffic.copied(7, true);
        let expected =
            Traffic { copies: 1, copied_bytes: 5, digested_copies: 1, digested_copied_bytes: 7, ..Traffic::default() };
        assert_eq!(traffic, expected);
    }
}
