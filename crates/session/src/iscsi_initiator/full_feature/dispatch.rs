//! PDUs of the target, each to the part that deals with its kind.

use lunette_pdu::{SerialNumber, TargetPdu};

use super::FullFeature;
use super::control::logout_response;
use super::data_recovery::status_with_data;
use super::task_management::task_management_response;
use crate::iscsi_initiator::ended::scsi_response;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::expect::Expect;
use crate::iscsi_initiator::turn_context::TurnContext;

impl FullFeature {
    /// Deals with a header, and says what its data segment is for.
    pub(in crate::iscsi_initiator) fn header(
        &mut self,
        pdu: TargetPdu,
        context: &mut TurnContext<'_>,
    ) -> Result<Expect, SessionError> {
        match &pdu {
            TargetPdu::DataIn(data) if self.recovers() => self.recoverable_data_in(data, context),
            TargetPdu::DataIn(data) => {
                let is_awaited = self.data_in(data, context)?.is_some();
                Ok(if is_awaited { Expect::Data(*data) } else { Expect::Nothing })
            }
            TargetPdu::LoginResponse(_) => Err(broken("6.3", "a login response after the login")),
            _ => Ok(Expect::Segment(pdu)),
        }
    }

    /// Deals with a PDU whose data segment is here and verified.
    pub(in crate::iscsi_initiator) fn pdu(
        &mut self,
        pdu: &TargetPdu,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        if self.recovers() { self.arrived(pdu, segment, context) } else { self.deal_with(pdu, segment, context) }
    }

    /// Looks at the StatSN of a PDU that only reports the next one: a number beyond it tells of a lost PDU.
    pub(super) fn status_reported(&self, stat_sn: SerialNumber, context: &TurnContext<'_>) -> Result<(), SessionError> {
        let due = context.sender.exp_stat_sn();
        if stat_sn.is_after(due) && !self.recovers() {
            return Err(broken("4.2.2.2", format!("StatSN {stat_sn} is reported as the next one: {due} was due")));
        }
        Ok(())
    }

    /// Deals with a PDU in its turn.
    pub(super) fn deal_with(
        &mut self,
        pdu: &TargetPdu,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        match pdu {
            TargetPdu::ScsiResponse(pdu) => {
                let ended = scsi_response(self.cid, pdu, segment, context)?;
                context.end(ended);
                Ok(())
            }
            TargetPdu::R2t(pdu) => self.r2t(pdu, context),
            TargetPdu::NopIn(pdu) => self.nop_in(pdu, segment, context),
            TargetPdu::TextResponse(pdu) => self.text_response(pdu, segment, context),
            TargetPdu::TaskManagementResponse(pdu) => task_management_response(pdu, context),
            TargetPdu::LogoutResponse(pdu) => logout_response(pdu, context),
            TargetPdu::AsyncMessage(pdu) => self.async_message(pdu, segment, context),
            TargetPdu::Reject(pdu) => self.reject(pdu, segment, context),
            // At recovery level 0 it was dealt with at its header.
            TargetPdu::DataIn(pdu) => status_with_data(pdu, context),
            TargetPdu::LoginResponse(_) => Ok(()),
        }
    }
}
