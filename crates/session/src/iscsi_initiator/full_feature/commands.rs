//! SCSI commands, from their submission to their end.

use lunette_buffer::Payload;
use lunette_pdu::{
    Ahs, Cid, DataIn, DataInStatus, MAX_AHS_LEN, R2t, ScsiCommand, ScsiResponse, ScsiResponseCode, sense,
};

use super::{Context, FullFeature};
use crate::iscsi_initiator::connection::Expect;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::event::{Command, Event, Response, TaskTag};
use crate::iscsi_initiator::task::Task;
use crate::keys::Parameters;

/// How much of a command's data goes without being asked for (RFC 7143 sections 13.10, 13.11 and 13.14): bytes in the command
/// itself, and the end of the unsolicited Data-Out that follows.
fn unasked(len: u32, parameters: &Parameters) -> (u32, u32) {
    let first_burst = parameters.effective_first_burst_len().min(len);
    let immediate = if parameters.immediate_data { first_burst.min(parameters.send_data_segment_len) } else { 0 };
    let end = if parameters.initial_r2t { immediate } else { first_burst };
    (immediate, end)
}

impl FullFeature {
    /// Sends a command. Gives it back when the task table is full, or when its CDB fits no header.
    pub(in crate::iscsi_initiator) fn submit(
        &mut self,
        command: Command,
        context: &mut Context<'_>,
    ) -> Result<TaskTag, Command> {
        let Some(ahs) = extension(&command) else { return Err(command) };
        let order = context.shared.next_order();
        let task = Task::new(command, self.cid, context.shared.window.cmd_sn(), order);
        let tag = context.shared.add_task(task)?;
        context.shared.window.take();
        self.send_command(tag, &ahs, context);
        Ok(tag)
    }

    /// Puts a command with the data that goes unasked on its way.
    pub(super) fn send_command(&self, tag: TaskTag, ahs: &[u8], context: &mut Context<'_>) {
        let Some(task) = context.shared.tasks.get_mut(tag) else { return };
        let command = &task.command;
        let data_out_len = command.data_out.as_ref().map_or(0, |data| data.len() as u32);
        let data_in_len = command.data_in.as_ref().map_or(0, |data| data.len() as u32);
        let (immediate, unasked_end) = unasked(data_out_len, &self.parameters);
        let segment = match &command.data_out {
            Some(data) if immediate > 0 => Payload::Shared(data.slice(0..immediate as usize)),
            _ => Payload::Empty,
        };
        let header = ScsiCommand {
            immediate: false,
            final_: unasked_end == immediate,
            read: command.data_in.is_some(),
            write: command.data_out.is_some(),
            attr: command.attribute,
            priority: if self.parameters.has_sam5_features() { command.priority } else { 0 },
            lun: command.lun,
            itt: tag.itt(),
            expected_data_transfer_length: if command.data_out.is_some() { data_out_len } else { data_in_len },
            cmd_sn: task.cmd_sn,
            exp_stat_sn: context.sender.exp_stat_sn(),
            cdb: command.cdb,
            ahs_len: ahs.len(),
            data_segment_len: immediate as usize,
        };
        let block_len = command.block_len;
        task.grant(unasked_end);
        let unsolicited = (unasked_end > immediate).then(|| task.unsolicited(tag, immediate));
        if ahs.is_empty() {
            context.sender.outbox.push_blocks(header.emit(), segment, None, block_len);
        } else {
            context.sender.outbox.push_with_ahs(header.emit(), ahs, segment);
        }
        if let Some(sequence) = unsolicited {
            context.sender.send_data(sequence);
        }
    }

