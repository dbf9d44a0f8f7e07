//! For any fields, `parse` returns what `emit` was given; for any bytes, nothing panics.

use lunette_pdu::*;
use proptest::prelude::*;

fn serial() -> impl Strategy<Value = SerialNumber> {
    any::<u32>().prop_map(SerialNumber)
}

fn itt() -> impl Strategy<Value = InitiatorTaskTag> {
    any::<u32>().prop_map(InitiatorTaskTag)
}

fn ttt() -> impl Strategy<Value = TargetTransferTag> {
    any::<u32>().prop_map(TargetTransferTag)
}

fn lun() -> impl Strategy<Value = LunField> {
    any::<[u8; 8]>().prop_map(LunField)
}

fn isid() -> impl Strategy<Value = Isid> {
    any::<[u8; 6]>().prop_map(Isid)
}

fn data_len() -> impl Strategy<Value = usize> {
    0..=MAX_DATA_SEGMENT_LEN
}

fn residual() -> impl Strategy<Value = Residual> {
    prop_oneof![
        Just(Residual::None),
        any::<u32>().prop_map(Residual::Overflow),
        any::<u32>().prop_map(Residual::Underflow)
    ]
}

/// Transit, continue, current and next stage of a login PDU.
fn login_flags() -> impl Strategy<Value = (bool, bool, Stage, Stage)> {
    let stage = || {
        prop::sample::select(vec![
            Stage::SecurityNegotiation,
            Stage::LoginOperationalNegotiation,
            Stage::FullFeaturePhase,
        ])
    };
    prop_oneof![
        (stage(), stage()).prop_map(|(csg, nsg)| (true, false, csg, nsg)),
        (any::<bool>(), stage()).prop_map(|(more, csg)| (false, more, csg, Stage::SecurityNegotiation)),
    ]
}

/// Final and continue of a text PDU.
fn text_flags() -> impl Strategy<Value = (bool, bool)> {
    prop::sample::select(vec![(true, false), (false, true), (false, false)])
}

/// Final, read, write and expected length of a command.
fn command_flags() -> impl Strategy<Value = (bool, bool, bool, u32)> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<u32>())
        .prop_map(|(final_, read, write, len)| (final_ || !write, read, write, if read || write { len } else { 0 }))
}

fn data_in_status() -> impl Strategy<Value = Option<DataInStatus>> {
    prop::option::of((any::<u8>(), residual(), serial()))
        .prop_map(|status| status.map(|(status, residual, stat_sn)| DataInStatus { status, residual, stat_sn }))
}

/// The last three numbers of the target's PDUs: `StatSN`, `ExpCmdSN`, `MaxCmdSN`.
fn numbers() -> impl Strategy<Value = (SerialNumber, SerialNumber, SerialNumber)> {
    (serial(), serial(), serial())
}

/// Asserts that a PDU survives `emit` and its direction's `parse`.
macro_rules! comes_back {
    ($direction:ident::$name:ident, $pdu:expr) => {{
        let pdu: $name = $pdu;
        let bhs = Bhs::from(pdu.emit());
        prop_assert_eq!($direction::parse(&bhs), Ok($direction::$name(pdu)));
    }};
}

