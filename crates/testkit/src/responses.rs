//! The PDUs of a target, with a sensible value in every field.

use lunette_pdu::{
    AsyncEvent, AsyncMessage, BHS_LEN, DataIn, DataInStatus, InitiatorTaskTag, LoginRequest, LoginResponse,
    LoginStatus, LogoutResponse, LogoutResponseCode, LunField, NopIn, R2t, Reject, RejectReason, Residual,
    ScsiResponse, ScsiResponseCode, SerialNumber, TargetPdu, TargetTransferTag, TaskManagementResponse,
    TaskManagementResponseCode, TextResponse,
};

/// The numbers that a PDU of a target has. Whether its StatSN is used up is known to the target alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// StatSN.
    pub stat_sn: SerialNumber,
    /// ExpCmdSN.
    pub exp_cmd_sn: SerialNumber,
    /// MaxCmdSN.
    pub max_cmd_sn: SerialNumber,
}

impl Numbers {
    /// Numbers with a window of 32 commands.
    pub fn new(stat_sn: SerialNumber, exp_cmd_sn: SerialNumber) -> Self {
        Self { stat_sn, exp_cmd_sn, max_cmd_sn: exp_cmd_sn.add(31) }
    }

    /// A response that agrees to the stages of `request`, with its TSIH.
    pub fn login_response(self, request: &LoginRequest) -> LoginResponse {
        LoginResponse {
            transit: request.transit,
            continue_: false,
            csg: request.csg,
            nsg: request.nsg,
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: request.tsih,
            itt: request.itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            status: LoginStatus::SUCCESS,
            data_segment_len: 0,
        }
    }

    /// GOOD, without residuals and sense data.
    pub fn scsi_response(self, itt: InitiatorTaskTag) -> ScsiResponse {
        ScsiResponse {
            response: ScsiResponseCode::COMMAND_COMPLETED,
            status: 0,
            status_qualifier: 0,
            itt,
            snack_tag: 0,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            exp_data_sn: 0,
            residual: Residual::None,
            bidi_read_residual: Residual::None,
            data_segment_len: 0,
        }
    }

    /// A Data-In without status that ends its sequence.
    pub fn data_in(self, itt: InitiatorTaskTag, data_sn: u32, offset: u32, len: usize) -> DataIn {
        DataIn {
            final_: true,
            acknowledge: false,
            status: None,
            lun: LunField::default(),
            itt,
            ttt: TargetTransferTag::RESERVED,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            data_sn,
            buffer_offset: offset,
            data_segment_len: len,
        }
    }

    /// GOOD, for a Data-In.
    pub fn good(self, residual: Residual) -> DataInStatus {
        DataInStatus { status: 0, residual, stat_sn: self.stat_sn }
    }

    /// An R2T, which uses up no StatSN.
    pub fn r2t(self, itt: InitiatorTaskTag, r2t_sn: u32, offset: u32, len: u32) -> R2t {
        R2t {
            lun: LunField::default(),
            itt,
            ttt: TargetTransferTag(0x100 + r2t_sn),
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            r2t_sn,
            buffer_offset: offset,
            desired_data_transfer_length: len,
        }
    }

    /// The answer to a ping; without a tag, a NOP-In that wants no answer and uses up no StatSN.
    pub fn nop_in(self, itt: InitiatorTaskTag) -> NopIn {
        NopIn {
            lun: LunField::default(),
            itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            data_segment_len: 0,
        }
    }

    /// A ping, which uses up no StatSN.
    pub fn ping(self, ttt: TargetTransferTag) -> NopIn {
        NopIn { ttt, ..self.nop_in(InitiatorTaskTag::RESERVED) }
    }

    /// The only PDU of its answer.
    pub fn text_response(self, itt: InitiatorTaskTag, len: usize) -> TextResponse {
        TextResponse {
            final_: true,
            continue_: false,
            lun: LunField::default(),
            itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            data_segment_len: len,
        }
    }

    /// The answer to a task management request.
    pub fn task_management_response(
        self,
        itt: InitiatorTaskTag,
        response: TaskManagementResponseCode,
    ) -> TaskManagementResponse {
        TaskManagementResponse {
            response,
            additional_response_information: [0; 3],
            itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
        }
    }

    /// Success, with no time for recovery.
    pub fn logout_response(self, itt: InitiatorTaskTag) -> LogoutResponse {
        LogoutResponse {
            response: LogoutResponseCode::CLOSED,
            itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            time2wait: 0,
            time2retain: 0,
        }
    }

    /// A message without parameters and data.
    pub fn async_message(self, event: AsyncEvent) -> AsyncMessage {
        AsyncMessage {
            lun: LunField::default(),
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            event,
            vcode: 0,
            parameter1: 0,
            parameter2: 0,
            parameter3: 0,
            data_segment_len: 0,
        }
    }

    /// A Reject, whose data segment is the rejected header.
    pub fn reject(self, reason: RejectReason) -> Reject {
        Reject {
            reason,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            data_sn: 0,
            data_segment_len: BHS_LEN,
        }
    }
}

/// The StatSN that a PDU has used up; `None` when it has used up none.
pub fn stat_sn_of(pdu: &TargetPdu) -> Option<SerialNumber> {
    match pdu {
        TargetPdu::LoginResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::ScsiResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::DataIn(pdu) => pdu.status.map(|status| status.stat_sn),
        TargetPdu::NopIn(pdu) => (!pdu.itt.is_reserved()).then_some(pdu.stat_sn),
        TargetPdu::TaskManagementResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::TextResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::LogoutResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::AsyncMessage(pdu) => Some(pdu.stat_sn),
        TargetPdu::Reject(pdu) => Some(pdu.stat_sn),
        TargetPdu::R2t(_) => None,
    }
}

/// The data segment of a response with this sense data (RFC 7143 section 11.4.7).
pub fn sense_segment(sense: &[u8]) -> Vec<u8> {
    if sense.is_empty() { Vec::new() } else { [&(sense.len() as u16).to_be_bytes()[..], sense].concat() }
}
