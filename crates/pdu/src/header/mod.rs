//! A validated struct for each PDU, and the choice among them by opcode.

mod async_message;
mod data_in;
mod data_out;
mod login_request;
mod login_response;
mod logout_request;
mod logout_response;
mod nop_in;
mod nop_out;
mod r2t;
mod reject;
mod scsi_command;
mod scsi_response;
mod snack_request;
mod stage;
mod task_management_request;
mod task_management_response;
mod text_request;
mod text_response;

pub use async_message::{AsyncEvent, AsyncMessage};
pub use data_in::{DataIn, DataInStatus};
pub use data_out::DataOut;
pub use login_request::LoginRequest;
pub use login_response::{LoginResponse, LoginStatus};
pub use logout_request::{LogoutReason, LogoutRequest};
pub use logout_response::{LogoutResponse, LogoutResponseCode};
pub use nop_in::NopIn;
pub use nop_out::NopOut;
pub use r2t::R2t;
pub use reject::{Reject, RejectReason};
pub use scsi_command::{ScsiCommand, TaskAttribute};
pub use scsi_response::{Residual, ScsiResponse, ScsiResponseCode};
pub use snack_request::{SnackRequest, SnackType};
pub use stage::Stage;
pub use task_management_request::{TaskManagementFunction, TaskManagementRequest};
pub use task_management_response::{TaskManagementResponse, TaskManagementResponseCode};
pub use text_request::TextRequest;
pub use text_response::TextResponse;

use crate::{Bhs, Opcode, PduError};

/// A PDU that an initiator sends and a target receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant is named after the struct that documents it")]
pub enum InitiatorPdu {
    NopOut(NopOut),
    ScsiCommand(ScsiCommand),
    TaskManagementRequest(TaskManagementRequest),
    LoginRequest(LoginRequest),
    TextRequest(TextRequest),
    DataOut(DataOut),
    LogoutRequest(LogoutRequest),
    SnackRequest(SnackRequest),
}

impl InitiatorPdu {
    /// Parses a header that came from an initiator.
    ///
    /// # Errors
    ///
    /// [`PduError::WrongDirection`] for a target's opcode, [`PduError::UnknownOpcode`] for one that the standard does
    /// not assign, and the errors of the PDU's own `parse`.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        match bhs.opcode() {
            Opcode::NOP_OUT => NopOut::parse(bhs).map(Self::NopOut),
            Opcode::SCSI_COMMAND => ScsiCommand::parse(bhs).map(Self::ScsiCommand),
            Opcode::TASK_MANAGEMENT_REQUEST => TaskManagementRequest::parse(bhs).map(Self::TaskManagementRequest),
            Opcode::LOGIN_REQUEST => LoginRequest::parse(bhs).map(Self::LoginRequest),
            Opcode::TEXT_REQUEST => TextRequest::parse(bhs).map(Self::TextRequest),
            Opcode::SCSI_DATA_OUT => DataOut::parse(bhs).map(Self::DataOut),
            Opcode::LOGOUT_REQUEST => LogoutRequest::parse(bhs).map(Self::LogoutRequest),
            Opcode::SNACK_REQUEST => SnackRequest::parse(bhs).map(Self::SnackRequest),
            opcode if opcode.is_target() => Err(PduError::WrongDirection { opcode }),
            opcode => Err(PduError::UnknownOpcode { opcode }),
        }
    }
}

/// A PDU that a target sends and an initiator receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant is named after the struct that documents it")]
pub enum TargetPdu {
    NopIn(NopIn),
    ScsiResponse(ScsiResponse),
    TaskManagementResponse(TaskManagementResponse),
    LoginResponse(LoginResponse),
    TextResponse(TextResponse),
    DataIn(DataIn),
    LogoutResponse(LogoutResponse),
    R2t(R2t),
    AsyncMessage(AsyncMessage),
    Reject(Reject),
}

impl TargetPdu {
    /// Parses a header that came from a target.
    ///
    /// # Errors
    ///
    /// [`PduError::WrongDirection`] for an initiator's opcode, [`PduError::UnknownOpcode`] for one that the standard
    /// does not assign, and the errors of the PDU's own `parse`.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        match bhs.opcode() {
            Opcode::NOP_IN => NopIn::parse(bhs).map(Self::NopIn),
            Opcode::SCSI_RESPONSE => ScsiResponse::parse(bhs).map(Self::ScsiResponse),
            Opcode::TASK_MANAGEMENT_RESPONSE => TaskManagementResponse::parse(bhs).map(Self::TaskManagementResponse),
            Opcode::LOGIN_RESPONSE => LoginResponse::parse(bhs).map(Self::LoginResponse),
            Opcode::TEXT_RESPONSE => TextResponse::parse(bhs).map(Self::TextResponse),
            Opcode::SCSI_DATA_IN => DataIn::parse(bhs).map(Self::DataIn),
            Opcode::LOGOUT_RESPONSE => LogoutResponse::parse(bhs).map(Self::LogoutResponse),
            Opcode::R2T => R2t::parse(bhs).map(Self::R2t),
            Opcode::ASYNC_MESSAGE => AsyncMessage::parse(bhs).map(Self::AsyncMessage),
            Opcode::REJECT => Reject::parse(bhs).map(Self::Reject),
            opcode if opcode.is_initiator() => Err(PduError::WrongDirection { opcode }),
            opcode => Err(PduError::UnknownOpcode { opcode }),
        }
    }
}
