//! Recovery within a command, from recovery level 1 on: Data-In PDUs and R2Ts that were lost (RFC 7143 sections
//! 7.1.4.1, 7.8 and 7.9).

use std::ops::Range;

use lunette_buffer::Payload;
use lunette_pdu::{
    DataIn, InitiatorTaskTag, LunField, R2t, SerialNumber, SnackRequest, SnackType, TargetPdu, TargetTransferTag,
};

use super::FullFeature;
use super::control::answers_are_read;
use crate::Time;
use crate::iscsi_initiator::ended::data_in_ended;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::event::TaskTag;
use crate::iscsi_initiator::expect::Expect;
use crate::iscsi_initiator::task::{DATA, DataAck, Task};
use crate::iscsi_initiator::turn_context::TurnContext;

impl FullFeature {
    /// The header of a Data-In. What has come before, and what is for a task that has ended, is discarded.
    pub(super) fn recoverable_data_in(
        &mut self,
        pdu: &DataIn,
        context: &mut TurnContext<'_>,
    ) -> Result<Expect, SessionError> {
        context.shared.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        let tag = TaskTag::from_itt(pdu.itt);
        let Some(task) = context.task(tag) else {
            let fresh = |stat_sn: SerialNumber| !stat_sn.is_before(context.sender.exp_stat_sn());
            if pdu.status.is_some_and(|status| fresh(status.stat_sn)) {
                if context.shared.is_withdrawn(self.cid, tag) {
                    return Ok(Expect::Recoverable(*pdu));
                }
                return Err(broken("11.2.1.8", format!("a status for tag {}, which names no command here", pdu.itt)));
            }
            return Ok(Expect::Nothing);
        };
        let Some(lost) = task.number_came(pdu.data_sn)? else { return Ok(Expect::Nothing) };
        task.accept_data_in(pdu)?;
        self.lost_data(tag, lost, context)?;
        Ok(Expect::Recoverable(*pdu))
    }

    /// The data of a Data-In has come undamaged.
    pub(in crate::iscsi_initiator) fn data_in_arrived(
        &mut self,
        pdu: &DataIn,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let tag = TaskTag::from_itt(pdu.itt);
        let Some(task) = context.task(tag) else {
            // It has ended; its status counts.
            return if pdu.status.is_some() { self.arrived(&TargetPdu::DataIn(*pdu), &[], context) } else { Ok(()) };
        };
        let found = task.data_in_came(pdu)?;
        // Before the status: an acknowledged status acknowledges the data (RFC 7143 section 11.7.2).
        let ack = DataAck { lun: pdu.lun, ttt: pdu.ttt, beg_run: pdu.data_sn.saturating_add(1) };
        for ack in task.due_acks(pdu.acknowledge.then_some(ack))? {
            acknowledge(ack, context)?;
        }
        if found {
            self.found_data(tag, context);
        }
        if pdu.status.is_some() {
            self.arrived(&TargetPdu::DataIn(*pdu), &[], context)?;
        }
        if found { self.deal_with_waiting(context) } else { Ok(()) }
    }

    /// The data of a Data-In has come damaged. Its status, if it has one, comes again with it.
    pub(in crate::iscsi_initiator) fn data_in_damaged(
        &mut self,
        pdu: &DataIn,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let tag = TaskTag::from_itt(pdu.itt);
        let Some(task) = context.task(tag) else { return Ok(()) };
        let again = task.data_in_damaged(pdu)?;
        if again && let Some(attempts) = self.recovery().attempts_for(tag) {
            attempts.after_damage(DATA, context.now)?;
        }
        self.lost_data(tag, pdu.data_sn..pdu.data_sn.saturating_add(1), context)?;
        match pdu.status {
            Some(status) => self.will_come(status.stat_sn, context),
            None => Ok(()),
        }
    }

    /// The R2T of a write. What came before is discarded.
    pub(super) fn recoverable_r2t(&mut self, pdu: &R2t, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        let tag = TaskTag::from_itt(pdu.itt);
        let Some(task) = context.task(tag) else { return Ok(()) };
        let Some(lost) = task.number_came(pdu.r2t_sn)? else { return Ok(()) };
        let (sequence, again) = task.recoverable_r2t(tag, pdu, &self.parameters)?;
        context.shared.recoveries.recovery_r2ts += u64::from(again);
        if !self.logging_out {
            context.sender.send_data(sequence);
        }
        self.lost_data(tag, lost, context)?;
        self.found_data(tag, context);
        self.deal_with_waiting(context)
    }

