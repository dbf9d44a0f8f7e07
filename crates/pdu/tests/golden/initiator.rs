//! PDUs that the initiator sends.

use lunette_pdu::*;

use crate::*;

/// Asserts that `bytes` parse as `pdu`, whatever is in the `reserved` bytes, and that `pdu` emits them.
#[track_caller]
fn check(pdu: InitiatorPdu, emitted: [u8; BHS_LEN], bytes: [u8; BHS_LEN], reserved: &[(usize, usize)]) {
    assert_eq!(InitiatorPdu::parse(&Bhs::from(bytes)), Ok(pdu));
    assert_eq!(InitiatorPdu::parse(&scribble(bytes, reserved)), Ok(pdu), "reserved bytes matter");
    assert_eq!(emitted, bytes);
}

#[test]
fn nop_out() {
    let pdu = NopOut {
        immediate: true,
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        cmd_sn: SN_C,
        exp_stat_sn: SN_D,
        data_segment_len: DATA_LEN,
    };
    let bytes =
        header(&[(0, &[0x40, 0x80]), (5, &LENGTH), (8, &LUN), (16, &ITT), (20, &TTT), (24, &SN[0]), (28, &SN[1])]);
    check(InitiatorPdu::NopOut(pdu), pdu.emit(), bytes, &[(1, 4), (32, 48)]);
}

#[test]
fn scsi_command() {
    let cdb = [0x2a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let pdu = ScsiCommand {
        immediate: true,
        final_: true,
        read: false,
        write: true,
        attr: TaskAttribute::ORDERED,
        priority: 0x9,
        lun: LUN_FIELD,
        itt: ITT_TAG,
        expected_data_transfer_length: 0x1234_5678,
        cmd_sn: SN_C,
        exp_stat_sn: SN_D,
        cdb,
        ahs_len: 0x3c,
        data_segment_len: DATA_LEN,
    };
    // F and W set; ATTR 2; the priority is the upper half of byte 2; 15 words of AHS.
    let bytes = header(&[
        (0, &[0x41, 0b1010_0010, 0x90, 0, 15]),
        (5, &LENGTH),
        (8, &LUN),
        (16, &ITT),
        (20, &OFFSET),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &cdb),
    ]);
    check(InitiatorPdu::ScsiCommand(pdu), pdu.emit(), bytes, &[(3, 4)]);

    let read = ScsiCommand { immediate: false, read: true, write: false, attr: TaskAttribute::UNTAGGED, ..pdu };
    assert_eq!(read.emit()[..2], [0x01, 0b1100_0000]);
}

#[test]
fn task_management_request() {
    let pdu = TaskManagementRequest {
        immediate: true,
        function: TaskManagementFunction::QUERY_TASK,
        lun: LUN_FIELD,
        itt: ITT_TAG,
        referenced_task_tag: InitiatorTaskTag(0xb0b1_b2b3),
        cmd_sn: SN_C,
        exp_stat_sn: SN_D,
        ref_cmd_sn: SN_E,
        exp_data_sn: 0x1234_5678,
    };
    let bytes = header(&[
        (0, &[0x42, 0x89]),
        (8, &LUN),
        (16, &ITT),
        (20, &TTT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (36, &OFFSET),
    ]);
    check(InitiatorPdu::TaskManagementRequest(pdu), pdu.emit(), bytes, &[(2, 4), (40, 48)]);
}

#[test]
fn login_request() {
    let pdu = LoginRequest {
        transit: true,
        continue_: false,
        csg: Stage::LoginOperationalNegotiation,
        nsg: Stage::FullFeaturePhase,
        version_max: 0x02,
        version_min: 0x01,
        isid: Isid([0x80, 0x12, 0x34, 0x56, 0x00, 0x07]),
        tsih: Tsih(0x1122),
        itt: ITT_TAG,
        cid: Cid(0x3344),
        cmd_sn: SN_C,
        exp_stat_sn: SN_D,
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x43, 0b1000_0111, 0x02, 0x01]),
        (5, &LENGTH),
        (8, &[0x80, 0x12, 0x34, 0x56, 0x00, 0x07]),
        (14, &[0x11, 0x22]),
        (16, &ITT),
        (20, &[0x33, 0x44]),
        (24, &SN[0]),
        (28, &SN[1]),
    ]);
    check(InitiatorPdu::LoginRequest(pdu), pdu.emit(), bytes, &[(22, 24), (32, 48)]);

    let partial = LoginRequest { transit: false, continue_: true, ..pdu };
    assert_eq!(partial.emit()[1], 0b0100_0100);
}

#[test]
fn text_request() {
    let pdu = TextRequest {
        immediate: true,
        final_: true,
        continue_: false,
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        cmd_sn: SN_C,
        exp_stat_sn: SN_D,
        data_segment_len: DATA_LEN,
    };
    let bytes =
        header(&[(0, &[0x44, 0x80]), (5, &LENGTH), (8, &LUN), (16, &ITT), (20, &TTT), (24, &SN[0]), (28, &SN[1])]);
    check(InitiatorPdu::TextRequest(pdu), pdu.emit(), bytes, &[(2, 4), (32, 48)]);

    let partial = TextRequest { final_: false, continue_: true, ..pdu };
    assert_eq!(partial.emit()[1], 0x40);
}

#[test]
fn data_out() {
    let pdu = DataOut {
        final_: true,
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        exp_stat_sn: SN_C,
        data_sn: 0xd004_0506,
        buffer_offset: 0x1234_5678,
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x05, 0x80]),
        (5, &LENGTH),
        (8, &LUN),
        (16, &ITT),
        (20, &TTT),
        (28, &SN[0]),
        (36, &SN[1]),
        (40, &OFFSET),
    ]);
    check(InitiatorPdu::DataOut(pdu), pdu.emit(), bytes, &[(1, 4), (24, 28), (32, 36), (44, 48)]);
}

#[test]
fn logout_request() {
    let pdu = LogoutRequest {
        immediate: true,
        reason: LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY,
        itt: ITT_TAG,
        cid: Cid(0x3344),
        cmd_sn: SN_C,
        exp_stat_sn: SN_D,
    };
    let bytes = header(&[(0, &[0x46, 0x82]), (16, &ITT), (20, &[0x33, 0x44]), (24, &SN[0]), (28, &SN[1])]);
    let reserved = [(2, 4), (8, 16), (22, 24), (32, 48)];
    check(InitiatorPdu::LogoutRequest(pdu), pdu.emit(), bytes, &reserved);
}

#[test]
fn snack_request() {
    let pdu = SnackRequest {
        snack_type: SnackType::DATA_ACK,
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        exp_stat_sn: SN_C,
        beg_run: 0xd004_0506,
        run_length: 0xe007_0809,
    };
    let bytes =
        header(&[(0, &[0x10, 0x82]), (8, &LUN), (16, &ITT), (20, &TTT), (28, &SN[0]), (40, &SN[1]), (44, &SN[2])]);
    check(InitiatorPdu::SnackRequest(pdu), pdu.emit(), bytes, &[(2, 4), (24, 28), (32, 40)]);
}
