//! The PDUs that a connection needs to come to a standstill.

use lunette_pdu::{Bhs, InitiatorPdu};

use super::{FullFeature, exp_stat_sn};
use crate::iscsi_target::turn_context::TurnContext;

impl FullFeature {
    /// Whether a PDU is dealt with though the connection comes to rest. `keeps_nothing`: no PDU before it was kept.
    ///
    /// These are data of tasks that have begun, requests to send again, what answers our pings, and requests that
    /// others, which have come, wait for. All others are kept. What they acknowledge is acknowledged all the same.
    pub(crate) fn is_needed_for_rest(&mut self, bhs: &Bhs, keeps_nothing: bool, cx: &mut TurnContext<'_>) -> bool {
        let (immediate, cmd_sn) = match InitiatorPdu::parse(bhs) {
            Ok(InitiatorPdu::DataOut(data)) => return self.tasks.find(data.itt).is_some(),
            Ok(InitiatorPdu::SnackRequest(_)) => return true,
            Ok(InitiatorPdu::NopOut(nop)) if nop.immediate && nop.itt.is_reserved() => return true,
            Ok(InitiatorPdu::TextRequest(text)) if keeps_nothing && !text.ttt.is_reserved() => return true,
            // The standstill is not long, and ExpStatSN of a logout may be that of another connection.
            Ok(InitiatorPdu::LogoutRequest(_) | InitiatorPdu::LoginRequest(_)) | Err(_) => return false,
            Ok(InitiatorPdu::ScsiCommand(command)) => (command.immediate, command.cmd_sn),
            Ok(InitiatorPdu::NopOut(nop)) => (nop.immediate, nop.cmd_sn),
            Ok(InitiatorPdu::TextRequest(text)) => (text.immediate, text.cmd_sn),
            Ok(InitiatorPdu::TaskManagementRequest(request)) => (request.immediate, request.cmd_sn),
        };
        let is_awaited = !immediate && cx.window.is_awaited(cmd_sn);
        if !is_awaited {
            cx.sender.acknowledge(exp_stat_sn(bhs));
        }
        is_awaited
    }

    /// The reason why the connection is not at rest.
    pub(crate) fn restless(&self) -> Option<&'static str> {
        let all = [
            (self.numbering.has_early(), "a request waits for others that have not come"),
            (self.tasks.iter().next().is_some(), "a task has not ended"),
            (self.functions.are_pending(), "a task management function has not ended"),
            (self.logout.is_begun(), "the initiator logs out"),
            (self.text.are_open(), "keys are being negotiated"),
        ];
        all.into_iter().find_map(|(holds, why)| holds.then_some(why))
    }
}
