//! The numbers of a logical unit, as a reader gets them: how many commands, how long they took, what they moved, how
//! they failed.

use std::time::Duration;

use lunette_scsi::SenseKey;

/// The kind of a command, as far as its numbers are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandKind {
    /// Returns blocks to the initiator.
    Read,
    /// Changes blocks, other than by UNMAP.
    Write,
    /// UNMAP.
    Unmap,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// Everything else, and what is no command.
    Other,
}

impl CommandKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Unmap, Self::Flush, Self::Other];
}

/// The upper ends of the latency buckets. A bucket more has what took longer.
pub const LATENCY_BOUNDS: [Duration; 14] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(2_500),
    Duration::from_secs(10),
];

/// The number of latency buckets.
pub const LATENCY_BUCKETS: usize = LATENCY_BOUNDS.len() + 1;

/// A kind of access to the medium, as the error counter log pages tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Verify,
}

/// The place of a number among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field(pub(crate) usize);

const OF_KIND: usize = 3 + LATENCY_BUCKETS;
const MOVED: usize = OF_KIND * CommandKind::ALL.len();
const ACCESSES: usize = MOVED + 2;
const SENSE_KEYS: usize = 16;
const SENSE: usize = ACCESSES + 2 * 3;
const STATUSES: usize = SENSE + SENSE_KEYS;
pub(crate) const FIELDS: usize = STATUSES + 4;

impl Field {
    /// Bytes of blocks that successful commands returned to the initiator.
    pub(crate) const READ_BYTES: Self = Self(MOVED);
    /// Bytes of blocks that successful commands took from the initiator.
    pub(crate) const WRITTEN_BYTES: Self = Self(MOVED + 1);
    /// Commands that ended with RESERVATION CONFLICT.
    pub(crate) const RESERVATION_CONFLICTS: Self = Self(STATUSES);
    /// Commands that ended with TASK SET FULL.
    pub(crate) const TASK_SET_FULL: Self = Self(STATUSES + 1);
    /// Commands that ended without a response.
    pub(crate) const ABORTED: Self = Self(STATUSES + 2);
    /// Commands that have begun and not ended.
    pub(crate) const IN_FLIGHT: Self = Self(STATUSES + 3);

    /// Commands that ended with a response.
    pub(crate) const fn commands(kind: CommandKind) -> Self {
        Self(kind as usize * OF_KIND)
    }

    /// The commands that succeeded.
    pub(crate) const fn succeeded(kind: CommandKind) -> Self {
        Self(kind as usize * OF_KIND + 1)
    }

    /// The time that commands took, in nanoseconds.
    pub(crate) const fn nanoseconds(kind: CommandKind) -> Self {
        Self(kind as usize * OF_KIND + 2)
    }

    /// Commands that took as long as a bucket says.
    pub(crate) const fn latency(kind: CommandKind, bucket: usize) -> Self {
        Self(kind as usize * OF_KIND + 3 + bucket)
    }

    /// Bytes that stores have read or written.
    pub(crate) const fn bytes(access: Access) -> Self {
        Self(ACCESSES + 2 * access as usize)
    }

    /// Requests that stores have failed.
    pub(crate) const fn errors(access: Access) -> Self {
        Self(ACCESSES + 2 * access as usize + 1)
    }

    /// Commands that ended with CHECK CONDITION and this sense key.
    pub(crate) const fn sense(key: SenseKey) -> Self {
        Self(SENSE + (key.0 & 0xf) as usize)
    }

