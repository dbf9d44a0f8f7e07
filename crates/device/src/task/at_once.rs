//! READ and WRITE that their store answers within the call.
//!
//! Such a command needs no task: nothing waits, so nothing can be aborted, and no handler has to be resumed. It passes
//! the same admission as any other, moves its bytes, and is counted the same way. Whatever else is found (a unit
//! attention, a conflict, a claim, an error of the store) is left to a [`Task`](crate::Task), which begins from the
//! start.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use lunette_scsi::{Cdb, Lun, OpCode};
use lunette_store::OpKind;

use super::admission;
use crate::commands::FUA;
use crate::commands::row::Direction;
use crate::counts::{Access, CommandKind, Field};
use crate::extent::Extent;
use crate::sanitize::SanitizeEpoch;
use crate::target_device::Nexus;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;

/// Executes the commands of one nexus that are answered at once. The logical unit is looked up once for neighbours, and
/// neighbours are counted together: one after the other they have all taken the time of the stretch, so the latency of
/// each is its share.
///
/// Keep it for a batch at most: a unit that is removed or frozen meanwhile stays usable through it, and what was done
/// is counted when it is dropped.
pub struct AtOnce<'a, C: Fn() -> Instant> {
    nexus: &'a Nexus,
    clock: C,
    unit: Option<Known>,
    stretch: Stretch,
}

/// Commands on one unit that are not counted yet.
#[derive(Default)]
struct Stretch {
    /// The moment of the first one.
    begun: Option<Instant>,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
}

/// The unit that was looked up last.
struct Known {
    lun: [u8; 8],
    itl: Option<Arc<ItlNexus>>,
    /// Whether its store may answer them at once.
    reads: bool,
    writes: bool,
}

/// The values that the transfer of an admitted command needs.
struct Transfer<'a> {
    itl: &'a ItlNexus,
    extent: Extent,
    epoch: SanitizeEpoch,
    fua: bool,
}

impl Nexus {
    /// For the commands of a batch that are answered at once. `clock` tells how long they take.
    pub fn at_once<C: Fn() -> Instant>(&self, clock: C) -> AtOnce<'_, C> {
        AtOnce { nexus: self, clock, unit: None, stretch: Stretch::default() }
    }
}

