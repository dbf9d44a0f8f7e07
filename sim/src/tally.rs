//! Counts of what happened.

use std::collections::BTreeMap;

use crate::fault::FaultKind;
use crate::wire::Side;

/// Units that initiators have reset because a task was not aborted in time.
pub(crate) const RESETS_FOR_TASKS: &str = "units reset for a task";

/// The counts of one run, or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Faults that struck, by kind: in streams to the target, in streams to the initiator.
    pub faults: BTreeMap<&'static str, [u64; 2]>,
    /// The means that it took to go on, by kind.
    pub recoveries: BTreeMap<&'static str, u64>,
    /// Commands by their end.
    pub commands: BTreeMap<&'static str, u64>,
    /// Requests that were answered, messages of the target, and what else was seen, by kind.
    pub happenings: BTreeMap<&'static str, u64>,
    /// Bytes that were sent.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn fault(&mut self, kind: FaultKind, to: Side) {
        self.faults.entry(kind.name()).or_default()[to as usize] += 1;
    }

    pub(crate) fn recovery(&mut self, kind: &'static str) {
        self.recoveries(kind, 1);
    }

    pub(crate) fn recoveries(&mut self, kind: &'static str, count: u64) {
        *self.recoveries.entry(kind).or_default() += count;
    }

    pub(crate) fn command(&mut self, end: &'static str) {
        *self.commands.entry(end).or_default() += 1;
    }

    pub(crate) fn happening(&mut self, kind: &'static str) {
        self.happenings(kind, 1);
    }

    pub(crate) fn happenings(&mut self, kind: &'static str, count: u64) {
        *self.happenings.entry(kind).or_default() += count;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (kind, [to_target, to_initiator]) in &other.faults {
            let sum = self.faults.entry(kind).or_default();
            sum[0] += to_target;
            sum[1] += to_initiator;
        }
        for (kind, count) in &other.recoveries {
            self.recoveries(kind, *count);
        }
        for (end, count) in &other.commands {
            *self.commands.entry(end).or_default() += count;
        }
        for (kind, count) in &other.happenings {
            self.happenings(kind, *count);
        }
        self.bytes += other.bytes;
    }
}
