//! REPORT LUNS (SPC-5 6.32).

use lunette_scsi::{AdditionalSense, FieldPointer, Lun, report};

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// Executes REPORT LUNS, at any LUN. There are no well known, administrative or subsidiary logical units.
pub(crate) async fn report_luns(cx: Cx) -> Reply {
    let itl_nexuses = cx.nexus.itl_nexuses();
    let luns: Vec<Lun> = match cx.cdb.byte(2) {
        // All but well known units; all units; all but subsidiary units.
        0x00 | 0x02 | 0x11 => itl_nexuses.iter().map(|itl| itl.lun).collect(),
        // Only well known units; only administrative units; only subsidiary units.
        0x01 | 0x10 | 0x12 => Vec::new(),
        _ => return Err(FieldPointer::cdb(2).into()),
    };
    for itl in itl_nexuses {
        itl.unit_attentions.clear(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
    }
    cx.reply(&report::luns(&luns), cx.cdb.u32_at(6) as usize).await
}
