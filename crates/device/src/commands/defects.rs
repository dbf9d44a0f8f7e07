//! READ DEFECT DATA (SBC-4 5.18, 5.19).

use lunette_scsi::{OpCode, defects};

use crate::commands::context::Cx;
use crate::coroutine::Reply;

/// Executes READ DEFECT DATA(10) and (12). The layers below a store hide defects, so both lists are empty, in every
/// format.
pub(crate) async fn read_defect_data(cx: Cx) -> Reply {
    if cx.cdb.opcode() == OpCode::READ_DEFECT_DATA_10 {
        cx.reply(&defects::none_10(cx.cdb.byte(2)), usize::from(cx.cdb.u16_at(7))).await
    } else {
        cx.reply(&defects::none_12(cx.cdb.byte(1)), cx.cdb.u32_at(6) as usize).await
    }
}
