//! START STOP UNIT (SBC-4 5.31) and PREVENT ALLOW MEDIUM REMOVAL (SPC-5 6.17).

use std::sync::atomic::Ordering;

use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::unit::LogicalUnit;
use crate::unit::medium::EjectError;

const LOEJ: u8 = 0x02;
const START: u8 = 0x01;
const NO_FLUSH: u8 = 0x04;
const POWER_CONDITION: u8 = 0xf0;

/// Executes START STOP UNIT. A store does not spin: starting does nothing, and stopping flushes, unless the initiator
/// sets `NO_FLUSH`. The unit stays ready, because other initiators use it too. With LOEJ a removable unit ejects or
/// loads its medium.
///
/// With a POWER CONDITION the other bits are ignored; the unit has only one condition, so nothing changes.
pub(crate) async fn start_stop_unit(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    if cx.cdb.bit(4, POWER_CONDITION) {
        return require_medium(unit);
    }
    let (start, eject) = (cx.cdb.bit(4, START), cx.cdb.bit(4, LOEJ));
    if eject && !unit.removable() {
        return Err(FieldPointer::cdb(4).bit(1).into());
    }
    if eject && start {
        // A medium whose removal is prevented cannot be loaded either.
        check_eject(unit.may_eject())?;
        unit.load_for(Some(cx.nexus.id));
        return Ok(None);
    }
    if start {
        return require_medium(unit);
    }
    if eject {
        check_eject(unit.may_eject())?;
    }
    if unit.medium_present() && !cx.cdb.bit(4, NO_FLUSH) {
        cx.flush().await?;
    }
    if eject {
        // Another initiator may have prevented the removal during the flush.
        check_eject(unit.eject())?;
    } else {
        unit.counters().stops.fetch_add(1, Ordering::Relaxed);
    }
    Ok(None)
}

fn require_medium(unit: &LogicalUnit) -> Reply {
    unit.not_ready().map_or(Ok(None), |why| Err(SenseData::not_ready(why)))
}

fn check_eject(result: Result<(), EjectError>) -> Result<(), SenseData> {
    result.map_err(|_| SenseData::illegal_request(AdditionalSense::MEDIUM_REMOVAL_PREVENTED))
}

/// Executes PREVENT ALLOW MEDIUM REMOVAL. Each nexus prevents the removal for itself, until it allows it, is lost, or
/// the unit is reset.
pub(crate) fn prevent_allow_medium_removal(cx: &Cx) -> Reply {
    cx.unit()?;
    if let Some(itl) = &cx.itl {
        itl.prevents_removal.store(cx.cdb.bit(4, 0x01), Ordering::Release);
    }
    Ok(None)
}
