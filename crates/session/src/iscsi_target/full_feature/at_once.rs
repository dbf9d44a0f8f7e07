//! The rules for commands that are answered while they are read (see `connection::at_once`). Each is one of those that
//! all commands are subject to.

use lunette_pdu::{
    DataIn, DataInStatus, LunField, Residual, ScsiCommand, ScsiResponse, ScsiResponseCode, TargetTransferTag,
    TaskAttribute,
};

use super::FullFeature;
use crate::iscsi_target::tasks::window::Arrival;
use crate::iscsi_target::transport::answer::STATUS_GOOD;
use crate::iscsi_target::turn_context::TurnContext;

impl FullFeature {
    /// Whether commands can be answered at once: their connection will not have to repeat the answer, and none came
    /// before its turn.
    pub(crate) fn answers_at_once(&self) -> bool {
        self.session.target.is_some() && !self.recovers() && !self.has_early() && self.logged_out().is_none()
    }

    /// Whether a command whose PDU is here as a whole has all that it needs, and needs one PDU for its answer. The
    /// command is the next one of its session.
    #[inline]
    pub(crate) fn is_at_once(&self, pdu: &ScsiCommand) -> bool {
        let len = pdu.expected_data_transfer_length;
        let data_len = pdu.data_segment_len as u64;
        let is_whole = if pdu.read {
            !pdu.write && len <= self.parameters.send_data_segment_len && len <= self.parameters.max_burst_len
        } else {
            pdu.write && data_len == u64::from(len) && len <= self.receive_limit()
        };
        is_whole
            && len > 0
            && pdu.final_
            && !pdu.immediate
            && matches!(pdu.attr, TaskAttribute::SIMPLE | TaskAttribute::UNTAGGED)
            && self.check_unsolicited(pdu).is_ok()
            && !pdu.itt.is_reserved()
            && self.tasks.find(pdu.itt).is_none()
    }

    /// Counts such a command, and answers it: its Data-In is in its place in the outbox, or its Data-Out is stored.
    #[inline]
    pub(crate) fn answer_at_once(&mut self, pdu: &ScsiCommand, cx: &mut TurnContext<'_>) {
        cx.sender.acknowledge(pdu.exp_stat_sn);
        self.shorten_receive_limit(cx.sender.acknowledged());
        let arrival = cx.window.arrive(pdu.cmd_sn);
        debug_assert!(matches!(arrival, Arrival::Next(_)), "the next command of its session");
        let (exp_cmd_sn, max_cmd_sn) = cx.window.numbers();
        let stat_sn = cx.sender.next_stat_sn();
        let len = pdu.expected_data_transfer_length as usize;
        if pdu.read {
            let status = DataInStatus { status: STATUS_GOOD, residual: Residual::None, stat_sn };
            let data_in = DataIn {
                final_: true,
                acknowledge: false,
                status: Some(status),
                lun: LunField::default(),
                itt: pdu.itt,
                ttt: TargetTransferTag::RESERVED,
                exp_cmd_sn,
                max_cmd_sn,
                data_sn: 0,
                buffer_offset: 0,
                data_segment_len: len,
            };
            cx.sender.push_placed(&data_in.emit(), len);
        } else {
            let response = ScsiResponse {
                response: ScsiResponseCode::COMMAND_COMPLETED,
                status: STATUS_GOOD,
                status_qualifier: 0,
                itt: pdu.itt,
                snack_tag: 0,
                stat_sn,
                exp_cmd_sn,
                max_cmd_sn,
                exp_data_sn: 0,
                residual: Residual::None,
                bidi_read_residual: Residual::None,
                data_segment_len: 0,
            };
            cx.sender.push_placed(&response.emit(), 0);
        }
    }
}
