//! REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-5 6.35).

use std::sync::atomic::Ordering;

use crate::commands::context::Cx;
use crate::coroutine::Reply;

const REPD: u8 = 0x80;

/// The functions that every transport carries out, as byte and bit of the parameter data.
const SUPPORTED: [(usize, u8, &str); 4] = [
    (0, 0x80, "ABORT TASK"),
    (0, 0x40, "ABORT TASK SET"),
    (0, 0x10, "CLEAR TASK SET"),
    (0, 0x08, "LOGICAL UNIT RESET"),
];

/// The functions that need a transport with the additions of SAM-5.
const SUPPORTED_WITH_SAM5: [(usize, u8, &str); 4] = [
    (0, 0x04, "QUERY TASK"),
    (1, 0x04, "QUERY ASYNCHRONOUS EVENT"),
    (1, 0x02, "QUERY TASK SET"),
    (1, 0x01, "I_T NEXUS RESET"),
];

/// Executes REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS. The timeouts that REPD asks for are unspecified.
pub(crate) async fn report_supported_task_management_functions(cx: Cx) -> Reply {
    const BASIC_LEN: usize = 4;
    const EXTENDED_LEN: usize = 16;
    cx.unit()?;
    let mut data = [0; EXTENDED_LEN];
    let sam5 = cx.nexus.sam5_functions.load(Ordering::Acquire);
    let more = SUPPORTED_WITH_SAM5.into_iter().filter(|_| sam5);
    for (byte, bit, _) in SUPPORTED.into_iter().chain(more) {
        data[byte] |= bit;
    }
    let len = if cx.cdb.bit(2, REPD) { EXTENDED_LEN } else { BASIC_LEN };
    data[3] = (len - BASIC_LEN) as u8;
    cx.reply(&data[..len], cx.cdb.u32_at(6) as usize).await
}
