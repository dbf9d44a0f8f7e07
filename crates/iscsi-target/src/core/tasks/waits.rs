//! Where a command spends its time.

use std::time::{Duration, Instant};

use lunette_scsi::{Lun, OpCode};

use super::running::Waiting;

/// The time that a task has waited, by what it has waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::core) struct Waits {
    /// Commands before it in the session, which came later.
    pub(in crate::core) window: Duration,
    /// The time for its place in the task set, for ranges of blocks on which other commands work, and for the end of
    /// a freeze.
    pub(in crate::core) order: Duration,
    /// A buffer.
    pub(in crate::core) buffer: Duration,
    /// Data of the initiator.
    pub(in crate::core) network: Duration,
    /// The time for its store, or for work on a thread.
    pub(in crate::core) store: Duration,
}

/// A command that has taken longer than the threshold.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::core) struct SlowCommand {
    pub(in crate::core) lun: Lun,
    pub(in crate::core) opcode: OpCode,
    pub(in crate::core) took: Duration,
    pub(in crate::core) waits: Waits,
}

impl Waits {
    pub(super) fn add(&mut self, waiting: Waiting, from: Instant, until: Instant) {
        let sum = match waiting {
            Waiting::Order | Waiting::Turn | Waiting::Aborts => &mut self.order,
            Waiting::Buffer { .. } | Waiting::DataBuffer { .. } => &mut self.buffer,
            Waiting::Data => &mut self.network,
            Waiting::Store | Waiting::Work => &mut self.store,
        };
        *sum += until.saturating_duration_since(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_counts_where_it_belongs() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut waits = Waits::default();
        waits.add(Waiting::Order, at(0), at(1));
        waits.add(Waiting::DataBuffer { len: 1 }, at(1), at(3));
        waits.add(Waiting::Data, at(3), at(7));
        waits.add(Waiting::Turn, at(7), at(15));
        waits.add(Waiting::Store, at(15), at(31));
        waits.add(Waiting::Work, at(40), at(72));
        let expected = [9, 2, 4, 48].map(Duration::from_millis);
        assert_eq!([waits.order, waits.buffer, waits.network, waits.store], expected);
    }
}
