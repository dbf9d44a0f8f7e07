//! MODE SENSE and MODE SELECT (SPC-5 6.11 to 6.14).

use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_gateway::{Answer, Request};
use lunette_scsi::mode::select::{self, SelectListForm, SelectedPage};
use lunette_scsi::mode::{ALL_SUBPAGES, BlockDescriptor, ModeData, PageCode, PageControl};
use lunette_scsi::{AdditionalSense, FieldPointer, OpCode, SenseData};
use lunette_state::StateError;
use lunette_store::{Op, OpKind};

use crate::commands::context::common::UNKNOWN_OUTCOME;
use crate::commands::context::{Cx, count_request, not_saved, store_error};
use crate::coroutine::Reply;
use crate::coroutine::background::BackgroundCx;
use crate::nexus::NexusId;
use crate::unit::LogicalUnit;
use crate::unit::mode_pages::{PAGES, common};

const DBD: u8 = 0x08;
const LLBAA: u8 = 0x10;
const PAGE_CODE: u8 = 0x3f;
const PF: u8 = 0x10;
const SP: u8 = 0x01;

/// Executes MODE SENSE(6) and (10).
pub(crate) async fn mode_sense(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let pages = pages(unit, cx.cdb.byte(2), cx.cdb.byte(3))?;
    let blocks = if unit.medium_present() { unit.blocks() } else { 0 };
    let descriptor = BlockDescriptor { blocks, block_len: unit.block_size() };
    let data = ModeData {
        write_protected: cx.itl()?.write_protection().is_some(),
        dpo_fua: true,
        descriptor: (!cx.cdb.bit(1, DBD)).then_some(descriptor),
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
    if control == PageControl::Saved && !unit.mode().can_save() {
        return Err(SenseData::illegal_request(AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED));
    }
    let all = wanted == PageCode::ALL;
    if !all && PAGES.iter().all(|page| page.code != wanted) {
        return Err(FieldPointer::cdb(2).bit(5).into());
    }
    // With all pages, a request covers either all subpages or subpage zero (SPC-5 table 183).
    if all && !matches!(subpage, 0 | ALL_SUBPAGES) {
        return Err(FieldPointer::cdb(3).into());
    }
    let pages = unit
        .mode()
        .pages(control, |page| (all || page.code == wanted) && (subpage == ALL_SUBPAGES || page.subpage == subpage));
    if pages.is_empty() { Err(FieldPointer::cdb(3).into()) } else { Ok(pages) }
}

/// Executes MODE SELECT(6) and (10): all pages of the list, or none.
///
/// Writes that were acknowledged from the cache must be on stable storage before the cache counts as disabled, and
/// before write protection takes effect, so every change ends with a flush. Saved pages are on stable storage before
/// they take effect.
pub(crate) async fn mode_select(cx: Cx) -> Reply {
    if !cx.cdb.bit(1, PF) {
        // A list without PF holds vendor specific pages, and none are supported.
        return Err(FieldPointer::cdb(1).bit(4).into());
    }
    let (form, list_len) = match cx.cdb.opcode() {
        OpCode::MODE_SELECT_6 => (SelectListForm::Six, u64::from(cx.cdb.byte(4))),
        _ => (SelectListForm::Ten, u64::from(cx.cdb.u16_at(7))),
    };
    let save = cx.cdb.bit(1, SP);
    if save && !cx.unit()?.mode().can_save() {
        return Err(FieldPointer::cdb(1).bit(0).into());
    }
    if list_len == 0 {
        return Ok(None);
    }
    let bytes = cx.data_out(list_len, 1).await?.ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let unit = cx.unit()?;
    let list = select::parse(&bytes, form)?;
    if let Some((descriptor, at)) = list.descriptor {
        check_descriptor(descriptor, at, unit)?;
    }
    if unit.config().shared {
        return select_in_common(&cx, &list.pages).await;
    }
    if save {
        return select_and_save(&cx, form, bytes).await;
    }
    if unit.mode().select(&list.pages)? {
        unit.raise_for_others(cx.nexus.id, AdditionalSense::MODE_PARAMETERS_CHANGED);
        cx.flush().await?;
    }
    Ok(None)
}

/// Saves the pages of a list, and then applies them.
///
/// A flush comes first: when it fails, nothing changes. The flush after the change covers the writes in between, and
/// comes even when the command is aborted.
async fn select_and_save(cx: &Cx, form: SelectListForm, bytes: Buffer) -> Reply {
    cx.flush().await?;
    let (row, by, itl) = (cx.row, cx.nexus.id, Arc::clone(cx.itl()?));
    let select = async move |cx: BackgroundCx| {
        let unit = Arc::clone(&itl.unit);
        let change = move || save_and_apply(&unit, by, form, &bytes);
        if cx.persist(change).await.map_err(|error| not_saved(row, &error))?? {
            let flushed = cx.store(&itl.unit, Op::Flush).await;
            count_request(&itl.counters, row, OpKind::Flush, 0, flushed.is_ok());
            flushed.map_err(|error| store_error::to_sense(&error, OpKind::Flush, 0, &itl.unit))?;
        }
        Ok(None)
    };
    cx.run_to_end(select).await?
}

/// Saves the pages of a list, applies them, and raises the unit attention. Returns whether a current value changed.
fn save_and_apply(
    unit: &LogicalUnit,
    by: NexusId,
    form: SelectListForm,
    bytes: &[u8],
) -> Result<Result<bool, SenseData>, StateError> {
    let done = match select::parse(bytes, form) {
        Ok(list) => unit.mode().select_and_save(&list.pages)?,
        Err(sense) => Err(sense),
    };
    if done == Ok(true) {
        unit.raise_for_others(by, AdditionalSense::MODE_PARAMETERS_CHANGED);
    }
    Ok(done)
}

/// Applies the pages to a unit that several servers offer. All of them know the change when it ends; its unit attention
/// comes with what their gateways publish.
async fn select_in_common(cx: &Cx, pages: &[SelectedPage<'_>]) -> Reply {
    loop {
        cx.confirm().await?;
        let (base, entry) = cx.unit()?.mode().decide(&cx.nexus.it_nexus, pages)?;
        if entry.is_none() {
            return Ok(None);
        }
        match cx.ask_gateway(Request::Update { base, name: common::NAME.into(), entry }).await? {
            Answer::Done => break,
            // Another server was first.
            Answer::Changed => {}
            Answer::TooLong | Answer::Refused => return Err(UNKNOWN_OUTCOME),
        }
    }
    cx.flush().await?;
    Ok(None)
}

/// Checks the block descriptor. The medium cannot be formatted, so the descriptor must describe it as it is; a number
/// of blocks of zero or all ones means no change (SBC-4 6.5.2).
fn check_descriptor(descriptor: BlockDescriptor, at: u16, unit: &LogicalUnit) -> Result<(), SenseData> {
    let BlockDescriptor { blocks, block_len } = descriptor;
    if !matches!(blocks, 0 | 0xffff_ffff | u64::MAX) && blocks != unit.blocks() {
        return Err(FieldPointer::data(at).into());
    }
    if block_len != unit.block_size() {
        return Err(FieldPointer::data(at + 4).into());
    }
    Ok(())
}
