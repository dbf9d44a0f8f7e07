//! PDUs that the target sends.

use lunette_pdu::*;

use crate::*;

/// Asserts that `bytes` parse as `pdu`, whatever is in the `reserved` bytes, and that `pdu` emits them.
#[track_caller]
fn check(pdu: TargetPdu, emitted: [u8; BHS_LEN], bytes: [u8; BHS_LEN], reserved: &[(usize, usize)]) {
    assert_eq!(TargetPdu::parse(&Bhs::from(bytes)), Ok(pdu));
    assert_eq!(TargetPdu::parse(&scribble(bytes, reserved)), Ok(pdu), "reserved bytes matter");
    assert_eq!(emitted, bytes);
}

#[test]
fn nop_in() {
    let pdu = NopIn {
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x20, 0x80]),
        (5, &LENGTH),
        (8, &LUN),
        (16, &ITT),
        (20, &TTT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
    ]);
    check(TargetPdu::NopIn(pdu), pdu.emit(), bytes, &[(1, 4), (36, 48)]);
}

#[test]
fn scsi_response() {
    let pdu = ScsiResponse {
        response: ScsiResponseCode::TARGET_FAILURE,
        status: 0x02,
        status_qualifier: 0x1122,
        itt: ITT_TAG,
        snack_tag: 0xb0b1_b2b3,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        exp_data_sn: 0x0102_0304,
        residual: Residual::Underflow(0x1234_5678),
        bidi_read_residual: Residual::Overflow(0x0506_0708),
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x21, 0b1001_0010, 0x01, 0x02]),
        (5, &LENGTH),
        (8, &[0x11, 0x22]),
        (16, &ITT),
        (20, &TTT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (36, &[1, 2, 3, 4]),
        (40, &[5, 6, 7, 8]),
        (44, &OFFSET),
    ]);
    check(TargetPdu::ScsiResponse(pdu), pdu.emit(), bytes, &[(10, 16)]);

    let other_way = ScsiResponse { residual: Residual::Overflow(1), bidi_read_residual: Residual::Underflow(2), ..pdu };
    assert_eq!(other_way.emit()[1], 0b1000_1100);
    let even = ScsiResponse { residual: Residual::None, bidi_read_residual: Residual::None, ..pdu };
    assert_eq!(even.emit()[1], 0x80);
    // Without a flag the counts are reserved.
    assert_eq!(ScsiResponse::parse(&scribble(even.emit(), &[(40, 48)])), Ok(even));
}

#[test]
fn task_management_response() {
    let pdu = TaskManagementResponse {
        response: TaskManagementResponseCode::FUNCTION_REJECTED,
        additional_response_information: [1, 2, 3],
        itt: ITT_TAG,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
    };
    let bytes =
        header(&[(0, &[0x22, 0x80, 0xff]), (8, &[1, 2, 3]), (16, &ITT), (24, &SN[0]), (28, &SN[1]), (32, &SN[2])]);
    let reserved = [(1, 2), (3, 4), (11, 16), (20, 24), (36, 48)];
    check(TargetPdu::TaskManagementResponse(pdu), pdu.emit(), bytes, &reserved);
}

#[test]
fn login_response() {
    let pdu = LoginResponse {
        transit: true,
        continue_: false,
        csg: Stage::SecurityNegotiation,
        nsg: Stage::LoginOperationalNegotiation,
        version_max: 0x02,
        version_active: 0x01,
        isid: Isid([0x80, 0x12, 0x34, 0x56, 0x00, 0x07]),
        tsih: Tsih(0x1122),
        itt: ITT_TAG,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        status: LoginStatus::INVALID_REQUEST_DURING_LOGIN,
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x23, 0b1000_0001, 0x02, 0x01]),
        (5, &LENGTH),
        (8, &[0x80, 0x12, 0x34, 0x56, 0x00, 0x07]),
        (14, &[0x11, 0x22]),
        (16, &ITT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (36, &[0x02, 0x0b]),
    ]);
    check(TargetPdu::LoginResponse(pdu), pdu.emit(), bytes, &[(20, 24), (38, 48)]);

    let partial = LoginResponse { transit: false, continue_: true, nsg: Stage::SecurityNegotiation, ..pdu };
    assert_eq!(partial.emit()[1], 0x40);
}