impl<C: Fn() -> Instant> AtOnce<'_, C> {
    /// Whether the unit at this LUN may answer a READ, or a WRITE, at once.
    #[inline]
    pub fn serves(&mut self, lun: [u8; 8], is_write: bool) -> bool {
        let known = self.find(lun);
        if is_write { known.writes } else { known.reads }
    }

    /// Executes a READ of as many bytes as `place` has. False when it is not one that ends with GOOD at once: `place`
    /// may have changed, and nothing else has happened.
    #[inline]
    pub fn read(&mut self, lun: [u8; 8], cdb: [u8; 16], place: &mut [u8]) -> bool {
        let is_read = self.execute_read(lun, cdb, place);
        if is_read {
            self.stretch.reads += 1;
            self.stretch.read_bytes += place.len() as u64;
        }
        is_read
    }

    #[inline]
    fn execute_read(&mut self, lun: [u8; 8], cdb: [u8; 16], place: &mut [u8]) -> bool {
        let Some(transfer) = self.admit(lun, cdb, Direction::In, place.len()) else { return false };
        let Transfer { itl: ItlNexus { unit, .. }, extent, epoch, .. } = transfer;
        let Some(_passage) = unit.range_locks().pass() else { return false };
        unit.sanitize().check_since(epoch).is_ok() && unit.store().read_at_once(extent.offset, place)
    }

    /// Executes a WRITE of these bytes, which the transport has verified. False when it is not one that ends with GOOD
    /// at once: send it to a task.
    #[inline]
    pub fn write(&mut self, lun: [u8; 8], cdb: [u8; 16], from: &[u8]) -> bool {
        let is_written = self.execute_write(lun, cdb, from);
        if is_written {
            self.stretch.writes += 1;
            self.stretch.written_bytes += from.len() as u64;
        }
        is_written
    }

    #[inline]
    fn execute_write(&mut self, lun: [u8; 8], cdb: [u8; 16], from: &[u8]) -> bool {
        let Some(transfer) = self.admit(lun, cdb, Direction::Out, from.len()) else { return false };
        let Transfer { itl: ItlNexus { unit, .. }, extent, epoch, fua } = transfer;
        let Some(_passage) = unit.range_locks().pass() else { return false };
        if unit.sanitize().check_since(epoch).is_err() {
            return false;
        }
        unit.change_watches().change(extent);
        unit.store().write_at_once(extent.offset, from, fua || unit.write_through())
    }

    fn admit(&mut self, lun: [u8; 8], cdb: [u8; 16], direction: Direction, len: usize) -> Option<Transfer<'_>> {
        let (nexus, cdb) = (self.nexus, Cdb::from(cdb));
        if self.stretch.begun.is_none() {
            self.stretch.begun = Some((self.clock)());
        }
        let itl = self.find(lun).itl.as_deref()?;
        if !itl.unit_attentions.is_empty() {
            return None;
        }
        let row = admission::row_of(&cdb, itl).ok().filter(|row| row.at_once && row.direction == direction)?;
        let (extent, epoch) = admission::check(row, &cdb, itl, &nexus.state.it_nexus).ok()?;
        let fua = cdb.opcode() != OpCode::WRITE_6 && cdb.flag(FUA);
        (extent.len == len as u64).then_some(Transfer { itl, extent, epoch, fua })
    }

    /// The unit at this LUN.
    #[inline]
    fn find(&mut self, lun: [u8; 8]) -> &Known {
        if self.unit.as_ref().is_some_and(|known| known.lun != lun) {
            self.count_stretch();
            self.unit = None;
        }
        let nexus = self.nexus;
        self.unit.get_or_insert_with(|| Known::new(lun, nexus))
    }

    /// Counts what was done on the unit.
    fn count_stretch(&mut self) {
        let Stretch { begun, reads, read_bytes, writes, written_bytes } = std::mem::take(&mut self.stretch);
        let itl = self.unit.as_ref().and_then(|known| known.itl.as_ref());
        let (Some(begun), Some(itl), 1..) = (begun, itl, reads + writes) else { return };
        let (counters, took) = (&itl.counters, (self.clock)().saturating_duration_since(begun));
        // Of each command; a stretch is part of a batch, which does not take centuries.
        let nanos = took.as_nanos() as u64 / (reads + writes);
        if reads > 0 {
            counters.at_once(CommandKind::Read, reads, nanos);
            counters.add(Field::bytes(Access::Read), read_bytes);
            counters.add(Field::READ_BYTES, read_bytes);
        }
        if writes > 0 {
            counters.at_once(CommandKind::Write, writes, nanos);
            counters.add(Field::bytes(Access::Write), written_bytes);
            counters.add(Field::WRITTEN_BYTES, written_bytes);
        }
    }
}

impl<C: Fn() -> Instant> Drop for AtOnce<'_, C> {
    fn drop(&mut self) {
        self.count_stretch();
    }
}

impl<C: Fn() -> Instant> fmt::Debug for AtOnce<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtOnce").field(self.nexus).finish()
    }
}

impl Known {
    fn new(lun: [u8; 8], nexus: &Nexus) -> Self {
        let itl = nexus.state.find(Lun::decode(lun));
        // A freeze that begins later waits for the end of the batch.
        let may = |kind| itl.as_ref().is_some_and(|itl| itl.unit.answers_at_once(kind) && !itl.unit.is_frozen());
        let (reads, writes) = (may(OpKind::Read), may(OpKind::Write));
        Self { lun, itl, reads, writes }
    }
}

impl LogicalUnit {
    /// Whether commands may be answered at once: not where blocks are EDUs, of which half a change would look like
    /// damage.
    fn answers_at_once(&self, kind: OpKind) -> bool {
        self.store().answers_at_once(kind) && !self.has_edus()
    }
}
