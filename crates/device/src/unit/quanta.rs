//! Units whose blocks are EDUs (`docs/quanta.md`): what a target does with quanta that it cannot read.
//!
//! The CRC of an EDU needs no key. With it the unit refuses damaged writes, finds damage on the medium, and knows the
//! data digests of reads without reading the data. Such a digest is a claim: the blocks are intact. When an initiator
//! may have found it wrong, the unit *doubts* its medium, and for a while each READ checks what it has read. So a
//! damaged block costs its reader a digest error first, and is a MEDIUM ERROR when it is read again.
//!
//! Commands that write a unit of EDUs claim their blocks exclusively, whatever its options, so that no READ, VERIFY or
//! scrub sees a half of one.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lunette_buffer::Payload;
use lunette_quanta::{QuantumSize, StoredDigest, first_damaged};
use lunette_scsi::{AdditionalSense, SenseData, SenseKey};

use crate::environment::{Clock, millis};
use crate::limits::{DOUBT_TIME, SCRUB_BYTES};

/// The slowest scrub, in bytes per second: one request per second.
pub const MIN_SCRUB_RATE: u64 = SCRUB_BYTES as u64;

/// The options of a unit for quanta. All of it needs blocks of the length of an EDU, and all of it is off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuantaOptions {
    /// Refuses to write blocks that are damaged.
    pub check_writes: bool,
    /// Reads the medium in the background, again and again, and counts and logs the damaged blocks: at most this many
    /// bytes per second, at least [`MIN_SCRUB_RATE`].
    pub scrub_rate: Option<u64>,
    /// Tells the transport the data digests of reads ([`Response::digests`](crate::Response::digests)).
    pub stored_digests: bool,
}

impl QuantaOptions {
    /// Whether any of it is on.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// The findings of a unit about its quanta since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuantaCounts {
    /// Commands that were refused because a block that they were to write is damaged.
    pub refused_writes: u64,
    /// Commands that ended with MEDIUM ERROR because a block that they read is damaged.
    pub damaged_reads: u64,
    /// Bytes that scrubs have read.
    pub scrubbed_bytes: u64,
    /// How often scrubs have come to the end of the medium.
    pub scrubs: u64,
    /// Damaged blocks that scrubs have found. A block counts each time that it is found.
    pub scrubbed_damage: u64,
}

/// Which blocks the Data-In of a response holds, on a unit that knows the digests of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredDigests {
    /// Bytes of a block.
    pub block_len: u32,
    /// The block that the data begins with.
    pub first_lba: u64,
}

impl StoredDigests {
    /// The CRC32C that `blocks`, whole blocks in memory from `first_lba` on, have when they are intact. When they are
    /// not, it is not that of their bytes.
    pub fn crc32c(block_len: u32, first_lba: u64, blocks: &Payload) -> u32 {
        let size = QuantumSize::of_edu_len(block_len.into()).expect("a unit with stored digests has blocks of an EDU");
        let mut digest = StoredDigest::new(size, first_lba);
        blocks.for_each_run(|run| digest.update(run));
        digest.finish()
    }
}

/// The state of a unit with [`QuantaOptions`].
pub(crate) struct UnitQuanta {
    size: QuantumSize,
    options: QuantaOptions,
    serial: String,
    clock: Clock,
    /// When the unit began to doubt its medium, in milliseconds of `clock` and at least 1; 0 when it does not.
    doubts_since_ms: AtomicU64,
    scrub_began: AtomicBool,
    counters: Counters,
}

/// A counter that commands on any core increment.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Counters {
    refused_writes: Counter,
    damaged_reads: Counter,
    scrubbed_bytes: Counter,
    scrubs: Counter,
    scrubbed_damage: Counter,
}

