//! Requests with sensible values in every field that a test does not care for.

use lunette_pdu::{
    Cid, DataOut, InitiatorTaskTag, Isid, LoginRequest, LunField, NopOut, ScsiCommand, SerialNumber, Stage,
    TargetTransferTag, TaskAttribute, TaskManagementFunction, TaskManagementRequest, TextRequest, Tsih,
};

const LUN: LunField = LunField([0, 3, 0, 0, 0, 0, 0, 0]);

/// A key list as it stands on the wire.
pub(crate) fn text(keys: &[(&str, &str)]) -> Vec<u8> {
    keys.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

/// Straight from the operational stage to the full feature phase. CmdSN is the peer's to fill in.
pub(crate) fn login_request() -> LoginRequest {
    LoginRequest {
        transit: true,
        continue_: false,
        csg: Stage::LoginOperationalNegotiation,
        nsg: Stage::FullFeaturePhase,
        version_max: 0,
        version_min: 0,
        isid: Isid::random(0x0012_3456, 1),
        tsih: Tsih::NEW,
        itt: InitiatorTaskTag(0x77),
        cid: Cid(5),
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: 0,
    }
}

/// A command without data.
pub(crate) fn command(itt: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        final_: true,
        read: false,
        write: false,
        attr: TaskAttribute::SIMPLE,
        priority: 0,
        lun: LUN,
        itt: InitiatorTaskTag(itt),
        expected_data_transfer_length: 0,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        cdb: [0; 16],
        ahs_len: 0,
        data_segment_len: 0,
    }
}

pub(crate) fn read(itt: u32, len: u32) -> ScsiCommand {
    ScsiCommand { read: true, expected_data_transfer_length: len, ..command(itt) }
}

pub(crate) fn write(itt: u32, len: u32) -> ScsiCommand {
    ScsiCommand { write: true, expected_data_transfer_length: len, ..command(itt) }
}

/// An unsolicited Data-Out that ends its sequence.
pub(crate) fn data_out(itt: u32, offset: u32) -> DataOut {
    DataOut {
        final_: true,
        lun: LUN,
        itt: InitiatorTaskTag(itt),
        ttt: TargetTransferTag::RESERVED,
        exp_stat_sn: SerialNumber(0),
        data_sn: 0,
        buffer_offset: offset,
        data_segment_len: 0,
    }
}

/// An immediate ping that wants an answer.
pub(crate) fn nop_out(itt: u32) -> NopOut {
    NopOut {
        immediate: true,
        lun: LunField([0; 8]),
        itt: InitiatorTaskTag(itt),
        ttt: TargetTransferTag::RESERVED,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: 0,
    }
}

/// The only PDU of its exchange.
pub(crate) fn text_request(itt: u32) -> TextRequest {
    TextRequest {
        immediate: false,
        final_: true,
        continue_: false,
        lun: LunField([0; 8]),
        itt: InitiatorTaskTag(itt),
        ttt: TargetTransferTag::RESERVED,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: 0,
    }
}

pub(crate) fn task_management(itt: u32, function: TaskManagementFunction) -> TaskManagementRequest {
    TaskManagementRequest {
        immediate: true,
        function,
        lun: LUN,
        itt: InitiatorTaskTag(itt),
        referenced_task_tag: InitiatorTaskTag::RESERVED,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        ref_cmd_sn: SerialNumber(0),
        exp_data_sn: 0,
    }
}
