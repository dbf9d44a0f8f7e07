//! What a logical unit has done: the numbers behind LOG SENSE.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that commands on any core add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// One kind of access to the medium.
#[derive(Debug, Default)]
pub(crate) struct AccessCounters {
    /// Bytes that were read, written or verified.
    pub(crate) bytes: Counter,
    /// Requests that the store failed.
    pub(crate) errors: Counter,
}

/// The numbers of one logical unit, since it was made or since LOG SELECT reset them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read: AccessCounters,
    pub(crate) write: AccessCounters,
    pub(crate) verify: AccessCounters,
    /// Commands that ended well and gave blocks to the initiator.
    pub(crate) read_commands: Counter,
    /// Commands that ended well and took blocks from it.
    pub(crate) write_commands: Counter,
    pub(crate) blocks_received: Counter,
    pub(crate) blocks_transmitted: Counter,
    /// START STOP UNIT that stopped the unit. No reset: they belong to its whole life.
    pub(crate) stops: Counter,
    /// The medium was taken out.
    pub(crate) unloads: Counter,
}

impl Counters {
    /// The data counters begin again. Cycles of start and stop stay.
    pub(crate) fn reset(&self) {
        for access in [&self.read, &self.write, &self.verify] {
            access.bytes.reset();
            access.errors.reset();
        }
        let performance = [&self.read_commands, &self.write_commands, &self.blocks_received, &self.blocks_transmitted];
        performance.into_iter().for_each(Counter::reset);
    }
}