proptest! {
    #[test]
    fn nop_out(immediate: bool, lun in lun(), itt in itt(), ttt in ttt(), cmd_sn in serial(), exp_stat_sn in serial(), data_segment_len in data_len()) {
        comes_back!(InitiatorPdu::NopOut, NopOut { immediate, lun, itt, ttt, cmd_sn, exp_stat_sn, data_segment_len });
    }

    #[test]
    fn scsi_command(
        immediate: bool, flags in command_flags(), attr in 0u8..8, priority in 0..=ScsiCommand::MAX_PRIORITY, lun in lun(), itt in itt(),
        cmd_sn in serial(), exp_stat_sn in serial(), cdb: [u8; 16], ahs_words in 0..=MAX_AHS_LEN / 4, data_segment_len in data_len(),
    ) {
        let (final_, read, write, expected_data_transfer_length) = flags;
        let attr = TaskAttribute(attr);
        let ahs_len = 4 * ahs_words;
        comes_back!(InitiatorPdu::ScsiCommand, ScsiCommand {
            immediate, final_, read, write, attr, priority, lun, itt, expected_data_transfer_length, cmd_sn, exp_stat_sn, cdb, ahs_len,
            data_segment_len,
        });
    }

    #[test]
    fn task_management_request(
        immediate: bool, function in 0u8..0x80, lun in lun(), itt in itt(), referenced_task_tag in itt(), cmd_sn in serial(),
        exp_stat_sn in serial(), ref_cmd_sn in serial(), exp_data_sn: u32,
    ) {
        let function = TaskManagementFunction(function);
        comes_back!(InitiatorPdu::TaskManagementRequest, TaskManagementRequest {
            immediate, function, lun, itt, referenced_task_tag, cmd_sn, exp_stat_sn, ref_cmd_sn, exp_data_sn,
        });
    }

    #[test]
    fn login_request(
        flags in login_flags(), version_max: u8, version_min: u8, isid in isid(), tsih: u16, itt in itt(), cid: u16, cmd_sn in serial(),
        exp_stat_sn in serial(), data_segment_len in data_len(),
    ) {
        let (transit, continue_, csg, nsg) = flags;
        let (tsih, cid) = (Tsih(tsih), Cid(cid));
        comes_back!(InitiatorPdu::LoginRequest, LoginRequest {
            transit, continue_, csg, nsg, version_max, version_min, isid, tsih, itt, cid, cmd_sn, exp_stat_sn, data_segment_len,
        });
    }

    #[test]
    fn text_request(
        immediate: bool, flags in text_flags(), lun in lun(), itt in itt(), ttt in ttt(), cmd_sn in serial(), exp_stat_sn in serial(),
        data_segment_len in data_len(),
    ) {
        let (final_, continue_) = flags;
        comes_back!(InitiatorPdu::TextRequest, TextRequest {
            immediate, final_, continue_, lun, itt, ttt, cmd_sn, exp_stat_sn, data_segment_len,
        });
    }

    #[test]
    fn data_out(
        final_: bool, lun in lun(), itt in itt(), ttt in ttt(), exp_stat_sn in serial(), data_sn: u32, buffer_offset: u32,
        data_segment_len in data_len(),
    ) {
        comes_back!(InitiatorPdu::DataOut, DataOut { final_, lun, itt, ttt, exp_stat_sn, data_sn, buffer_offset, data_segment_len });
    }

    #[test]
    fn logout_request(immediate: bool, reason in 0u8..0x80, itt in itt(), cid: u16, cmd_sn in serial(), exp_stat_sn in serial()) {
        let (reason, cid) = (LogoutReason(reason), Cid(cid));
        comes_back!(InitiatorPdu::LogoutRequest, LogoutRequest { immediate, reason, itt, cid, cmd_sn, exp_stat_sn });
    }

    #[test]
    fn snack_request(
        snack_type in 0u8..0x10, lun in lun(), itt in itt(), ttt in ttt(), exp_stat_sn in serial(), beg_run: u32, run_length: u32,
    ) {
        let snack_type = SnackType(snack_type);
        comes_back!(InitiatorPdu::SnackRequest, SnackRequest { snack_type, lun, itt, ttt, exp_stat_sn, beg_run, run_length });
    }

    #[test]
    fn nop_in(lun in lun(), itt in itt(), ttt in ttt(), numbers in numbers(), data_segment_len in data_len()) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        comes_back!(TargetPdu::NopIn, NopIn { lun, itt, ttt, stat_sn, exp_cmd_sn, max_cmd_sn, data_segment_len });
    }

    #[test]
    fn scsi_response(
        response: u8, status: u8, status_qualifier: u16, itt in itt(), snack_tag: u32, numbers in numbers(), exp_data_sn: u32,
        residual in residual(), bidi_read_residual in residual(), data_segment_len in data_len(),
    ) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        let response = ScsiResponseCode(response);
        comes_back!(TargetPdu::ScsiResponse, ScsiResponse {
            response, status, status_qualifier, itt, snack_tag, stat_sn, exp_cmd_sn, max_cmd_sn, exp_data_sn, residual,
            bidi_read_residual, data_segment_len,
        });
    }

    #[test]
    fn task_management_response(response: u8, additional_response_information: [u8; 3], itt in itt(), numbers in numbers()) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        let response = TaskManagementResponseCode(response);
        comes_back!(TargetPdu::TaskManagementResponse, TaskManagementResponse {
            response, additional_response_information, itt, stat_sn, exp_cmd_sn, max_cmd_sn,
        });
    }

    #[test]
    fn login_response(
        flags in login_flags(), version_max: u8, version_active: u8, isid in isid(), tsih: u16, itt in itt(), numbers in numbers(),
        class: u8, detail: u8, data_segment_len in data_len(),
    ) {
        let (transit, continue_, csg, nsg) = flags;
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        let (tsih, status) = (Tsih(tsih), LoginStatus { class, detail });
        comes_back!(TargetPdu::LoginResponse, LoginResponse {
            transit, continue_, csg, nsg, version_max, version_active, isid, tsih, itt, stat_sn, exp_cmd_sn, max_cmd_sn, status,
            data_segment_len,
        });
    }

    #[test]
    fn text_response(
        flags in text_flags(), lun in lun(), itt in itt(), ttt in ttt(), numbers in numbers(), data_segment_len in data_len(),
    ) {
        let (final_, continue_) = flags;
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        comes_back!(TargetPdu::TextResponse, TextResponse {
            final_, continue_, lun, itt, ttt, stat_sn, exp_cmd_sn, max_cmd_sn, data_segment_len,
        });
    }

    #[test]
    fn data_in(
        final_: bool, acknowledge: bool, status in data_in_status(), lun in lun(), itt in itt(), ttt in ttt(), exp_cmd_sn in serial(),
        max_cmd_sn in serial(), data_sn: u32, buffer_offset: u32, data_segment_len in data_len(),
    ) {
        let final_ = final_ || status.is_some();
        comes_back!(TargetPdu::DataIn, DataIn {
            final_, acknowledge, status, lun, itt, ttt, exp_cmd_sn, max_cmd_sn, data_sn, buffer_offset, data_segment_len,
        });
    }

    #[test]
    fn logout_response(response: u8, itt in itt(), numbers in numbers(), time2wait: u16, time2retain: u16) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        let response = LogoutResponseCode(response);
        comes_back!(TargetPdu::LogoutResponse, LogoutResponse {
            response, itt, stat_sn, exp_cmd_sn, max_cmd_sn, time2wait, time2retain,
        });
    }

    #[test]
    fn r2t(
        lun in lun(), itt in itt(), ttt in ttt(), numbers in numbers(), r2t_sn: u32, buffer_offset: u32,
        desired_data_transfer_length: u32,
    ) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        comes_back!(TargetPdu::R2t, R2t {
            lun, itt, ttt, stat_sn, exp_cmd_sn, max_cmd_sn, r2t_sn, buffer_offset, desired_data_transfer_length,
        });
    }

    #[test]
    fn async_message(
        lun in lun(), numbers in numbers(), event: u8, vcode: u8, parameter1: u16, parameter2: u16, parameter3: u16,
        data_segment_len in data_len(),
    ) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        let event = AsyncEvent(event);
        comes_back!(TargetPdu::AsyncMessage, AsyncMessage {
            lun, stat_sn, exp_cmd_sn, max_cmd_sn, event, vcode, parameter1, parameter2, parameter3, data_segment_len,
        });
    }

    #[test]
    fn reject(reason: u8, numbers in numbers(), data_sn: u32, data_segment_len in data_len()) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) = numbers;
        let reason = RejectReason(reason);
        comes_back!(TargetPdu::Reject, Reject { reason, stat_sn, exp_cmd_sn, max_cmd_sn, data_sn, data_segment_len });
    }
}

