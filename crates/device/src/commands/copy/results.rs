//! The commands that report on copies: RECEIVE COPY STATUS and related ones (SPC-5 6.22 and following).

use lunette_scsi::FieldPointer;
use lunette_scsi::copy::results::{self, CopyReport};

use crate::commands::context::{Cx, INTERNAL_FAILURE};
use crate::coroutine::Reply;
use crate::limits::copy_limits;

const LIST_ID_FIELD: FieldPointer = FieldPointer::cdb(2);

/// Executes RECEIVE COPY STATUS(LID1).
pub(crate) async fn status_lid1(cx: Cx) -> Reply {
    let data = results::status_lid1(&report(&cx, cx.cdb.byte(2).into())?);
    reply(&cx, &data).await
}

/// Executes RECEIVE COPY STATUS(LID4).
pub(crate) async fn status_lid4(cx: Cx) -> Reply {
    let data = results::status_lid4(&report(&cx, cx.cdb.u32_at(2))?);
    reply(&cx, &data).await
}

/// Executes RECEIVE ROD TOKEN INFORMATION.
pub(crate) async fn rod_token_information(cx: Cx) -> Reply {
    let data = results::rod_token_information(&report(&cx, cx.cdb.u32_at(2))?);
    reply(&cx, &data).await
}

/// Executes RECEIVE COPY FAILURE DETAILS(LID1). The record of the copy is deleted, because the details are read once.
pub(crate) async fn failure_details(cx: Cx) -> Reply {
    let list_id = cx.cdb.byte(2).into();
    let report = report(&cx, list_id)?;
    let data = results::failure_details(Some(&report));
    let reply = reply(&cx, &data).await?;
    cx.itl.as_ref().ok_or(INTERNAL_FAILURE)?.copy_records.forget(list_id);
    Ok(reply)
}

/// Executes RECEIVE COPY OPERATING PARAMETERS.
pub(crate) async fn operating_parameters(cx: Cx) -> Reply {
    let data = results::operating_parameters(&copy_limits(cx.unit()?.block_size()));
    reply(&cx, &data).await
}

/// Executes REPORT ALL ROD TOKENS, for the tokens that were created from this logical unit.
pub(crate) async fn all_rod_tokens(cx: Cx) -> Reply {
    let tokens = cx.device.tokens().of(cx.unit()?);
    let data = results::all_rod_tokens(&tokens);
    reply(&cx, &data).await
}

fn report(cx: &Cx, list_id: u32) -> Result<CopyReport, lunette_scsi::SenseData> {
    cx.itl.as_ref().and_then(|itl| itl.copy_records.report(list_id)).ok_or(LIST_ID_FIELD.into())
}

async fn reply(cx: &Cx, data: &[u8]) -> Reply {
    cx.reply(data, cx.cdb.u32_at(10) as usize).await
}
