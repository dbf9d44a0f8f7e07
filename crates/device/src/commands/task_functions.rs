//! REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-5 6.35).

use crate::context::{Cx, Reply};

const REPD: u8 = 0x80;

/// The functions that the layer above carries out, as byte and bit of the parameter data.
const SUPPORTED: [(usize, u8, &str); 4] = [
    (0, 0x80, "ABORT TASK"),
    (0, 0x40, "ABORT TASK SET"),
    (0, 0x10, "CLEAR TASK SET"),
    (0, 0x08, "LOGICAL UNIT RESET"),
];

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS. Timeouts, which REPD asks for, are not stated.
pub(crate) async fn report_supported_task_management_functions(cx: Cx) -> Reply {
    const BASIC_LEN: usize = 4;
    const EXTENDED_LEN: usize = 16;
    cx.unit()?;
    let mut data = [0; EXTENDED_LEN];
    for (byte, bit, _) in SUPPORTED {
        data[byte] |= bit;
    }
    let len = if cx.cdb.bit(2, REPD) { EXTENDED_LEN } else { BASIC_LEN };
    data[3] = (len - BASIC_LEN) as u8;
    cx.reply(&data[..len], cx.cdb.u32_at(6) as usize).await
}
