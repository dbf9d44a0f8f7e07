//! The counters of a logical unit, which the log pages report.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that commands on any core increment.
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

/// The counters of one kind of medium access.
#[derive(Debug, Default)]
pub(crate) struct AccessCounters {
    /// Bytes read, written or verified.
    pub(crate) bytes: Counter,
    /// Requests that the store failed.
    pub(crate) errors: Counter,
}

/// The counters of one logical unit, since its creation or the last reset by LOG SELECT.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read: AccessCounters,
    pub(crate) write: AccessCounters,
    pub(crate) verify: AccessCounters,
    /// Successful commands that returned blocks to the initiator.
    pub(crate) read_commands: Counter,
    /// Successful commands that took blocks from the initiator.
    pub(crate) write_commands: Counter,
    pub(crate) blocks_received: Counter,
    pub(crate) blocks_transmitted: Counter,
    /// START STOP UNIT commands that stopped the unit. The count covers the life of the unit and is never reset.
    pub(crate) stops: Counter,
    /// Ejections of the medium.
    pub(crate) unloads: Counter,
}

impl Counters {
    /// Resets the data counters. Start-stop and load-unload cycles keep counting.
    pub(crate) fn reset(&self) {
        for access in [&self.read, &self.write, &self.verify] {
            access.bytes.reset();
            access.errors.reset();
        }
        let performance = [&self.read_commands, &self.write_commands, &self.blocks_received, &self.blocks_transmitted];
        performance.into_iter().for_each(Counter::reset);
    }
}
