//! SCSI commands, from their header to their response.

use std::time::Duration;

use lunette_buffer::{Buffer, Payload};
use lunette_pdu::{Ahs, InitiatorTaskTag, RejectReason, ScsiCommand, TargetTransferTag};

use super::FullFeature;
use super::numbering::{Turn, Waiting};
use crate::iscsi_target::event::{Command, CommandOrder, Response, Signal, TaskTag};
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::tasks::data_out::Collector;
use crate::iscsi_target::tasks::task::{Phase, Task};
use crate::iscsi_target::transport::answer::{Answer, Answered};
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;
use crate::limits::MAX_IMMEDIATE_TASKS;

impl FullFeature {
    pub(super) fn command_header(
        &mut self,
        pdu: ScsiCommand,
        ahs: &[u8],
        cx: &mut TurnContext<'_>,
    ) -> Result<Expect, Violation> {
        if pdu.data_segment_len > 0 && self.verifies_first() {
            return Ok(Expect::Command(pdu));
        }
        self.scsi_command(&pdu, ahs, cx)
    }

    /// Counts a command and makes its task.
    pub(super) fn scsi_command(
        &mut self,
        pdu: &ScsiCommand,
        ahs: &[u8],
        cx: &mut TurnContext<'_>,
    ) -> Result<Expect, Violation> {
        let turn = self.numbering.arrive(pdu.immediate, pdu.cmd_sn, cx)?;
        if turn == Turn::Never {
            self.ignore_repetition(pdu);
            return Ok(Expect::Nothing);
        }
        let command = match self.command(pdu, ahs) {
            Ok(command) => command,
            Err(violation) => {
                if turn == Turn::Later {
                    self.numbering.pass_over(pdu.cmd_sn, pdu.cmd_sn.next(), cx);
                }
                return Err(violation);
            }
        };
        // Without immediate data nothing has to wait for the driver: other PDUs pass while the task runs.
        let expect = match pdu.data_segment_len as u32 {
            0 => Expect::Nothing,
            len if turn == Turn::Later && self.recovers() => Expect::Lost { task: command.task, offset: 0, len },
            len => Expect::Data { task: command.task, offset: 0, len },
        };
        match turn {
            Turn::Later => self.numbering.hold(pdu.cmd_sn, Waiting::Command(command), cx),
            _ if pdu.immediate => {
                self.immediate_tasks += 1;
                cx.events.push_back(Signal::Command(command));
            }
            _ => {
                self.numbering.task_started(cx);
                cx.events.push_back(Signal::Command(command));
            }
        }
        Ok(expect)
    }

    /// Checks a command and makes its task.
    fn command(&mut self, pdu: &ScsiCommand, ahs: &[u8]) -> Result<Command, Violation> {
        let extension = Extension::parse(ahs)?;
        let unsolicited_end = self.check_unsolicited(pdu)?;
        self.check_tags(pdu)?;
        let length = pdu.expected_data_transfer_length;
        let data_out_len = if pdu.write { length } else { 0 };
        let data_in_len = match (pdu.read, pdu.write) {
            (true, true) => extension.bidi_read_length.unwrap_or(0),
            (true, false) => length,
            (false, _) => 0,
        };
        let order = CommandOrder { cmd_sn: pdu.cmd_sn, immediate: pdu.immediate };
        let task = Task {
            itt: pdu.itt,
            lun: pdu.lun,
            order,
            data_out_len,
            data_in_len,
            bidirectional: pdu.read && pdu.write,
            data: Collector::new(pdu.data_segment_len as u32, unsolicited_end),
            phase: Phase::Undecided,
            has_waited: false,
            asked_at_pdu: 0,
            is_fenced: false,
        };
        let Some(tag) = self.tasks.insert(task) else {
            return Err(Violation::fatal(RejectReason::OUT_OF_RESOURCES, "more tasks than the window allows"));
        };
        Ok(Command {
            task: tag,
            order,
            lun: pdu.lun,
            cdb: pdu.cdb,
            cdb_rest: extension.cdb_rest,
            attribute: pdu.attr,
            // Reserved bits at a lower level.
            priority: if self.parameters.has_sam5_features() { pdu.priority } else { 0 },
            data_out_len,
            data_in_len,
            window_wait: Duration::ZERO,
        })
    }

    /// RFC 7143 sections 4.2.5.2, 13.10, 13.11 and 13.14: whether the data that comes with and after the command
    /// without being asked for is allowed. Gives the end of unsolicited Data-Out PDUs, when some are announced.
    pub(super) fn check_unsolicited(&self, pdu: &ScsiCommand) -> Result<Option<u32>, Violation> {
        let broken = |why: &str| Violation::fatal(RejectReason::PROTOCOL_ERROR, why);
        let immediate_len = pdu.data_segment_len as u64;
        if immediate_len > 0 && (!pdu.write || !self.parameters.immediate_data) {
            return Err(broken("immediate data that is not allowed"));
        }
        let limit = self.parameters.effective_first_burst_len().min(pdu.expected_data_transfer_length);
        if immediate_len > u64::from(limit) {
            return Err(broken("more immediate data than FirstBurstLength or the expected length"));
        }
        if pdu.final_ {
            return Ok(None);
        }
        if !pdu.write || self.parameters.initial_r2t {
            return Err(broken("unsolicited data announced where none is allowed"));
        }
        Ok(Some(limit))
    }

