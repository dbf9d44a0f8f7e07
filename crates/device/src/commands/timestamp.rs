//! REPORT TIMESTAMP and SET TIMESTAMP (SPC-5 6.38, 6.46).

use lunette_scsi::{AdditionalSense, SenseData};

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// Bytes of the parameter list of SET TIMESTAMP, and of the parameter data of REPORT TIMESTAMP.
const LIST_LEN: usize = 12;

/// Executes REPORT TIMESTAMP.
pub(crate) async fn report_timestamp(cx: Cx) -> Reply {
    let (timestamp, origin) = cx.unit()?.clock().timestamp();
    let mut data = [0; LIST_LEN];
    data[1] = (LIST_LEN - 2) as u8;
    data[2] = origin;
    data[4..10].copy_from_slice(&timestamp.to_be_bytes()[2..]);
    cx.reply(&data, cx.cdb.u32_at(6) as usize).await
}

/// Executes SET TIMESTAMP. An empty list changes nothing.
pub(crate) async fn set_timestamp(cx: Cx) -> Reply {
    let list_len = u64::from(cx.cdb.u32_at(6)).min(LIST_LEN as u64);
    if list_len == 0 {
        return Ok(None);
    }
    let list = cx.data_out(list_len, 1).await?.ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    let unit = cx.unit()?;
    // Six bytes after four reserved ones; `set` masks the two bytes in front of them.
    let bytes = list.get(2..10).and_then(|bytes| bytes.first_chunk()).ok_or(SenseData::PARAMETER_LIST_LENGTH_ERROR)?;
    unit.clock().set(u64::from_be_bytes(*bytes));
    unit.raise_for_others(cx.nexus.id, AdditionalSense::TIMESTAMP_CHANGED);
    Ok(None)
}
