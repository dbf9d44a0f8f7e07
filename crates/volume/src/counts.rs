//! The counts of an open volume so far.

use std::sync::atomic::{AtomicU64, Ordering};

use lunette_quanta::Reason;

/// The counts of an open volume since it was opened, in quanta unless a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Sealed for writes.
    pub sealed: u64,
    /// Opened for reads, holes included.
    pub opened: u64,
    /// Requests that were refused for a damaged quantum: its CRC is wrong.
    pub refused_damaged: u64,
    /// Requests that were refused for a hole in a volume that has none.
    pub refused_holes: u64,
    /// Requests that were refused because there was no key of the epoch.
    pub refused_unknown_epoch: u64,
    /// Requests that were refused for a quantum that is not authentic: its tag is wrong.
    pub refused_not_authentic: u64,
    /// Requests that were refused for a quantum that is older than the anchor knows it to be, or was erased.
    pub refused_rolled_back: u64,
    /// Reads that were made a second time because a write at the same time could explain what the first one met.
    pub read_again: u64,
    /// Damaged quanta that were repaired from parity.
    pub repaired: u64,
    /// Records written to the journal of a packed volume.
    pub records: u64,
    /// Checkpoints of a packed volume.
    pub checkpoints: u64,
}

/// The counts of a volume that works.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sealed: AtomicU64,
    pub(crate) opened: AtomicU64,
    refused_damaged: AtomicU64,
    refused_holes: AtomicU64,
    refused_unknown_epoch: AtomicU64,
    refused_not_authentic: AtomicU64,
    refused_rolled_back: AtomicU64,
    pub(crate) read_again: AtomicU64,
    pub(crate) repaired: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

impl Tally {
    pub(crate) fn add(count: &AtomicU64, quanta: u64) {
        count.fetch_add(quanta, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, reason: Reason) {
        let count = match reason {
            Reason::Damaged => &self.refused_damaged,
            Reason::Hole => &self.refused_holes,
            Reason::UnknownEpoch(_) => &self.refused_unknown_epoch,
            Reason::NotAuthentic => &self.refused_not_authentic,
            Reason::RolledBack => &self.refused_rolled_back,
        };
        Self::add(count, 1);
    }

    pub(crate) fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            sealed: of(&self.sealed),
            opened: of(&self.opened),
            refused_damaged: of(&self.refused_damaged),
            refused_holes: of(&self.refused_holes),
            refused_unknown_epoch: of(&self.refused_unknown_epoch),
            refused_not_authentic: of(&self.refused_not_authentic),
            refused_rolled_back: of(&self.refused_rolled_back),
            read_again: of(&self.read_again),
            repaired: of(&self.repaired),
            records: of(&self.records),
            checkpoints: of(&self.checkpoints),
        }
    }
}
