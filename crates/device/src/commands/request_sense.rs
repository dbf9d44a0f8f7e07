//! REQUEST SENSE (SPC-5 6.39).

use lunette_scsi::{AdditionalSense, SenseData, SenseFormat, SenseKey};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::unit::itl_nexus::ItlNexus;

const DESC: u8 = 0x01;

/// Executes REQUEST SENSE: returns the pending unit attention, which thereby counts as reported, or else the reason why
/// the unit is not ready, as data with status GOOD.
pub(crate) async fn request_sense(cx: Cx) -> Reply {
    let sense = match &cx.itl {
        None => SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED),
        Some(itl) => match itl.unit_attentions.take() {
            Some(code) => SenseData::unit_attention(code),
            None => why_not_ready(itl).unwrap_or(SenseData::new(SenseKey::NO_SENSE, AdditionalSense::NONE)),
        },
    };
    let format = if cx.cdb.bit(1, DESC) { SenseFormat::Descriptor } else { SenseFormat::Fixed };
    cx.reply(&sense.encode(format), usize::from(cx.cdb.byte(4))).await
}

/// The reason why commands on the medium are refused, checked in the order of admission; with the progress of a
/// sanitize operation.
fn why_not_ready(itl: &ItlNexus) -> Option<SenseData> {
    let unit = &itl.unit;
    let no_medium = || unit.not_ready().map(SenseData::not_ready);
    itl.access.not_ready().or_else(|| unit.sanitize().check().err()).or_else(no_medium)
}
