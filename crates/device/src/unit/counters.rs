//! The counters of a logical unit, behind log pages and metrics.
//!
//! Each nexus counts for itself, in memory of its own: its commands are executed by one thread, so a counter needs no
//! read-modify-write of the memory, and no core waits for a cache line of another. Readers add up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_handover::Initiator;
use lunette_scsi::{SenseData, Status};

use crate::counts::{CommandKind, FIELDS, Field, UnitCounts, bucket_of};
use crate::limits::MAX_GONE_INITIATORS;

/// The counters of one nexus on one unit. A single thread adds, any thread reads.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct NexusCounters([AtomicU64; FIELDS]);

impl NexusCounters {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[inline]
    pub(crate) fn add(&self, field: Field, amount: u64) {
        let counter = &self.0[field.0];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Takes back what was added to a number that may fall.
    pub(crate) fn take(&self, field: Field, amount: u64) {
        self.add(field, amount.wrapping_neg());
    }

    /// Counts the latency of `commands`, of which each took `nanos` nanoseconds.
    #[inline]
    pub(crate) fn took(&self, kind: CommandKind, commands: u64, nanos: u64) {
        self.add(Field::latency(kind, bucket_of(nanos)), commands);
        self.add(Field::nanoseconds(kind), nanos.wrapping_mul(commands));
    }

    /// Counts commands that were answered at once, one after the other, with GOOD: each took `nanos` nanoseconds.
    #[inline]
    pub(crate) fn at_once(&self, kind: CommandKind, commands: u64, nanos: u64) {
        self.add(Field::commands(kind), commands);
        self.add(Field::succeeded(kind), commands);
        self.took(kind, commands, nanos);
    }

    /// Counts a command that has ended with this status.
    pub(crate) fn ended(&self, kind: CommandKind, status: Status, sense: Option<&SenseData>) {
        self.add(Field::commands(kind), 1);
        match (status, sense) {
            (_, Some(sense)) => self.add(Field::sense(sense.key), 1),
            (Status::RESERVATION_CONFLICT, _) => self.add(Field::RESERVATION_CONFLICTS, 1),
            (Status::TASK_SET_FULL, _) => self.add(Field::TASK_SET_FULL, 1),
            _ => self.add(Field::succeeded(kind), 1),
        }
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|counter| counter.load(Ordering::Relaxed))
    }

    fn get(&self, field: Field) -> u64 {
        self.0[field.0].load(Ordering::Relaxed)
    }
}

/// Bytes that one initiator has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InitiatorBytes {
    /// Bytes that it has read.
    pub read_bytes: u64,
    /// Bytes that it has written.
    pub written_bytes: u64,
}

impl InitiatorBytes {
    fn of(counters: &NexusCounters) -> Self {
        Self { read_bytes: counters.get(Field::READ_BYTES), written_bytes: counters.get(Field::WRITTEN_BYTES) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
    }
}

/// The names of numbers for a successor that are no [`Field`].
const STOPS: &str = "stops";
const UNLOADS: &str = "unloads";
/// Before the names of the numbers at the last reset by LOG SELECT.
const ZERO: &str = "log_zero.";

/// The numbers of one logical unit.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    book: Mutex<Book>,
    /// START STOP UNIT commands that stopped the unit. The count covers the life of the unit and is never reset.
    pub(crate) stops: AtomicU64,
    /// Ejections of the medium.
    pub(crate) unloads: AtomicU64,
}

/// Locked when nexuses come and go and when the numbers are read, not by commands.
#[derive(Debug, Default)]
struct Book {
    nexuses: Vec<(Arc<str>, Arc<NexusCounters>)>,
    /// The counts of nexuses that are gone.
    gone: UnitCounts,
    /// The bytes of nexuses that are gone, by initiator, for as many as are remembered; all others are under the empty
    /// name.
    gone_initiators: BTreeMap<Arc<str>, InitiatorBytes>,
    /// The bytes of initiators with a session that an earlier process has counted, until their last nexus is gone.
    inherited: BTreeMap<Arc<str>, InitiatorBytes>,
    /// The numbers at the last reset by LOG SELECT.
    zero: UnitCounts,
}

impl Book {
    fn total(&self) -> UnitCounts {
        let mut total = self.gone.clone();
        for (_, counters) in &self.nexuses {
            total.add(counters.values());
        }
        total
    }