    /// Checks the statement of a status about the Data-In before it. Whether it has to wait for some.
    pub(super) fn is_whole(&mut self, pdu: &TargetPdu, context: &mut TurnContext<'_>) -> Result<bool, SessionError> {
        let (itt, exp_data_sn) = match pdu {
            TargetPdu::ScsiResponse(pdu) => (pdu.itt, pdu.exp_data_sn),
            TargetPdu::DataIn(pdu) => (pdu.itt, 0),
            _ => return Ok(true),
        };
        let tag = TaskTag::from_itt(itt);
        let Some(task) = context.task(tag) else { return Ok(true) };
        // For commands that only write, targets do not agree on what is counted.
        let lost = if task.command.data_in.is_some() { task.numbers_sent(exp_data_sn)? } else { 0..0 };
        let whole = !task.lacks_data();
        self.lost_data(tag, lost, context)?;
        Ok(whole)
    }

    /// Asks for a run of numbers that are lost.
    fn lost_data(&mut self, tag: TaskTag, run: Range<u32>, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
        if run.is_empty() {
            return Ok(());
        }
        self.recovery().note_lacking(tag, context.now);
        if self.logging_out || context.shared.logging_out {
            return Ok(());
        }
        context.shared.recoveries.data_snacks += 1;
        let pdu = SnackRequest {
            snack_type: SnackType::DATA_R2T,
            lun: LunField::default(),
            itt: tag.itt(),
            ttt: TargetTransferTag::RESERVED,
            exp_stat_sn: context.sender.exp_stat_sn(),
            beg_run: run.start,
            run_length: run.end - run.start,
        };
        send(&pdu, context)
    }

    /// Something that was lost is here: the time allowed starts over.
    fn found_data(&mut self, tag: TaskTag, context: &mut TurnContext<'_>) {
        let lacks = context.task(tag).is_some_and(|task| task.lacks_data());
        self.recovery().found(tag, lacks, context.now);
    }

    /// A Data/R2T SNACK was refused.
    pub(super) fn data_snack_rejected(
        &mut self,
        refused: &SnackRequest,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let end = if refused.run_length == 0 { u32::MAX } else { refused.beg_run.saturating_add(refused.run_length) };
        if let Some(task) = context.task(TaskTag::from_itt(refused.itt)) {
            task.refuse(&(refused.beg_run..end));
        }
        self.deal_with_waiting(context)
    }

    /// Asks again for data that has not come in time.
    pub(super) fn ask_for_data_again(
        &mut self,
        heard: Time,
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        let patience = context.shared.config.timers.resend;
        for tag in self.recovery().overdue(context.now, patience) {
            let runs = context.task(tag).filter(|task| task.lacks_data()).map(|task| task.lost_runs());
            let Some(runs) = runs else {
                // It has ended otherwise.
                self.recovery().forget(tag);
                continue;
            };
            if let Some(attempts) = self.recovery().attempts_for(tag) {
                if !attempts.was_before(heard) {
                    attempts.wait(context.now);
                    continue;
                }
                attempts.after_silence(DATA, context.now)?;
            }
            for run in runs {
                self.lost_data(tag, run, context)?;
            }
        }
        Ok(())
    }
}

/// The status that a Data-In has brought, in its turn.
pub(super) fn status_with_data(pdu: &DataIn, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
    let Some(status) = pdu.status else { return Ok(()) };
    context.status(status.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
    let ended = data_in_ended(TaskTag::from_itt(pdu.itt), status, context)?;
    context.end(ended);
    Ok(())
}

impl TurnContext<'_> {
    /// The command of this connection that has this tag.
    pub(super) fn task(&mut self, tag: TaskTag) -> Option<&mut Task> {
        self.shared.tasks.get_mut(tag).filter(|task| task.cid == self.cid)
    }
}

/// DataACK (RFC 7143 section 11.16.2).
fn acknowledge(ack: DataAck, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
    let pdu = SnackRequest {
        snack_type: SnackType::DATA_ACK,
        lun: ack.lun,
        itt: InitiatorTaskTag::RESERVED,
        ttt: ack.ttt,
        exp_stat_sn: context.sender.exp_stat_sn(),
        beg_run: ack.beg_run,
        run_length: 0,
    };
    send(&pdu, context)
}

fn send(pdu: &SnackRequest, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
    answers_are_read(context)?;
    context.sender.outbox.push(pdu.emit(), Payload::Empty);
    Ok(())
}