    pub(super) fn data_in(&mut self, pdu: &DataIn, context: &mut Context<'_>) -> Result<Expect, SessionError> {
        let tag = TaskTag::from_itt(pdu.itt);
        if context.shared.is_withdrawn(self.cid, tag) {
            context.shared.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
            if let Some(DataInStatus { stat_sn, .. }) = pdu.status {
                context.sender.status(stat_sn)?;
            }
            return Ok(Expect::Nothing);
        }
        let Some(task) = context.shared.tasks.get_mut(tag).filter(|task| task.cid == self.cid) else {
            return Err(broken("11.2.1.8", format!("Data-In for tag {}, which names no command here", pdu.itt)));
        };
        task.data_in(pdu, &self.parameters)?;
        context.shared.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        if let Some(DataInStatus { stat_sn, .. }) = pdu.status {
            context.sender.status(stat_sn)?;
        }
        let (offset, len) = (pdu.buffer_offset, pdu.data_segment_len as u32);
        Ok(Expect::Data { task: tag, offset, len, status: pdu.status })
    }

    pub(super) fn r2t(&mut self, pdu: &R2t, context: &mut Context<'_>) -> Result<(), SessionError> {
        self.status_reported(pdu.stat_sn, context)?;
        context.shared.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        if self.recovers() {
            return self.recoverable_r2t(pdu, context);
        }
        let tag = TaskTag::from_itt(pdu.itt);
        if context.shared.is_withdrawn(self.cid, tag) {
            return Ok(());
        }
        let Some(task) = context.shared.tasks.get_mut(tag).filter(|task| task.cid == self.cid) else {
            return Err(broken("11.2.1.8", format!("R2T for tag {}, which names no command here", pdu.itt)));
        };
        let sequence = task.r2t(tag, pdu, &self.parameters)?;
        if !self.logging_out {
            context.sender.send_data(sequence);
        }
        Ok(())
    }
}

/// The data of a Data-In that carried the status is here.
pub(in crate::iscsi_initiator) fn data_in_ended(
    tag: TaskTag,
    status: DataInStatus,
    context: &mut Context<'_>,
) -> Result<(), SessionError> {
    let Some(task) = context.shared.tasks.get(tag) else { return Ok(()) };
    let response = task.end_with_data(status.status, status.residual)?;
    complete(tag, response, context);
    Ok(())
}

pub(super) fn scsi_response(
    cid: Cid,
    pdu: &ScsiResponse,
    segment: &[u8],
    context: &mut Context<'_>,
) -> Result<(), SessionError> {
    context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
    let tag = TaskTag::from_itt(pdu.itt);
    let Some(task) = context.shared.tasks.get(tag).filter(|task| task.cid == cid) else {
        if context.shared.is_withdrawn(cid, tag) {
            return Ok(());
        }
        return Err(broken("11.2.1.8", format!("SCSI Response for tag {}, which names no command here", pdu.itt)));
    };
    let sense = if pdu.response == ScsiResponseCode::COMMAND_COMPLETED {
        sense::split_sense(segment).map_err(|error| broken("11.4.7.1", error.to_string()))?.0
    } else {
        &[]
    };
    let response = task.end(pdu, sense)?;
    complete(tag, response, context);
    Ok(())
}

fn complete(tag: TaskTag, response: Response, context: &mut Context<'_>) {
    if let Some(task) = context.shared.remove_task(tag) {
        context.events.push_back(Event::Completed { command: task.command, response });
    }
}

/// The additional header segments of a long CDB and of a bidirectional command; mostly none. `None` when no header has room
/// for them.
#[inline]
pub(super) fn extension(command: &Command) -> Option<Vec<u8>> {
    let is_plain = command.cdb_rest.is_empty() && (command.data_in.is_none() || command.data_out.is_none());
    if is_plain { Some(Vec::new()) } else { long_extension(command) }
}

fn long_extension(command: &Command) -> Option<Vec<u8>> {
    let extended = (!command.cdb_rest.is_empty()).then_some(Ahs::ExtendedCdb(&command.cdb_rest));
    let read = command.data_in.as_ref().filter(|_| command.data_out.is_some());
    let segments = extended.into_iter().chain(read.map(|data| Ahs::BidiReadLength(data.len() as u32)));
    let mut bytes = Vec::new();
    for segment in segments {
        let at = bytes.len();
        bytes.resize(MAX_AHS_LEN, 0);
        let len = segment.emit(&mut bytes[at..]).ok()?;
        bytes.truncate(at + len);
    }
    Some(bytes)
}
