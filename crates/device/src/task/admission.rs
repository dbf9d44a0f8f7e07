//! Admission: the checks that every command passes once, before its handler runs and before a store sees any of it.
//!
//! The order is that of SAM-5 5.14 and SPC-5: first the state of the logical unit, then the CDB byte by byte, then the
//! blocks that it names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_scsi::{AdditionalSense, BlockCdb, Cdb, OpCode, SenseData, check_additional_len, check_usage};

use crate::commands::opcodes;
use crate::commands::row::{AbsentUnit, AttentionRule, RangeRule, Row};
use crate::extent::Extent;
use crate::nexus::ItNexus;
use crate::port_groups::access::AccessRule;
use crate::reservations::Refusal;
use crate::sanitize::SanitizeEpoch;
use crate::unit::LogicalUnit;
use crate::unit::itl_nexus::{ItlNexus, check_medium};

/// A command that has passed admission.
pub(crate) struct Admitted {
    pub(crate) row: &'static Row,
    pub(crate) itl: Option<Arc<ItlNexus>>,
    pub(crate) extent: Extent,
    /// The sanitize epoch of the admission.
    pub(crate) epoch: SanitizeEpoch,
}

/// Makes all checks of a command that need no access to the medium. `row` is the row of its opcode, `itl` the logical
/// unit that it names.
pub(crate) fn admit(
    row: Result<&'static Row, SenseData>,
    itl: Option<Arc<ItlNexus>>,
    cdb: &Cdb,
    it_nexus: &ItNexus,
) -> Result<Admitted, Refusal> {
    let Some(itl) = itl else { return Ok(admit_absent(row, cdb)?) };
    if !matches!(row, Ok(Row { attention: AttentionRule::Passes, .. }))
        && let Some(code) = itl.unit_attentions.take()
    {
        return Err(SenseData::unit_attention(code).into());
    }
    let row = supported(row, cdb, &itl)?;
    let (extent, epoch) = check(row, cdb, &itl, it_nexus)?;
    Ok(Admitted { row, itl: Some(itl), extent, epoch })
}

/// The row of `cdb`, if the unit supports it.
pub(super) fn row_of(cdb: &Cdb, itl: &ItlNexus) -> Result<&'static Row, SenseData> {
    supported(opcodes::find(cdb), cdb, itl)
}

fn supported(row: Result<&'static Row, SenseData>, cdb: &Cdb, itl: &ItlNexus) -> Result<&'static Row, SenseData> {
    row.ok().filter(|row| row.supported_by(itl)).ok_or_else(|| opcodes::unsupported(cdb, itl))
}

/// Makes the checks of a supported command that reports no unit attention.
#[inline]
pub(super) fn check(
    row: &Row,
    cdb: &Cdb,
    itl: &ItlNexus,
    it_nexus: &ItNexus,
) -> Result<(Extent, SanitizeEpoch), Refusal> {
    let unit = &itl.unit;
    itl.access.check(row.access)?;
    if !unit.reservations().permits(it_nexus, row.reservation.of(cdb)) {
        return Err(Refusal::Conflict);
    }
    if row.opcode == OpCode::VARIABLE_LENGTH {
        check_additional_len(cdb, row.usage.len())?;
    }
    check_usage(cdb, row.usage)?;
    // A unit without its store answers what a port in the unavailable state answers (SPC-4 5.16.2.5), and no other
    // command: what its state is, only the store's unit knows.
    if !unit.is_ready() && row.access < AccessRule::Unavailable {
        // It may be ready by now.
        let why = unit.not_ready().unwrap_or(AdditionalSense::BECOMING_READY);
        return Err(SenseData::not_ready(why).into());
    }
    let epoch = unit.sanitize().admit(row.sanitizing)?;
    check_medium(row.medium, itl)?;
    if row.effect.is_of(cdb) && itl.read_only.load(Ordering::Relaxed) {
        return Err(SenseData::data_protect(AdditionalSense::WRITE_PROTECTED).into());
    }
    let extent = check_range(row.range, cdb, unit)?;
    Ok((extent, epoch))
}

/// Admits the few commands that have a response where no logical unit exists (SAM-5 5.11).
fn admit_absent(row: Result<&'static Row, SenseData>, cdb: &Cdb) -> Result<Admitted, SenseData> {
    match row {
        Ok(row) if row.absent == AbsentUnit::Answered => {
            check_usage(cdb, row.usage)?;
            Ok(Admitted { row, itl: None, extent: Extent::default(), epoch: SanitizeEpoch::default() })
        }
        _ => Err(SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)),
    }
}

const OUT_OF_RANGE: SenseData = SenseData::illegal_request(AdditionalSense::LBA_OUT_OF_RANGE);

/// The blocks that the CDB names, which must lie within the current medium and not exceed the limit of `range`.
fn check_range(range: RangeRule, cdb: &Cdb, unit: &LogicalUnit) -> Result<Extent, SenseData> {
    let max_blocks = match range {
        RangeRule::None => return Ok(Extent::default()),
        RangeRule::Transfer => u64::from(unit.max_transfer_blocks()),
        RangeRule::Atomic => u64::from(unit.max_atomic_blocks()),
        RangeRule::WriteSame => unit.max_write_same_blocks().unwrap_or(u64::MAX),
        RangeRule::ToEnd => u64::MAX,
    };
    // Rows with a range have a group code with a known form; an unknown form names no blocks that exist.
    let block_cdb = BlockCdb::parse(cdb).ok_or(OUT_OF_RANGE)?;
    let capacity = unit.blocks();
    if block_cdb.end().is_none_or(|end| end > capacity) {
        return Err(OUT_OF_RANGE.with_field(block_cdb.lba_field));
    }
    let blocks = match (range, block_cdb.blocks) {
        (RangeRule::WriteSame, 0) if unit.max_write_same_blocks().is_some() => {
            return Err(SenseData::invalid_field(block_cdb.blocks_field));
        }
        (RangeRule::WriteSame | RangeRule::ToEnd, 0) => capacity - block_cdb.lba,
        (_, blocks) => u64::from(blocks),
    };
    if blocks > max_blocks {
        return Err(SenseData::invalid_field(block_cdb.blocks_field));
    }
    if range == RangeRule::Atomic {
        check_atomic_unit(&block_cdb, unit.atomic_unit_blocks())?;
    }
    // No overflow: both lie within the store, whose length in bytes is a u64.
    let block_size = u64::from(unit.block_size());
    Ok(Extent { offset: block_cdb.lba * block_size, len: blocks * block_size })
}

/// Checks that an atomic write begins and ends on a boundary of the medium's physical blocks (SBC-4 4.29).
fn check_atomic_unit(cdb: &BlockCdb, unit_blocks: u32) -> Result<(), SenseData> {
    if !cdb.lba.is_multiple_of(unit_blocks.into()) {
        return Err(SenseData::invalid_field(cdb.lba_field));
    }
    if !cdb.blocks.is_multiple_of(unit_blocks) {
        return Err(SenseData::invalid_field(cdb.blocks_field));
    }
    Ok(())
}