    /// All numbers that only grow, by names that mean the same to every release.
    pub(crate) fn named() -> Vec<(String, Self)> {
        const KINDS: [&str; CommandKind::ALL.len()] = ["read", "write", "unmap", "flush", "other"];
        const ACCESSES: [(&str, Access); 3] =
            [("read", Access::Read), ("write", Access::Write), ("verify", Access::Verify)];
        let mut all = Vec::new();
        for (kind, name) in CommandKind::ALL.into_iter().zip(KINDS) {
            all.push((format!("commands.{name}"), Self::commands(kind)));
            all.push((format!("succeeded.{name}"), Self::succeeded(kind)));
            all.push((format!("nanoseconds.{name}"), Self::nanoseconds(kind)));
            for bucket in 0..LATENCY_BUCKETS {
                let bound = BOUNDS_NANOS.get(bucket).map_or_else(|| "more".into(), u64::to_string);
                all.push((format!("latency.{name}.{bound}"), Self::latency(kind, bucket)));
            }
        }
        for (name, access) in ACCESSES {
            all.push((format!("store_bytes.{name}"), Self::bytes(access)));
            all.push((format!("store_errors.{name}"), Self::errors(access)));
        }
        all.extend((0..SENSE_KEYS as u8).map(|key| (format!("sense.{key}"), Self::sense(SenseKey(key)))));
        let others = [
            ("read_bytes", Self::READ_BYTES),
            ("written_bytes", Self::WRITTEN_BYTES),
            ("reservation_conflicts", Self::RESERVATION_CONFLICTS),
            ("task_set_full", Self::TASK_SET_FULL),
            ("aborted", Self::ABORTED),
        ];
        all.extend(others.map(|(name, field)| (name.into(), field)));
        all
    }
}

/// [`LATENCY_BOUNDS`] in nanoseconds.
const BOUNDS_NANOS: [u64; LATENCY_BOUNDS.len()] = {
    let mut nanos = [0; LATENCY_BOUNDS.len()];
    let mut at = 0;
    while at < nanos.len() {
        nanos[at] = LATENCY_BOUNDS[at].as_nanos() as u64;
        at += 1;
    }
    nanos
};

/// The latency bucket of a command that took this many nanoseconds.
#[inline]
pub(crate) fn bucket_of(nanos: u64) -> usize {
    // Most commands are short: this finds theirs first.
    BOUNDS_NANOS.iter().position(|bound| nanos <= *bound).unwrap_or(BOUNDS_NANOS.len())
}

/// The counts of the commands of some nexuses on a logical unit. All numbers but [`in_flight`](Self::in_flight) only
/// grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitCounts([u64; FIELDS]);

impl Default for UnitCounts {
    fn default() -> Self {
        Self([0; FIELDS])
    }
}

impl UnitCounts {
    pub(crate) fn get(&self, field: Field) -> u64 {
        self.0[field.0]
    }

    /// Adds other numbers. (Of [`Field::IN_FLIGHT`] a part may be below zero, the sum is not.)
    pub(crate) fn add(&mut self, others: impl IntoIterator<Item = u64>) {
        for (sum, other) in self.0.iter_mut().zip(others) {
            *sum = sum.wrapping_add(other);
        }
    }

    /// The numbers of [`Field::named`], as `number` tells them by their names.
    pub(crate) fn of_names(number: impl Fn(&str) -> u64) -> Self {
        let mut counts = Self::default();
        for (name, field) in Field::named() {
            counts.0[field.0] = number(&name);
        }
        counts
    }

