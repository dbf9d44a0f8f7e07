//! SANITIZE (SBC-4 5.30).

pub(crate) mod work;

use std::sync::Arc;

use lunette_scsi::sanitize::OverwriteList;
use lunette_scsi::{FieldPointer, SenseData, ServiceAction};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::sanitize::{Milestone, SanitizeJob, SanitizeMethod};

const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;
const LIST_LENGTH_FIELD: FieldPointer = FieldPointer::cdb(7);

/// Executes SANITIZE with OVERWRITE, BLOCK ERASE and CRYPTOGRAPHIC ERASE.
///
/// No store encrypts, so there is no key to erase. A store in memory discards the data itself as quickly, which fulfils
/// CRYPTOGRAPHIC ERASE; other units do not support it.
pub(crate) async fn sanitize(cx: Cx) -> Reply {
    let unit = Arc::clone(cx.unit()?);
    let method =
        if cx.cdb.service_action() == ServiceAction::OVERWRITE { overwrite(&cx).await? } else { SanitizeMethod::Erase };
    let (operation, background) = work::begin(&unit, SanitizeJob::new(method, cx.cdb.bit(1, AUSE)))?;
    cx.start_background(background).await?;
    // Even with IMMED, the response comes when a restart would resume the operation.
    let milestone = if cx.cdb.bit(1, IMMED) { Milestone::Begun } else { Milestone::Ended };
    cx.wait(operation.reached(milestone)).await?;
    operation.result().map(|()| None)
}

/// Executes SANITIZE with EXIT FAILURE MODE. Without a failure it does nothing.
pub(crate) async fn exit_failure_mode(cx: Cx) -> Reply {
    let unit = Arc::clone(cx.unit()?);
    cx.persist(move || unit.sanitize().exit_failure()).await??;
    Ok(None)
}

async fn overwrite(cx: &Cx) -> Result<SanitizeMethod, SenseData> {
    let block_len = cx.unit()?.block_size();
    let list_len = cx.cdb.u16_at(7);
    if !OverwriteList::has_room(usize::from(list_len), block_len) {
        return Err(LIST_LENGTH_FIELD.into());
    }
    let list = cx.data_out(u64::from(list_len), 1).await?.ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let OverwriteList { invert, passes, pattern } = OverwriteList::parse(&list, block_len)?;
    Ok(SanitizeMethod::Overwrite { passes, invert, pattern: pattern.to_vec() })
}
