//! Requests to LUN 3, with sensible values in every field that a test does not care for.

use lunette_pdu::{
    Cid, DataOut, InitiatorTaskTag, LoginRequest, LunField, ScsiCommand, TaskManagementFunction, TaskManagementRequest,
};
pub(crate) use lunette_testkit::requests::{nop_out, snack, solicited, text as text_request};
use lunette_testkit::{keys, requests};

const LUN: LunField = LunField([0, 3, 0, 0, 0, 0, 0, 0]);

/// A key list as it stands on the wire.
pub(crate) fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    keys(pairs).into_bytes()
}

/// Straight from the operational stage to the full feature phase. CmdSN is the peer's to fill in.
pub(crate) fn login_request() -> LoginRequest {
    LoginRequest { itt: InitiatorTaskTag(0x77), cid: Cid(5), ..requests::login() }
}

/// A command without data.
pub(crate) fn command(itt: u32) -> ScsiCommand {
    ScsiCommand { lun: LUN, ..requests::command(itt) }
}

pub(crate) fn read(itt: u32, len: u32) -> ScsiCommand {
    ScsiCommand { lun: LUN, ..requests::read(itt, len) }
}

pub(crate) fn write(itt: u32, len: u32) -> ScsiCommand {
    ScsiCommand { lun: LUN, ..requests::write(itt, len) }
}

/// An unsolicited Data-Out that ends its sequence.
pub(crate) fn data_out(itt: u32, offset: u32) -> DataOut {
    DataOut { lun: LUN, ..requests::data_out(itt, offset) }
}

pub(crate) fn task_management(itt: u32, function: TaskManagementFunction) -> TaskManagementRequest {
    TaskManagementRequest { lun: LUN, ..requests::task_management(itt, function) }
}