#[test]
fn text_response() {
    let pdu = TextResponse {
        final_: false,
        continue_: true,
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x24, 0x40]),
        (5, &LENGTH),
        (8, &LUN),
        (16, &ITT),
        (20, &TTT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
    ]);
    check(TargetPdu::TextResponse(pdu), pdu.emit(), bytes, &[(2, 4), (36, 48)]);

    let last = TextResponse { final_: true, continue_: false, ..pdu };
    assert_eq!(last.emit()[1], 0x80);
}

#[test]
fn data_in() {
    let status = DataInStatus { status: 0x18, residual: Residual::Overflow(0x0506_0708), stat_sn: SN_C };
    let pdu = DataIn {
        final_: true,
        acknowledge: true,
        status: Some(status),
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        data_sn: 0x0102_0304,
        buffer_offset: 0x1234_5678,
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x25, 0b1100_0101, 0, 0x18]),
        (5, &LENGTH),
        (8, &LUN),
        (16, &ITT),
        (20, &TTT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (36, &[1, 2, 3, 4]),
        (40, &OFFSET),
        (44, &[5, 6, 7, 8]),
    ]);
    check(TargetPdu::DataIn(pdu), pdu.emit(), bytes, &[(2, 3)]);

    let short = DataInStatus { residual: Residual::Underflow(1), ..status };
    assert_eq!(DataIn { acknowledge: false, status: Some(short), ..pdu }.emit()[1], 0b1000_0011);
    // Without S the status fields are reserved.
    let data_only = DataIn { final_: false, acknowledge: false, status: None, ..pdu };
    assert_eq!(data_only.emit()[1], 0);
    assert_eq!(DataIn::parse(&scribble(data_only.emit(), &[(3, 4), (24, 28), (44, 48)])), Ok(data_only));
}

#[test]
fn logout_response() {
    let pdu = LogoutResponse {
        response: LogoutResponseCode::CLEANUP_FAILED,
        itt: ITT_TAG,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        time2wait: 0x1122,
        time2retain: 0x3344,
    };
    let bytes = header(&[
        (0, &[0x26, 0x80, 0x03]),
        (16, &ITT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (40, &[0x11, 0x22, 0x33, 0x44]),
    ]);
    let reserved = [(1, 2), (3, 4), (8, 16), (20, 24), (36, 40), (44, 48)];
    check(TargetPdu::LogoutResponse(pdu), pdu.emit(), bytes, &reserved);
}

#[test]
fn r2t() {
    let pdu = R2t {
        lun: LUN_FIELD,
        itt: ITT_TAG,
        ttt: TTT_TAG,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        r2t_sn: 0x0102_0304,
        buffer_offset: 0x1234_5678,
        desired_data_transfer_length: 0x0506_0708,
    };
    let bytes = header(&[
        (0, &[0x31, 0x80]),
        (8, &LUN),
        (16, &ITT),
        (20, &TTT),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (36, &[1, 2, 3, 4]),
        (40, &OFFSET),
        (44, &[5, 6, 7, 8]),
    ]);
    check(TargetPdu::R2t(pdu), pdu.emit(), bytes, &[(1, 4)]);
}

#[test]
fn async_message() {
    let pdu = AsyncMessage {
        lun: LUN_FIELD,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        event: AsyncEvent::CONNECTION_DROP,
        vcode: 0x99,
        parameter1: 0x1122,
        parameter2: 0x3344,
        parameter3: 0x5566,
        data_segment_len: DATA_LEN,
    };
    let bytes = header(&[
        (0, &[0x32, 0x80]),
        (5, &LENGTH),
        (8, &LUN),
        (16, &RESERVED_TAG),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (36, &[0x02, 0x99, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66]),
    ]);
    check(TargetPdu::AsyncMessage(pdu), pdu.emit(), bytes, &[(1, 4), (20, 24), (44, 48)]);
}

#[test]
fn reject() {
    let pdu = Reject {
        reason: RejectReason::INVALID_PDU_FIELD,
        stat_sn: SN_C,
        exp_cmd_sn: SN_D,
        max_cmd_sn: SN_E,
        data_sn: 0x0102_0304,
        data_segment_len: 48,
    };
    let bytes = header(&[
        (0, &[0x3f, 0x80, 0x09]),
        (5, &[0, 0, 48]),
        (16, &RESERVED_TAG),
        (24, &SN[0]),
        (28, &SN[1]),
        (32, &SN[2]),
        (36, &[1, 2, 3, 4]),
    ]);
    let reserved = [(1, 2), (3, 4), (8, 16), (20, 24), (40, 48)];
    check(TargetPdu::Reject(pdu), pdu.emit(), bytes, &reserved);
}