    fn is_attached(&self, initiator: &Arc<str>) -> bool {
        self.nexuses.iter().any(|(name, _)| name == initiator)
    }

    /// Keeps what an initiator has moved that is gone.
    fn keep(&mut self, initiator: Arc<str>, moved: InitiatorBytes) {
        if moved == InitiatorBytes::default() {
            return;
        }
        let is_full = self.gone_initiators.len() >= MAX_GONE_INITIATORS;
        let name = if is_full && !self.gone_initiators.contains_key(&initiator) { "".into() } else { initiator };
        self.gone_initiators.entry(name).or_default().add(moved);
    }

    /// The bytes that each initiator has moved, one name perhaps several times.
    fn initiators(&self) -> impl Iterator<Item = (&Arc<str>, InitiatorBytes)> {
        let attached = self.nexuses.iter().map(|(initiator, counters)| (initiator, InitiatorBytes::of(counters)));
        let others = self.gone_initiators.iter().chain(&self.inherited);
        attached.chain(others.map(|(initiator, moved)| (initiator, *moved)))
    }
}

impl Counters {
    /// Counters for a nexus of this initiator.
    pub(crate) fn open(&self, initiator: &Arc<str>) -> Arc<NexusCounters> {
        let counters = Arc::new(NexusCounters::new());
        self.book().nexuses.push((Arc::clone(initiator), Arc::clone(&counters)));
        counters
    }

    /// Keeps what a nexus has counted that is gone: its tasks, too, have ended.
    pub(crate) fn close(&self, closed: &Arc<NexusCounters>) {
        let mut book = self.book();
        let Some(at) = book.nexuses.iter().position(|(_, counters)| Arc::ptr_eq(counters, closed)) else { return };
        let (initiator, counters) = book.nexuses.swap_remove(at);
        book.gone.add(counters.values());
        let mut moved = InitiatorBytes::of(&counters);
        if !book.is_attached(&initiator) {
            moved.add(book.inherited.remove(&initiator).unwrap_or_default());
        }
        book.keep(initiator, moved);
    }

    /// All numbers since the creation of the unit.
    pub(crate) fn total(&self) -> UnitCounts {
        self.book().total()
    }

    /// All numbers since the last reset by LOG SELECT.
    pub(crate) fn since_reset(&self) -> UnitCounts {
        let book = self.book();
        book.total().since(&book.zero)
    }

    /// LOG SELECT: log pages count from zero. Start-stop and load-unload cycles keep counting.
    pub(crate) fn reset(&self) {
        let mut book = self.book();
        book.zero = book.total();
    }

    /// Adds what each initiator has moved to `sums`. Initiators that are gone and not remembered have the empty name.
    pub(crate) fn add_initiators(&self, sums: &mut BTreeMap<Arc<str>, InitiatorBytes>) {
        for (initiator, moved) in self.book().initiators() {
            sums.entry(Arc::clone(initiator)).or_default().add(moved);
        }
    }

    /// The numbers by name, for a successor.
    pub(crate) fn handover(&self) -> Vec<(String, u64)> {
        let book = self.book();
        let zero = book.zero.by_name().map(|(name, number)| (format!("{ZERO}{name}"), number));
        let cycles = [(STOPS, &self.stops), (UNLOADS, &self.unloads)];
        let cycles = cycles.map(|(name, counter)| (name.into(), counter.load(Ordering::Relaxed)));
        book.total().by_name().chain(zero).chain(cycles).collect()
    }

    /// The bytes that each initiator has moved, for a successor.
    pub(crate) fn hand_over_initiators(&self) -> Vec<Initiator> {
        let mut sums = BTreeMap::new();
        self.add_initiators(&mut sums);
        let book = self.book();
        let initiator = |(name, InitiatorBytes { read_bytes, written_bytes }): (Arc<str>, _)| {
            let attached = book.is_attached(&name);
            Initiator { name: name.to_string(), read_bytes, written_bytes, attached }
        };
        sums.into_iter().map(initiator).collect()
    }