    /// The numbers of [`Field::named`] that are not zero, by their names.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (String, u64)> {
        let number = |(name, field)| (name, self.get(field));
        Field::named().into_iter().map(number).filter(|(_, number)| *number > 0)
    }

    /// All numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    /// The counts since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at])))
    }

    /// Commands that ended with a response.
    pub fn commands(&self, kind: CommandKind) -> u64 {
        self.get(Field::commands(kind))
    }

    /// The [`commands`](Self::commands) that succeeded.
    pub fn succeeded(&self, kind: CommandKind) -> u64 {
        self.get(Field::succeeded(kind))
    }

    /// Bytes of blocks that successful commands returned to initiators.
    pub fn read_bytes(&self) -> u64 {
        self.get(Field::READ_BYTES)
    }

    /// Bytes of blocks that successful commands took from initiators.
    pub fn written_bytes(&self) -> u64 {
        self.get(Field::WRITTEN_BYTES)
    }

    /// The latencies of commands: for each of [`LATENCY_BOUNDS`] how many took that long at most and longer than the
    /// bound before, and last how many took longer than all. The latency of a command is the time from the moment at
    /// which it was decoded until its answer was queued.
    pub fn latencies(&self, kind: CommandKind) -> [u64; LATENCY_BUCKETS] {
        std::array::from_fn(|bucket| self.get(Field::latency(kind, bucket)))
    }

    /// The sum of the latencies.
    pub fn total_latency(&self, kind: CommandKind) -> Duration {
        Duration::from_nanos(self.get(Field::nanoseconds(kind)))
    }

    /// Commands that ended with CHECK CONDITION and this sense key.
    pub fn errors(&self, key: SenseKey) -> u64 {
        self.get(Field::sense(key))
    }

    /// Commands that ended with RESERVATION CONFLICT.
    pub fn reservation_conflicts(&self) -> u64 {
        self.get(Field::RESERVATION_CONFLICTS)
    }

    /// Commands that ended with TASK SET FULL.
    pub fn task_set_full(&self) -> u64 {
        self.get(Field::TASK_SET_FULL)
    }

    /// Commands that ended without a response: aborted, or their connection was lost.
    pub fn aborted(&self) -> u64 {
        self.get(Field::ABORTED)
    }

    /// Commands that have begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.get(Field::IN_FLIGHT)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        let of_kind = |kind| {
            let latencies = (0..LATENCY_BUCKETS).map(move |bucket| Field::latency(kind, bucket));
            latencies.chain([Field::commands(kind), Field::succeeded(kind), Field::nanoseconds(kind)])
        };
        let of_access = |access| [Field::bytes(access), Field::errors(access)];
        let fields = (CommandKind::ALL.into_iter().flat_map(of_kind))
            .chain([Access::Read, Access::Write, Access::Verify].into_iter().flat_map(of_access))
            .chain((0..16).map(|key| Field::sense(SenseKey(key))))
            .chain([Field::READ_BYTES, Field::WRITTEN_BYTES, Field::RESERVATION_CONFLICTS, Field::TASK_SET_FULL])
            .chain([Field::ABORTED, Field::IN_FLIGHT]);
        let places: Vec<usize> = fields.map(|field| field.0).collect();
        let different: BTreeSet<_> = places.iter().copied().collect();
        assert_eq!(places.len(), FIELDS);
        assert_eq!(different, (0..FIELDS).collect());
    }

    #[test]
    fn each_number_that_grows_has_a_name() {
        let named = Field::named();
        let (names, fields): (BTreeSet<_>, BTreeSet<_>) =
            named.into_iter().map(|(name, field)| (name, field.0)).unzip();
        assert_eq!((names.len(), fields.len()), (FIELDS - 1, FIELDS - 1), "all but those in flight");
        assert!(!fields.contains(&Field::IN_FLIGHT.0));
        let mut counts = UnitCounts(std::array::from_fn(|at| at as u64 + 1));
        counts.0[Field::IN_FLIGHT.0] = 0;
        let by_name: std::collections::BTreeMap<_, _> = counts.by_name().collect();
        assert_eq!(UnitCounts::of_names(|name| by_name[name]), counts);
    }

    #[test]
    fn a_latency_belongs_to_the_first_bucket_that_is_long_enough() {
        assert!(LATENCY_BOUNDS.is_sorted());
        for (at, bound) in LATENCY_BOUNDS.into_iter().enumerate() {
            let nanos = u64::try_from(bound.as_nanos()).unwrap();
            assert_eq!([nanos, nanos + 1].map(bucket_of), [at, at + 1]);
        }
        assert_eq!(bucket_of(0), 0);
    }
}
