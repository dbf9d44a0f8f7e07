//! REQUEST SENSE (SPC-5 6.39).

use lunette_scsi::{AdditionalSense, SenseData, SenseFormat, SenseKey};

use crate::context::{Cx, Reply};

const DESC: u8 = 0x01;

/// The pending unit attention, which is thereby reported, as data with status GOOD; else why the unit is not ready, if it
/// is not.
pub(crate) async fn request_sense(cx: Cx) -> Reply {
    let sense = match &cx.link {
        None => SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED),
        Some(link) => match link.attentions.take() {
            Some(code) => SenseData::unit_attention(code),
            None => link.access.not_ready().unwrap_or_else(|| {
                if link.unit.medium_present() {
                    SenseData::new(SenseKey::NO_SENSE, AdditionalSense::NONE)
                } else {
                    SenseData::new(SenseKey::NOT_READY, AdditionalSense::MEDIUM_NOT_PRESENT)
                }
            }),
        },
    };
    let format = if cx.cdb.bit(1, DESC) { SenseFormat::Descriptor } else { SenseFormat::Fixed };
    cx.reply(&sense.encode(format), usize::from(cx.cdb.byte(4))).await
}
