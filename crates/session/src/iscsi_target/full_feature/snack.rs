//! SNACK requests: the initiator has missed something, or acknowledges data (RFC 7143 section 11.16).

use lunette_pdu::{RejectReason, SerialNumber, SnackRequest, SnackType};

use super::FullFeature;
use crate::iscsi_target::event::Signal;
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::transport::answer::Unsendable;
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;

impl FullFeature {
    /// Handles a SNACK: a number that was not sent or has been acknowledged is a protocol error; a PDU that is not kept
    /// any more is refused (RFC 7143 sections 7.8 and 11.16). Neither costs the connection.
    pub(super) fn snack(&mut self, snack: &SnackRequest, cx: &mut TurnContext<'_>) -> Result<Expect, Violation> {
        match snack.snack_type {
            _ if cx.sender.retained().is_none() => {
                return Err(Violation::harmless(RejectReason::SNACK_REJECT, "SNACK at recovery level 0"));
            }
            SnackType::STATUS => resend_statuses(snack, cx)?,
            SnackType::DATA_R2T => self.resend_data(snack, cx)?,
            SnackType::R_DATA => self.resegment_data(snack, cx)?,
            SnackType::DATA_ACK => acknowledge_data(snack, cx)?,
            unknown => {
                let why = format!("SNACK of the reserved type {}", unknown.0);
                return Err(Violation::harmless(RejectReason::PROTOCOL_ERROR, why));
            }
        }
        Ok(Expect::Nothing)
    }

    fn resend_data(&self, snack: &SnackRequest, cx: &mut TurnContext<'_>) -> Result<(), Violation> {
        if let Some(resent) = self.resend_r2ts(snack, cx) {
            return resent;
        }
        let numbers = cx.window.numbers();
        let (answer, outbox) = cx.sender.find_answer(snack.itt).ok_or_else(|| unsendable(Unsendable::OutOfRange, 0))?;
        let resent = answer.resend_data(snack.beg_run, snack.run_length, numbers, outbox);
        let resent = resent.map_err(|why| (why, answer.end_data_sn()));
        resent.map_err(|(why, end)| refuse(why, end, cx))
    }

    fn resegment_data(&self, snack: &SnackRequest, cx: &mut TurnContext<'_>) -> Result<(), Violation> {
        let tag = snack.ttt;
        if tag.0 == 0 || tag.is_reserved() || (snack.beg_run, snack.run_length) != (0, 0) {
            let why = "an R-Data SNACK without a tag, or with a run";
            return Err(Violation::harmless(RejectReason::INVALID_PDU_FIELD, why));
        }
        let numbers = cx.window.numbers();
        let (answer, outbox) = cx.sender.find_answer(snack.itt).ok_or_else(|| unsendable(Unsendable::OutOfRange, 0))?;
        let resent = answer.resegment(tag.0, &self.parameters, numbers, outbox);
        let resent = resent.map_err(|why| (why, answer.end_data_sn()));
        resent.map_err(|(why, end)| refuse(why, end, cx))
    }
}

/// [`unsendable`], and the driver learns of damaged data.
fn refuse(why: Unsendable, next_data_sn: u32, cx: &mut TurnContext<'_>) -> Violation {
    if why == Unsendable::Damaged {
        cx.events.push_back(Signal::DataDamaged);
    }
    unsendable(why, next_data_sn)
}

fn resend_statuses(snack: &SnackRequest, cx: &mut TurnContext<'_>) -> Result<(), Violation> {
    let numbers = cx.window.numbers();
    cx.sender.resend_statuses(snack.beg_run, snack.run_length, numbers).map_err(|why| unsendable(why, 0))
}

/// The transfer tag of an acknowledgement is the StatSN of the answer.
fn acknowledge_data(snack: &SnackRequest, cx: &mut TurnContext<'_>) -> Result<(), Violation> {
    let answer = cx.sender.retained().and_then(|retained| retained.answer(SerialNumber(snack.ttt.0)));
    match answer.map(|answer| answer.acknowledge_data(snack.beg_run)) {
        Some(Ok(())) => Ok(()),
        _ => Err(Violation::harmless(
            RejectReason::INVALID_DATA_ACK,
            "an acknowledgement of data that does not wait for one",
        )),
    }
}

/// Why a SNACK is refused, and the number that the next PDU of that kind would have.
pub(super) fn unsendable(why: Unsendable, next_data_sn: u32) -> Violation {
    match why {
        Unsendable::OutOfRange => Violation {
            data_sn: next_data_sn,
            ..Violation::harmless(RejectReason::PROTOCOL_ERROR, "SNACK of what was not sent or has been acknowledged")
        },
        Unsendable::Forgotten => Violation::harmless(RejectReason::SNACK_REJECT, "SNACK of what is not kept any more"),
        Unsendable::Damaged => {
            Violation::harmless(RejectReason::SNACK_REJECT, "SNACK of data that is damaged here, too")
        }
    }
}
