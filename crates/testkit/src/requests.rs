//! The PDUs of an initiator, with a sensible value in every field.
//!
//! CmdSN, ExpStatSN and the length of the data segment are zero: the peer that sends the PDU fills them in. Requests
//! name LUN 0.

use lunette_pdu::{
    Cid, DataOut, InitiatorTaskTag, Isid, LoginRequest, LogoutReason, LogoutRequest, LunField, NopOut, R2t,
    ScsiCommand, SerialNumber, SnackRequest, SnackType, Stage, TargetTransferTag, TaskAttribute,
    TaskManagementFunction, TaskManagementRequest, TextRequest, Tsih,
};
use lunette_scsi::Lun;

/// The LUN field of a logical unit's number.
pub fn lun(number: u16) -> LunField {
    LunField(Lun::new(number).expect("a number that can be addressed").encode())
}

/// A CDB in the 16 bytes that the header has for it.
pub fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// The only request of a login, from the operational stage to the full feature phase, of a new session.
pub fn login() -> LoginRequest {
    LoginRequest {
        transit: true,
        continue_: false,
        csg: Stage::LoginOperationalNegotiation,
        nsg: Stage::FullFeaturePhase,
        version_max: 0,
        version_min: 0,
        isid: Isid::random(0x0012_3456, 1),
        tsih: Tsih::NEW,
        itt: InitiatorTaskTag(0),
        cid: Cid(0),
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: 0,
    }
}

/// A command without data: TEST UNIT READY.
pub fn command(itt: u32) -> ScsiCommand {
    ScsiCommand {
        immediate: false,
        final_: true,
        read: false,
        write: false,
        attr: TaskAttribute::SIMPLE,
        priority: 0,
        lun: LunField::default(),
        itt: InitiatorTaskTag(itt),
        expected_data_transfer_length: 0,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        cdb: [0; 16],
        ahs_len: 0,
        data_segment_len: 0,
    }
}

/// A command that reads `len` bytes.
pub fn read(itt: u32, len: u32) -> ScsiCommand {
    ScsiCommand { read: true, expected_data_transfer_length: len, ..command(itt) }
}

/// A command that writes `len` bytes.
pub fn write(itt: u32, len: u32) -> ScsiCommand {
    ScsiCommand { write: true, expected_data_transfer_length: len, ..command(itt) }
}

/// An unsolicited Data-Out that ends its sequence.
pub fn data_out(itt: u32, offset: u32) -> DataOut {
    DataOut {
        final_: true,
        lun: LunField::default(),
        itt: InitiatorTaskTag(itt),
        ttt: TargetTransferTag::RESERVED,
        exp_stat_sn: SerialNumber(0),
        data_sn: 0,
        buffer_offset: offset,
        data_segment_len: 0,
    }
}

/// The Data-Out PDUs that answer an R2T, of up to `pdu_len` bytes each.
pub fn solicited(r2t: &R2t, pdu_len: usize) -> Vec<DataOut> {
    let total = r2t.desired_data_transfer_length as usize;
    let pdu = |(data_sn, start): (usize, usize)| {
        let len = pdu_len.min(total - start);
        DataOut {
            final_: start + len == total,
            lun: r2t.lun,
            ttt: r2t.ttt,
            data_sn: data_sn as u32,
            data_segment_len: len,
            ..data_out(r2t.itt.0, r2t.buffer_offset + start as u32)
        }
    };
    (0..total).step_by(pdu_len).enumerate().map(pdu).collect()
}

/// An immediate ping that wants an answer.
pub fn nop_out(itt: u32) -> NopOut {
    NopOut {
        immediate: true,
        lun: LunField::default(),
        itt: InitiatorTaskTag(itt),
        ttt: TargetTransferTag::RESERVED,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: 0,
    }
}

/// The answer to a target's ping.
pub fn pong(ttt: TargetTransferTag) -> NopOut {
    NopOut { itt: InitiatorTaskTag::RESERVED, ttt, ..nop_out(0) }
}

/// The only PDU of its text exchange, which is not immediate.
pub fn text(itt: u32) -> TextRequest {
    TextRequest {
        immediate: false,
        final_: true,
        continue_: false,
        lun: LunField::default(),
        itt: InitiatorTaskTag(itt),
        ttt: TargetTransferTag::RESERVED,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        data_segment_len: 0,
    }
}

/// An immediate task management request that names no task.
pub fn task_management(itt: u32, function: TaskManagementFunction) -> TaskManagementRequest {
    TaskManagementRequest {
        immediate: true,
        function,
        lun: LunField::default(),
        itt: InitiatorTaskTag(itt),
        referenced_task_tag: InitiatorTaskTag::RESERVED,
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
        ref_cmd_sn: SerialNumber(0),
        exp_data_sn: 0,
    }
}

/// An immediate logout of connection 0, or of what `reason` says.
pub fn logout(itt: u32, reason: LogoutReason) -> LogoutRequest {
    LogoutRequest {
        immediate: true,
        reason,
        itt: InitiatorTaskTag(itt),
        cid: Cid(0),
        cmd_sn: SerialNumber(0),
        exp_stat_sn: SerialNumber(0),
    }
}

/// A SNACK for everything that its kind can ask for.
pub fn snack(itt: InitiatorTaskTag, snack_type: SnackType) -> SnackRequest {
    SnackRequest {
        snack_type,
        lun: LunField::default(),
        itt,
        ttt: TargetTransferTag::RESERVED,
        exp_stat_sn: SerialNumber(0),
        beg_run: 0,
        run_length: 0,
    }
}
