//! MODE SENSE (SPC-5 6.13, 6.14). Nothing is changeable or saved yet.

use lunette_scsi::mode::{
    self, ALL_SUBPAGES, Control, ModeData, NO_ERROR_RECOVERY, NO_INFORMATIONAL_EXCEPTIONS, PageCode, PageControl,
};
use lunette_scsi::{AdditionalSense, FieldPointer, OpCode, SenseData, SenseFormat};

use crate::context::{Cx, Reply};
use crate::unit::LogicalUnit;

const DBD: u8 = 0x08;
const LLBAA: u8 = 0x10;
const PAGE_CODE: u8 = 0x3f;

/// What makes the parameters of a page.
type MakeParameters = fn(&LogicalUnit) -> Vec<u8>;

/// The mode pages, in the order of their codes. All of them are subpage zero.
const PAGES: [(PageCode, MakeParameters); 4] = [
    (PageCode::READ_WRITE_ERROR_RECOVERY, |_| NO_ERROR_RECOVERY.to_vec()),
    (PageCode::CACHING, |unit| mode::caching(unit.capabilities().volatile_cache).to_vec()),
    (PageCode::CONTROL, |unit| {
        let descriptor_sense = unit.sense_format() == SenseFormat::Descriptor;
        Control { descriptor_sense, write_protect: false }.emit().to_vec()
    }),
    (PageCode::INFORMATIONAL_EXCEPTIONS, |_| NO_INFORMATIONAL_EXCEPTIONS.to_vec()),
];

/// MODE SENSE(6) and (10).
pub(crate) async fn mode_sense(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let pages = pages(unit, cx.cdb.byte(2), cx.cdb.byte(3))?;
    let data = ModeData {
        write_protected: unit.read_only(),
        dpo_fua: true,
        descriptor: (!cx.cdb.bit(1, DBD)).then(|| (unit.blocks(), unit.block_size())),
        long_lba: cx.cdb.bit(1, LLBAA),
        pages: &pages,
    };
    if cx.cdb.opcode() == OpCode::MODE_SENSE_6 {
        cx.reply(&data.emit_6(), usize::from(cx.cdb.byte(4))).await
    } else {
        cx.reply(&data.emit_10(), usize::from(cx.cdb.u16_at(7))).await
    }
}

/// The pages that `control_and_code` (CDB byte 2) and `subpage` ask for.
fn pages(unit: &LogicalUnit, control_and_code: u8, subpage: u8) -> Result<Vec<u8>, SenseData> {
    let wanted = PageCode(control_and_code & PAGE_CODE);
    let control = PageControl::decode(control_and_code);
    if control == PageControl::Saved {
        let sense = SenseData::illegal_request(AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED);
        return Err(sense.with_field(FieldPointer::cdb(2).bit(7)));
    }
    if !matches!(subpage, 0 | ALL_SUBPAGES) {
        return Err(FieldPointer::cdb(3).into());
    }
    let mut pages = Vec::new();
    for (code, make) in PAGES.iter().filter(|(code, _)| wanted == PageCode::ALL || wanted == *code) {
        let mut parameters = make(unit);
        if control == PageControl::Changeable {
            parameters.fill(0);
        }
        pages.extend(mode::page(*code, &parameters));
    }
    if pages.is_empty() {
        return Err(FieldPointer::cdb(2).bit(5).into());
    }
    Ok(pages)
}
