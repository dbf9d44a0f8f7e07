//! READ and WRITE that their store answers within the call.
//!
//! Such a command needs no task: nothing waits, so nothing can be aborted, and no handler has to be resumed. It passes the same admission as any
//! other, moves its bytes, and is counted the same way. Whatever else is found (a unit attention, a conflict, a claim, an error of the store) is
//! left to a [`Task`](crate::Task), which begins from the start.

use std::fmt;
use std::sync::Arc;

use lunette_scsi::{Cdb, Lun, OpCode};
use lunette_store::OpKind;

use super::{admission, count};
use crate::commands::FUA;
use crate::commands::context::count_request;
use crate::commands::row::{Direction, Row};
use crate::extent::Extent;
use crate::sanitize::SanitizeEpoch;
use crate::target_device::Nexus;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::ItlNexus;

/// Executes the commands of one nexus that are answered at once. The logical unit is looked up once for neighbours.
///
/// Keep it for a batch at most: a unit that is removed meanwhile stays usable through it.
pub struct AtOnce<'a> {
    nexus: &'a Nexus,
    unit: Option<Known>,
}

/// The unit that was looked up last.
struct Known {
    lun: [u8; 8],
    itl: Option<Arc<ItlNexus>>,
    /// Whether its store may answer them at once.
    reads: bool,
    writes: bool,
}

/// What the transfer of an admitted command needs.
struct Transfer<'a> {
    row: &'static Row,
    itl: &'a ItlNexus,
    extent: Extent,
    epoch: SanitizeEpoch,
    fua: bool,
}

impl Nexus {
    /// For the commands of a batch that are answered at once.
    pub fn at_once(&self) -> AtOnce<'_> {
        AtOnce { nexus: self, unit: None }
    }
}

impl AtOnce<'_> {
    /// Whether the unit at this LUN may answer a READ, or a WRITE, at once.
    #[inline]
    pub fn serves(&mut self, lun: [u8; 8], is_write: bool) -> bool {
        let known = self.find(lun);
        if is_write { known.writes } else { known.reads }
    }

    /// Executes a READ of as many bytes as `place` has. False when it is not one that ends with GOOD at once: `place` may have changed, and nothing
    /// else has happened.
    pub fn read(&mut self, lun: [u8; 8], cdb: [u8; 16], place: &mut [u8]) -> bool {
        let Some(transfer) = self.admit(lun, cdb, Direction::In, place.len()) else { return false };
        let Transfer { row, itl: ItlNexus { unit, .. }, extent, epoch, .. } = transfer;
        let Some(_passage) = unit.range_locks().pass() else { return false };
        let is_read = unit.sanitize().check_since(epoch).is_ok() && unit.store().read_at_once(extent.offset, place);
        if is_read {
            count_request(unit.counters(), row, OpKind::Read, extent.len, true);
            count(row, unit, extent.len, 0);
        }
        is_read
    }

    /// Executes a WRITE of these bytes, which the transport has verified. False when it is not one that ends with GOOD at once: send it to a task.
    pub fn write(&mut self, lun: [u8; 8], cdb: [u8; 16], from: &[u8]) -> bool {
        let Some(transfer) = self.admit(lun, cdb, Direction::Out, from.len()) else { return false };
        let Transfer { row, itl: ItlNexus { unit, .. }, extent, epoch, fua } = transfer;
        let Some(_passage) = unit.range_locks().pass() else { return false };
        if unit.sanitize().check_since(epoch).is_err() {
            return false;
        }
        unit.change_watches().change(extent);
        let is_written = unit.store().write_at_once(extent.offset, from, fua || unit.write_through());
        if is_written {
            count_request(unit.counters(), row, OpKind::Write, extent.len, true);
            count(row, unit, 0, extent.len);
        }
        is_written
    }

    fn admit(&mut self, lun: [u8; 8], cdb: [u8; 16], direction: Direction, len: usize) -> Option<Transfer<'_>> {
        let (nexus, cdb) = (self.nexus, Cdb::from(cdb));
        let itl = self.find(lun).itl.as_deref()?;
        if !itl.unit_attentions.is_empty() {
            return None;
        }
        let row = admission::row_of(&cdb, itl).ok().filter(|row| row.at_once && row.direction == direction)?;
        let (extent, epoch) = admission::check(row, &cdb, itl, &nexus.state.it_nexus).ok()?;
        let fua = cdb.opcode() != OpCode::WRITE_6 && cdb.flag(FUA);
        (extent.len == len as u64).then_some(Transfer { row, itl, extent, epoch, fua })
    }

    /// The unit at this LUN.
    #[inline]
    fn find(&mut self, lun: [u8; 8]) -> &Known {
        let nexus = self.nexus;
        let known = self.unit.get_or_insert_with(|| Known::new(lun, nexus));
        if known.lun != lun {
            *known = Known::new(lun, nexus);
        }
        known
    }
}

impl fmt::Debug for AtOnce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtOnce").field(self.nexus).finish()
    }
}

impl Known {
    fn new(lun: [u8; 8], nexus: &Nexus) -> Self {
        let itl = nexus.state.find(Lun::decode(lun));
        let may = |kind| itl.as_ref().is_some_and(|itl| itl.unit.answers_at_once(kind));
        let (reads, writes) = (may(OpKind::Read), may(OpKind::Write));
        Self { lun, itl, reads, writes }
    }
}

impl LogicalUnit {
    /// Whether commands may be answered at once: not where blocks are EDUs, of which half a change would look like damage.
    fn answers_at_once(&self, kind: OpKind) -> bool {
        self.store().answers_at_once(kind) && !self.has_edus()
    }
}