    /// Goes on from the numbers of a predecessor, as `number` tells them by their names.
    pub(crate) fn inherit(&self, number: impl Fn(&str) -> u64, initiators: &[Initiator]) {
        self.stops.fetch_add(number(STOPS), Ordering::Relaxed);
        self.unloads.fetch_add(number(UNLOADS), Ordering::Relaxed);
        let mut book = self.book();
        book.gone.add(UnitCounts::of_names(&number).values());
        book.zero.add(UnitCounts::of_names(|name| number(&format!("{ZERO}{name}"))).values());
        for Initiator { name, read_bytes, written_bytes, attached } in initiators {
            let (name, moved) =
                (name.as_str().into(), InitiatorBytes { read_bytes: *read_bytes, written_bytes: *written_bytes });
            if *attached {
                book.inherited.entry(name).or_default().add(moved);
            } else {
                book.keep(name, moved);
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::counts::Access;

    fn counted(counters: &Counters, initiator: &str, bytes: u64) -> Arc<NexusCounters> {
        let nexus = counters.open(&initiator.into());
        nexus.add(Field::READ_BYTES, bytes);
        nexus
    }

    #[test]
    fn what_a_nexus_has_counted_outlives_it() {
        let counters = Counters::default();
        let (one, _other) = (counted(&counters, "a", 5), counted(&counters, "b", 7));
        one.took(CommandKind::Read, 3, 100_000);
        let before = counters.total();
        counters.close(&one);
        assert_eq!(counters.total(), before);
        assert_eq!(before.read_bytes(), 12);
        assert_eq!(before.latencies(CommandKind::Read)[..2], [0, 3]);
        assert_eq!(before.total_latency(CommandKind::Read), Duration::from_micros(300));
    }

    #[test]
    fn a_reset_is_for_log_pages_alone() {
        let counters = Counters::default();
        let nexus = counted(&counters, "a", 5);
        nexus.add(Field::errors(Access::Read), 1);
        counters.reset();
        nexus.add(Field::READ_BYTES, 2);
        assert_eq!((counters.since_reset().read_bytes(), counters.total().read_bytes()), (2, 7));
        assert_eq!(counters.since_reset().get(Field::errors(Access::Read)), 0);
    }

    #[test]
    fn initiators_with_sessions_are_remembered_over_a_handover_until_they_are_gone() {
        let (before, after) = (Counters::default(), Counters::default());
        let all = MAX_GONE_INITIATORS + 3;
        let nexuses: Vec<_> = (0..all).map(|number| counted(&before, &format!("iqn.{number:04}"), 1)).collect();
        let left = counted(&before, "left", 9);
        before.close(&left);
        before.reset();
        let sums = |counters: &Counters| {
            let mut sums = BTreeMap::new();
            counters.add_initiators(&mut sums);
            sums
        };
        let numbers: BTreeMap<_, _> = before.handover().into_iter().collect();
        let number = |name: &str| numbers.get(name).copied().unwrap_or(0);
        after.inherit(number, &before.hand_over_initiators());
        assert_eq!((after.total(), after.since_reset()), (before.total(), before.since_reset()));
        assert_eq!(sums(&after), sums(&before));
        let again = [counted(&after, "iqn.0000", 5), counted(&after, "iqn.0000", 6)];
        assert_eq!(sums(&after)["iqn.0000"].read_bytes, 12);
        after.close(&again[0]);
        assert_eq!(after.hand_over_initiators().iter().filter(|initiator| initiator.attached).count(), 1);
        after.close(&again[1]);
        assert_eq!(sums(&after)["iqn.0000"].read_bytes, 12, "there is room for it");
        let third = Counters::default();
        third.inherit(|_| 0, &after.hand_over_initiators());
        assert_eq!(sums(&third).len(), MAX_GONE_INITIATORS + 1, "those that did not come back count as gone");
        assert_eq!(sums(&third).values().map(|moved| moved.read_bytes).sum::<u64>(), all as u64 + 9 + 11);
        drop(nexuses);
    }

    #[test]
    fn the_initiators_that_are_remembered_are_bounded_and_nothing_is_lost() {
        let counters = Counters::default();
        let all = MAX_GONE_INITIATORS + 3;
        for _ in 0..2 {
            for number in 0..all {
                counters.close(&counted(&counters, &format!("iqn.{number:04}"), 1));
            }
        }
        let _attached = counted(&counters, "iqn.0000", 10);
        let mut sums = BTreeMap::new();
        counters.add_initiators(&mut sums);
        assert_eq!(sums.len(), MAX_GONE_INITIATORS + 1);
        assert_eq!((sums["iqn.0000"].read_bytes, sums[""].read_bytes), (12, 6));
        assert_eq!(sums.values().map(|moved| moved.read_bytes).sum::<u64>(), 2 * all as u64 + 10);
    }
}