impl Counters {
    fn by_name(&self) -> [(&'static str, &Counter); 5] {
        let Self { refused_writes, damaged_reads, scrubbed_bytes, scrubs, scrubbed_damage } = self;
        [
            ("quanta.refused_writes", refused_writes),
            ("quanta.damaged_reads", damaged_reads),
            ("quanta.scrubbed_bytes", scrubbed_bytes),
            ("quanta.scrubs", scrubs),
            ("quanta.scrubbed_damage", scrubbed_damage),
        ]
    }
}

impl UnitQuanta {
    pub(super) fn new(size: QuantumSize, options: QuantaOptions, serial: &str, clock: &Clock) -> Self {
        Self {
            size,
            options,
            serial: serial.into(),
            clock: clock.clone(),
            doubts_since_ms: AtomicU64::new(0),
            scrub_began: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    fn lba(&self, offset: u64) -> u64 {
        offset / self.size.edu_len() as u64
    }

    /// The first damaged block of `blocks`, which are to be or were at `offset`.
    fn damaged(&self, offset: u64, blocks: &[u8]) -> Option<u64> {
        first_damaged(self.size, self.lba(offset), blocks)
    }

    /// Whether `blocks` may be written at `offset`.
    ///
    /// # Errors
    ///
    /// Sense data for a damaged block, with its LBA, as for a block whose protection information is wrong (SBC-4 4.21):
    /// the data was damaged on its way, and an initiator may send it again.
    pub(crate) fn check_write(&self, offset: u64, blocks: &[u8]) -> Result<(), SenseData> {
        if !self.options.check_writes {
            return Ok(());
        }
        let Some(lba) = self.damaged(offset, blocks) else { return Ok(()) };
        self.counters.refused_writes.add(1);
        tracing::warn!(serial = %self.serial, lba, "a damaged block is not written");
        let sense = SenseData::new(SenseKey::ABORTED_COMMAND, AdditionalSense::LOGICAL_BLOCK_GUARD_CHECK_FAILED);
        Err(sense.with_information(lba))
    }

    /// Whether `blocks`, as they were read at `offset`, are intact.
    ///
    /// # Errors
    ///
    /// MEDIUM ERROR with the LBA of the first that is not.
    pub(crate) fn check_read(&self, offset: u64, blocks: &[u8]) -> Result<(), SenseData> {
        let Some(lba) = self.damaged(offset, blocks) else { return Ok(()) };
        self.counters.damaged_reads.add(1);
        tracing::error!(serial = %self.serial, lba, "a damaged block was read");
        Err(SenseData::medium_error(AdditionalSense::UNRECOVERED_READ_ERROR).with_information(lba))
    }

    /// Finds, counts and logs the damaged ones of `blocks`, which a scrub has read at `offset`.
    pub(crate) fn scrubbed(&self, offset: u64, blocks: &[u8]) -> Vec<u64> {
        self.counters.scrubbed_bytes.add(blocks.len() as u64);
        let (mut first, mut left, mut damaged) = (self.lba(offset), blocks, Vec::new());
        while let Some(lba) = first_damaged(self.size, first, left) {
            self.counters.scrubbed_damage.add(1);
            tracing::error!(serial = %self.serial, lba, "the scrub has found a damaged block");
            damaged.push(lba);
            // Within the slice, because the damaged block is.
            left = &left[(lba + 1 - first) as usize * self.size.edu_len()..];
            first = lba + 1;
        }
        damaged
    }

    /// A scrub has come to the end of the medium.
    pub(crate) fn scrub_ended(&self) {
        self.counters.scrubs.add(1);
        let counts = self.counts();
        tracing::info!(serial = %self.serial, scrubs = counts.scrubs, damage = counts.scrubbed_damage, "the scrub has read the medium");
    }

    /// The rate of the scrub, for the one caller that is to begin it.
    pub(crate) fn begin_scrub(&self) -> Option<u64> {
        self.options.scrub_rate.filter(|_| !self.scrub_began.swap(true, Ordering::AcqRel))
    }

    /// The digests of data that is read from `offset` on.
    pub(crate) fn digests(&self, offset: u64) -> Option<StoredDigests> {
        let digests = StoredDigests { block_len: self.size.edu_len() as u32, first_lba: self.lba(offset) };
        self.options.stored_digests.then_some(digests)
    }

    /// An initiator may have found a digest wrong. READ checks blocks from now on, for [`DOUBT_TIME`].
    pub(crate) fn doubt(&self) {
        if self.options.stored_digests {
            let now_ms = millis((self.clock)()).max(1);
            if self.doubts_since_ms.swap(now_ms, Ordering::AcqRel) == 0 {
                tracing::info!(serial = %self.serial, "a digest may have been refused; reads are checked for a while");
            }
        }
    }

    /// Whether READ checks blocks.
    pub(crate) fn doubts(&self) -> bool {
        let since_ms = self.doubts_since_ms.load(Ordering::Acquire);
        if since_ms == 0 {
            return false;
        }
        // A clock that was set back ends the doubt, too.
        let doubts = millis((self.clock)()).abs_diff(since_ms) < millis(DOUBT_TIME);
        if !doubts {
            let _ = self.doubts_since_ms.compare_exchange(since_ms, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        doubts
    }

    pub(crate) fn counts(&self) -> QuantaCounts {
        let Counters { refused_writes, damaged_reads, scrubbed_bytes, scrubs, scrubbed_damage } = &self.counters;
        QuantaCounts {
            refused_writes: refused_writes.get(),
            damaged_reads: damaged_reads.get(),
            scrubbed_bytes: scrubbed_bytes.get(),
            scrubs: scrubs.get(),
            scrubbed_damage: scrubbed_damage.get(),
        }
    }

    /// The counts by name, for a successor.
    pub(super) fn by_name(&self) -> [(&'static str, u64); 5] {
        self.counters.by_name().map(|(name, counter)| (name, counter.get()))
    }

    /// When the unit began to doubt its medium, in milliseconds since 1970; 0 when it does not.
    pub(super) fn doubts_since_ms(&self) -> u64 {
        self.doubts_since_ms.load(Ordering::Acquire)
    }

    /// Goes on from the counts of a predecessor, as `number` tells them by their names, and from its doubt.
    pub(super) fn inherit(&self, number: impl Fn(&str) -> u64, doubts_since_ms: u64) {
        self.counters.by_name().into_iter().for_each(|(name, counter)| counter.add(number(name)));
        if self.options.stored_digests {
            self.doubts_since_ms.store(doubts_since_ms, Ordering::Release);
        }
    }
}

impl fmt::Debug for UnitQuanta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnitQuanta")
            .field("options", &self.options)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
