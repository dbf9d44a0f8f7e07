//! Data-Out PDUs and R2Ts.

use lunette_buffer::Payload;
use lunette_pdu::{DataOut, R2t, RejectReason, SerialNumber, TargetTransferTag};

use super::FullFeature;
use crate::iscsi_target::event::{Response, Signal, TaskTag};
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::tasks::data_out::{DataOutError, DataRules, Solicitation};
use crate::iscsi_target::tasks::task::{Phase, Task, TaskTable};
use crate::iscsi_target::transport::answer::{Answer, Answered, STATUS_CHECK_CONDITION};
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;
use crate::limits::MAX_OUTBOX_PDUS;

impl FullFeature {
    pub(super) fn data_out(&mut self, pdu: &DataOut, cx: &mut TurnContext<'_>) -> Result<Expect, Violation> {
        let found = self.data_out_task(pdu);
        let recovers = self.recovers();
        // Late data of a task that was aborted breaks no rule (RFC 7143 section 4.2.3.3): dropped in silence. So is the
        // answer to an R2T that was given up.
        let Some((tag, task)) = found.and_then(|tag| Some((tag, self.tasks.get_mut(tag)?))) else {
            let named = self.tasks.find(pdu.itt).and_then(|tag| self.tasks.get(tag));
            if !recovers && named.is_some_and(|task| !task.is_silent()) {
                let why = format!("transfer tag {} names no R2T of task {}", pdu.ttt, pdu.itt);
                return Err(Violation::fatal(RejectReason::PROTOCOL_ERROR, why));
            }
            return Ok(Expect::Nothing);
        };
        if task.itt != pdu.itt {
            return Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, "transfer tag and task tag do not match"));
        }
        if pdu.ttt.is_reserved() && task.data.skips_repetition(pdu.final_) {
            self.go_on(tag, cx);
            return Ok(Expect::Nothing);
        }
        let (offset, len) = (pdu.buffer_offset, pdu.data_segment_len as u32);
        let rules = DataRules { in_order: self.parameters.data_pdu_in_order, recovers };
        match task.data.accept(pdu, rules) {
            Ok(()) if recovers && self.numbering.is_early(tag) => Ok(Expect::Lost { task: tag, offset, len }),
            Ok(()) => Ok(Expect::Data { task: tag, offset, len }),
            Err(error) => {
                self.fail_delivery(tag, error, cx);
                Ok(Expect::Nothing)
            }
        }
    }

    /// The task that Data-Out is for.
    pub(super) fn data_out_task(&self, pdu: &DataOut) -> Option<TaskTag> {
        if pdu.ttt.is_reserved() { self.tasks.find(pdu.itt) } else { self.tasks.find_by_ttt(pdu.ttt) }
    }

    /// Data that breaks the rules of its sequence costs its task, not the connection (RFC 7143 sections 7.8 and
    /// 11.4.7.2). Whatever else comes for the task is dropped.
    pub(super) fn fail_delivery(&mut self, tag: TaskTag, error: DataOutError, cx: &mut TurnContext<'_>) {
        let Some(task) = self.tasks.get(tag).filter(|task| !task.is_silent()) else { return };
        tracing::debug!(itt = %task.itt, %error, "task ended: its data cannot be used");
        let (answered, itt, immediate) = (Answered::from(task), task.itt, task.order.immediate);
        if self.numbering.withdraw(tag, cx) {
            self.tasks.end(tag, None);
        } else {
            if self.tasks.end(tag, None) {
                cx.events.push_back(Signal::Aborted(tag));
            } else {
                self.tasks.silence(|task| task.itt == itt);
            }
            self.release(immediate, cx);
        }
        let response = Response { status: STATUS_CHECK_CONDITION, sense: error.sense(), ..Response::default() };
        cx.push_answer(Answer::new(&answered, response, &self.parameters));
    }

    /// Ends tasks whose data does not come, when they waited for it at the look before and the initiator `stands_still`
    /// since. The response goes out when the rest of the data has come (RFC 7143 section 11.4.2). True when that rest,
    /// too, does not come: then the connection cannot go on.
    pub(crate) fn end_stalled(&mut self, stands_still: bool, cx: &mut TurnContext<'_>) -> bool {
        let mut gives_up = false;
        for tag in self.tasks.tags_where(|task| task.data.open() && !task.is_silent()) {
            let Some(task) = self.tasks.get_mut(tag) else { continue };
            // The initiator can bring nothing forward while there is no place for the data, or the R2T waits behind
            // other answers.
            let waits = !task.is_undecided() && cx.sender.outbox.has_left(task.asked_at_pdu);
            let has_waited = std::mem::replace(&mut task.has_waited, waits);
            if !stands_still || !has_waited || !waits {
                continue;
            }
            if matches!(task.phase, Phase::Collecting) {
                tracing::debug!(itt = %task.itt, "task ended: its data does not come");
                let response =
                    Response { status: STATUS_CHECK_CONDITION, sense: response_timeout(), ..Response::default() };
                if self.tasks.end(tag, Some(response)) {
                    cx.events.push_back(Signal::Aborted(tag));
                }
            } else if matches!(task.phase, Phase::Draining(_)) {
                gives_up = true;
            }
        }
        gives_up
    }

    /// Whether there is any task, also one that has ended and waits for data.
    pub(crate) fn has_any_task(&self) -> bool {
        self.tasks.iter().next().is_some()
    }

    pub(super) fn data_verified(&mut self, tag: TaskTag, offset: u32, len: u32, cx: &mut TurnContext<'_>) {
        let Some(task) = self.tasks.get_mut(tag) else { return };
        task.data.verified(offset, len);
        self.go_on(tag, cx);
    }

    /// The task has more data than before, or knows of what is missing.
    pub(super) fn go_on(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) {
        if self.tasks.get(tag).is_some_and(|task| matches!(task.phase, Phase::Draining(_))) {
            self.drain(tag, cx);
        } else {
            self.collect(tag, cx);
        }
    }

    /// Asks for what is missing, or hands over what is complete.
    pub(super) fn collect(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) {
        self.solicit(tag, cx);
        if let Some(buffer) = self.tasks.get_mut(tag).and_then(Task::start_running) {
            cx.events.push_back(Signal::DataOut { task: tag, buffer });
        }
    }

    pub(super) fn solicit(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) {
        let at_most = self.parameters.effective_max_outstanding_r2t();
        let max_burst_len = self.parameters.max_burst_len;
        let asked = |tasks: &mut TaskTable, outbox_is_full| {
            let data = &mut tasks.get_mut(tag)?.data;
            // One R2T is enough to come back here.
            data.solicit(max_burst_len, if outbox_is_full { 1 } else { at_most })
        };
        while let Some(asked) = asked(&mut self.tasks, cx.sender.outbox.pdus() >= MAX_OUTBOX_PDUS) {
            let ttt = self.tasks.next_ttt(tag);
            let Some(task) = self.tasks.get_mut(tag) else { return };
            task.data.solicited(ttt, asked);
            let pdu = r2t(task, ttt, asked, cx.sender.stat_sn(), cx.window.numbers());
            cx.sender.outbox.push(pdu.emit(), Payload::Empty);
            task.asked_at_pdu = cx.sender.outbox.pushed_pdus();
        }
    }

    pub(super) fn drain(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) {
        if self.tasks.get(tag).is_none_or(|task| task.data.open() || task.is_fenced) {
            return;
        }
        let Some(mut task) = self.tasks.remove(tag) else { return };
        if let Phase::Draining(Some(response)) = std::mem::replace(&mut task.phase, Phase::Running) {
            self.answer(&Answered::from(&task), response, cx);
        }
    }

    /// Bytes of the pool that answers keep which wait for the rest of their task's data.
    pub(crate) fn draining_bytes(&mut self) -> usize {
        if !self.may_keep_answers {
            return 0;
        }
        let bytes = self.tasks.kept_bytes();
        self.may_keep_answers = bytes > 0;
        bytes
    }
}

/// Sense data in fixed format: ABORTED COMMAND, INITIATOR RESPONSE TIMEOUT.
fn response_timeout() -> Vec<u8> {
    vec![0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x4b, 0x06, 0, 0, 0, 0]
}

/// Asks for data of a task. An R2T carries the next StatSN and does not use it up (RFC 7143 section 11.8).
pub(super) fn r2t(
    task: &Task,
    ttt: TargetTransferTag,
    asked: Solicitation,
    stat_sn: SerialNumber,
    (exp_cmd_sn, max_cmd_sn): (SerialNumber, SerialNumber),
) -> R2t {
    R2t {
        lun: task.lun,
        itt: task.itt,
        ttt,
        stat_sn,
        exp_cmd_sn,
        max_cmd_sn,
        r2t_sn: asked.r2t_sn,
        buffer_offset: asked.offset,
        desired_data_transfer_length: asked.len,
    }
}