/// The opcodes that the standard assigns.
const OPCODES: [u8; 18] = [0, 1, 2, 3, 4, 5, 6, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f];

/// Any header, or one that passes the checks of opcode and lengths.
fn any_header() -> impl Strategy<Value = Bhs> {
    let bytes = || (any::<[u8; 24]>(), any::<[u8; 24]>());
    let likely = (bytes(), prop::sample::select(OPCODES.to_vec())).prop_map(|((mut a, b), opcode)| {
        a[0] = a[0] & 0xc0 | opcode;
        a[4..8].fill(0);
        (a, b)
    });
    prop_oneof![bytes(), likely].prop_map(|(a, b)| {
        let mut bytes = [0; BHS_LEN];
        bytes[..24].copy_from_slice(&a);
        bytes[24..].copy_from_slice(&b);
        Bhs::from(bytes)
    })
}

fn emit_initiator(pdu: InitiatorPdu) -> [u8; BHS_LEN] {
    match pdu {
        InitiatorPdu::NopOut(pdu) => pdu.emit(),
        InitiatorPdu::ScsiCommand(pdu) => pdu.emit(),
        InitiatorPdu::TaskManagementRequest(pdu) => pdu.emit(),
        InitiatorPdu::LoginRequest(pdu) => pdu.emit(),
        InitiatorPdu::TextRequest(pdu) => pdu.emit(),
        InitiatorPdu::DataOut(pdu) => pdu.emit(),
        InitiatorPdu::LogoutRequest(pdu) => pdu.emit(),
        InitiatorPdu::SnackRequest(pdu) => pdu.emit(),
    }
}

fn emit_target(pdu: TargetPdu) -> [u8; BHS_LEN] {
    match pdu {
        TargetPdu::NopIn(pdu) => pdu.emit(),
        TargetPdu::ScsiResponse(pdu) => pdu.emit(),
        TargetPdu::TaskManagementResponse(pdu) => pdu.emit(),
        TargetPdu::LoginResponse(pdu) => pdu.emit(),
        TargetPdu::TextResponse(pdu) => pdu.emit(),
        TargetPdu::DataIn(pdu) => pdu.emit(),
        TargetPdu::LogoutResponse(pdu) => pdu.emit(),
        TargetPdu::R2t(pdu) => pdu.emit(),
        TargetPdu::AsyncMessage(pdu) => pdu.emit(),
        TargetPdu::Reject(pdu) => pdu.emit(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_header_is_refused_or_means_the_same_when_sent_on(bhs in any_header()) {
        let initiator = InitiatorPdu::parse(&bhs);
        let target = TargetPdu::parse(&bhs);
        prop_assert!(initiator.is_err() || target.is_err(), "a PDU has one direction");
        if let Ok(pdu) = initiator {
            prop_assert_eq!(InitiatorPdu::parse(&Bhs::from(emit_initiator(pdu))), Ok(pdu));
        }
        if let Ok(pdu) = target {
            prop_assert_eq!(TargetPdu::parse(&Bhs::from(emit_target(pdu))), Ok(pdu));
        }
    }
}
