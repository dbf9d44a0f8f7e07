//! LOG SENSE and LOG SELECT (SPC-5 6.6, 6.7).

mod pages;

use std::sync::Arc;

use lunette_scsi::log::{self, ALL_SUBPAGES, PageCode, PageControl};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};

use crate::commands::context::{Cx, INTERNAL_FAILURE};
use crate::coroutine::Reply;
use crate::unit::LogicalUnit;
use pages::{LogPage, PAGES};

const PAGE_CODE: u8 = 0x3f;
const PCR: u8 = 0x02;

/// Executes LOG SENSE. Parameters with codes below PARAMETER POINTER are left out.
pub(crate) async fn log_sense(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let code = PageCode(cx.cdb.byte(2) & PAGE_CODE);
    if code == PageCode::LOGICAL_BLOCK_PROVISIONING {
        let unit = Arc::clone(unit);
        let look = move || {
            unit.refresh_space();
            Ok(())
        };
        cx.work(Box::new(look)).await.map_err(|_| INTERNAL_FAILURE)?;
    }
    let (subpage, pointer) = (cx.cdb.byte(3), cx.cdb.u16_at(5));
    let data = match (code, subpage) {
        (PageCode::SUPPORTED_PAGES, 0) => list(pointer, &log::supported_pages(&supported()))?,
        (PageCode::SUPPORTED_PAGES, ALL_SUBPAGES) => {
            let lists = [0, ALL_SUBPAGES].map(|subpage| (PageCode::SUPPORTED_PAGES, subpage));
            let pages = supported().into_iter().skip(1).map(|page| (page, 0));
            list(pointer, &log::supported_subpages(code, &lists.into_iter().chain(pages).collect::<Vec<_>>()))?
        }
        (code, 0) => parameters(find(code)?, unit, &cx)?,
        (code, ALL_SUBPAGES) => {
            find(code)?;
            list(pointer, &log::supported_subpages(code, &[(code, 0), (code, ALL_SUBPAGES)]))?
        }
        (code, _) => {
            if code != PageCode::SUPPORTED_PAGES {
                find(code)?;
            }
            return Err(FieldPointer::cdb(3).into());
        }
    };
    cx.reply(&data, usize::from(cx.cdb.u16_at(7))).await
}

/// The codes of all pages; the list of pages comes first.
fn supported() -> Vec<PageCode> {
    [PageCode::SUPPORTED_PAGES].into_iter().chain(PAGES.iter().map(|page| page.code)).collect()
}

fn find(code: PageCode) -> Result<&'static LogPage, SenseData> {
    let page = PAGES.iter().find(|page| page.code == code);
    page.ok_or(FieldPointer::cdb(2).bit(5).into())
}

/// Checks that PARAMETER POINTER is zero, because a list of pages has no parameters.
fn list(pointer: u16, data: &[u8]) -> Result<Vec<u8>, SenseData> {
    if pointer == 0 { Ok(data.to_vec()) } else { Err(FieldPointer::cdb(5).into()) }
}

fn parameters(page: &LogPage, unit: &LogicalUnit, cx: &Cx) -> Result<Vec<u8>, SenseData> {
    let pointer = cx.cdb.u16_at(5);
    let mut parameters = (page.parameters)(unit, PageControl::decode(cx.cdb.byte(2)));
    parameters.retain(|parameter| parameter.code >= pointer);
    if parameters.is_empty() && pointer > 0 {
        return Err(FieldPointer::cdb(5).into());
    }
    Ok(log::page(page.code, &parameters))
}

/// Executes LOG SELECT, which resets the data counters by PCR, or by asking for default cumulative values without a
/// list. Initiators cannot set parameters, so a list is refused at its first page.
pub(crate) async fn log_select(cx: Cx) -> Reply {
    let unit = cx.unit()?;
    let list_len = u64::from(cx.cdb.u16_at(7));
    let reset = cx.cdb.bit(1, PCR);
    if list_len > 0 {
        if reset {
            return Err(FieldPointer::cdb(7).into());
        }
        cx.data_out(list_len, 1).await?.ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
        return Err(FieldPointer::data(0).bit(5).into());
    }
    if cx.cdb.byte(2) & PAGE_CODE != 0 || cx.cdb.byte(3) != 0 {
        // Single pages cannot be reset.
        let field = if cx.cdb.byte(2) & PAGE_CODE != 0 { FieldPointer::cdb(2).bit(5) } else { FieldPointer::cdb(3) };
        return Err(field.into());
    }
    if reset || PageControl::decode(cx.cdb.byte(2)) == PageControl::DefaultCumulative {
        unit.counters().reset();
        unit.raise_for_others(cx.nexus.id, AdditionalSense::LOG_PARAMETERS_CHANGED);
    }
    Ok(None)
}