    pub(super) fn check_tags(&mut self, pdu: &ScsiCommand) -> Result<(), Violation> {
        if pdu.itt.is_reserved() {
            return Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, "the reserved initiator task tag"));
        }
        if let Some(tag) = self.tasks.find(pdu.itt) {
            if !self.tasks.get(tag).is_some_and(Task::is_silent) {
                return Err(Violation::harmless(RejectReason::TASK_IN_PROGRESS, "the initiator task tag is in use"));
            }
            self.tasks.remove(tag);
        }
        if pdu.immediate && self.immediate_tasks >= MAX_IMMEDIATE_TASKS {
            return Err(Violation::harmless(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS, "too many immediate commands"));
        }
        Ok(())
    }

    pub(crate) fn want_data(&mut self, tag: TaskTag, buffer: Buffer, cx: &mut TurnContext<'_>) {
        let Some(task) = self.tasks.get_mut(tag).filter(|task| task.is_undecided()) else { return };
        task.data.want(buffer, task.data_out_len);
        task.phase = Phase::Collecting;
        self.collect(tag, cx);
    }

    pub(crate) fn complete(&mut self, tag: TaskTag, response: Response, cx: &mut TurnContext<'_>) {
        let Some(task) = self.tasks.get(tag).filter(|task| !matches!(task.phase, Phase::Draining(_))) else { return };
        // RFC 7143 section 11.4.2: the answer waits for the last data that the initiator was allowed to send. The task
        // keeps its place in the window until then.
        if task.data.open() {
            self.may_keep_answers |= !response.data_in.is_empty();
            self.tasks.end(tag, Some(response));
        } else {
            let answered = Answered::from(task);
            self.tasks.forget(tag);
            self.answer(&answered, response, cx);
        }
    }

    /// A task has ended, and its response is fenced. Data that it has not taken is dropped: the acknowledgement that
    /// the fence waits for may lie behind it.
    pub(crate) fn hold_answer(&mut self, tag: TaskTag, response: Response) {
        let Some(task) = self.tasks.get_mut(tag).filter(|task| !matches!(task.phase, Phase::Draining(_))) else {
            return;
        };
        self.may_keep_answers |= !response.data_in.is_empty();
        task.data.discard();
        task.is_fenced = true;
        task.phase = Phase::Draining(Some(response));
    }

    /// The response waits for no other any more.
    pub(crate) fn release_answer(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) {
        self.keep_released(tag);
        if self.tasks.get(tag).is_some_and(|task| matches!(task.phase, Phase::Draining(_))) {
            self.drain(tag, cx);
        }
    }

    /// Keeps an R2T or a task that cannot be sent now.
    pub(crate) fn keep_released(&mut self, tag: TaskTag) {
        if let Some(task) = self.tasks.get_mut(tag) {
            task.is_fenced = false;
        }
    }

    /// Whether the driver has that task.
    pub(crate) fn has_task(&self, tag: TaskTag) -> bool {
        self.tasks.get(tag).is_some_and(|task| !matches!(task.phase, Phase::Draining(_)))
    }

    pub(super) fn answer(&mut self, task: &Answered, response: Response, cx: &mut TurnContext<'_>) {
        self.release(task.is_immediate(), cx);
        cx.push_answer(Answer::new(task, response, &self.parameters));
    }

    pub(crate) fn abort(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) {
        let Some(immediate) = self.tasks.get(tag).map(|task| task.order.immediate) else { return };
        if !self.tasks.end(tag, None) {
            return;
        }
        let was_closed = cx.window.is_closed();
        self.release(immediate, cx);
        // No response tells the initiator that it may send again. A NOP-In without tags does (RFC 7143 section 11.19).
        if was_closed && !cx.window.is_closed() {
            let reserved = TargetTransferTag::RESERVED;
            let pdu = cx.nop_in(InitiatorTaskTag::RESERVED, reserved, cx.sender.stat_sn(), 0);
            cx.sender.outbox.push(pdu, Payload::Empty);
        }
    }

    pub(super) fn release(&mut self, immediate: bool, cx: &mut TurnContext<'_>) {
        if immediate {
            self.immediate_tasks -= 1;
        } else {
            self.numbering.task_ended(cx);
        }
    }
}

/// The statement of additional header segments about a command.
struct Extension {
    cdb_rest: Box<[u8]>,
    bidi_read_length: Option<u32>,
}

impl Extension {
    fn parse(ahs: &[u8]) -> Result<Self, Violation> {
        let mut extension = Self { cdb_rest: Box::default(), bidi_read_length: None };
        for segment in Ahs::iter(ahs) {
            let invalid = |why: String| Violation::fatal(RejectReason::INVALID_PDU_FIELD, why);
            match segment.map_err(|error| invalid(error.to_string()))? {
                Ahs::ExtendedCdb(rest) if extension.cdb_rest.is_empty() => extension.cdb_rest = rest.into(),
                Ahs::BidiReadLength(length) if extension.bidi_read_length.is_none() => {
                    extension.bidi_read_length = Some(length);
                }
                Ahs::ExtendedCdb(_) => return Err(invalid("two extended CDBs".into())),
                Ahs::BidiReadLength(_) => return Err(invalid("two read lengths".into())),
                Ahs::Unknown { ahs_type, .. } => return Err(invalid(format!("unknown AHS type {ahs_type}"))),
            }
        }
        Ok(extension)
    }
}
