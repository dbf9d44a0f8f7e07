//! SCSI commands, from their submission to their end.

use lunette_buffer::Payload;
use lunette_pdu::{Ahs, DataIn, DataInStatus, MAX_AHS_LEN, R2t, ScsiCommand};

use super::FullFeature;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::event::{Command, TaskTag};
use crate::iscsi_initiator::sender::Sender;
use crate::iscsi_initiator::shared::Shared;
use crate::iscsi_initiator::task::Task;
use crate::iscsi_initiator::turn_context::TurnContext;
use crate::keys::Parameters;

/// How much of a command's data goes without being asked for (RFC 7143 sections 13.10, 13.11 and 13.14): bytes in the
/// command itself, and the end of the unsolicited Data-Out that follows.
fn unasked(len: u32, parameters: &Parameters) -> (u32, u32) {
    let first_burst = parameters.effective_first_burst_len().min(len);
    let immediate = if parameters.immediate_data { first_burst.min(parameters.send_data_segment_len) } else { 0 };
    let end = if parameters.initial_r2t { immediate } else { first_burst };
    (immediate, end)
}

impl FullFeature {
    /// Takes a command and sends it. Leaves it when the task table is full, or when its CDB fits no header.
    #[inline]
    pub(in crate::iscsi_initiator) fn submit(
        &mut self,
        command: &mut Command,
        context: &mut TurnContext<'_>,
    ) -> Option<TaskTag> {
        let extended;
        let ahs = if needs_extension(command) {
            extended = extension(command)?;
            &extended[..]
        } else {
            &[]
        };
        let (tag, task) = context.shared.add_command(command, self.cid)?;
        self.send_command(tag, task, ahs, context.sender);
        Some(tag)
    }

    /// Puts a command with the data that goes unasked on its way.
    #[inline]
    pub(super) fn send_command(&self, tag: TaskTag, task: &mut Task, ahs: &[u8], sender: &mut Sender) {
        let command = &task.command;
        let data_out_len = command.data_out.as_ref().map_or(0, |data| data.len() as u32);
        let data_in_len = command.data_in.as_ref().map_or(0, |data| data.len() as u32);
        let (immediate, unasked_end) = unasked(data_out_len, &self.parameters);
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
            exp_stat_sn: sender.exp_stat_sn(),
            cdb: command.cdb,
            ahs_len: ahs.len(),
            data_segment_len: immediate as usize,
        };
        let data = command.data_out.as_ref().filter(|_| immediate > 0).map(|data| data.slice(0..immediate as usize));
        match (data, ahs) {
            (None, []) => sender.outbox.push_header(header.emit()),
            (Some(data), []) => {
                sender.outbox.push_blocks(header.emit(), Payload::Shared(data), None, command.block_len);
            }
            (data, ahs) => {
                let data = data.map_or(Payload::Empty, Payload::Shared);
                sender.outbox.push_with_ahs(header.emit(), ahs, data);
            }
        }
        task.grant(unasked_end);
        if unasked_end > immediate {
            sender.send_data(task.unsolicited(tag, immediate));
        }
    }

    /// Takes the header of a Data-In. Gives the place of its data; `None` when that comes too late for its command.
    #[inline]
    pub(in crate::iscsi_initiator) fn data_in<'a>(
        &self,
        pdu: &DataIn,
        context: &'a mut TurnContext<'_>,
    ) -> Result<Option<&'a mut [u8]>, SessionError> {
        let Shared { tasks, window, withdrawn, .. } = &mut *context.shared;
        let tag = TaskTag::from_itt(pdu.itt);
        let mut task = tasks.get_mut(tag);
        match &mut task {
            Some(task) if task.cid == self.cid => task.data_in(pdu, &self.parameters)?,
            None if withdrawn.has(self.cid, tag) => {}
            _ => {
                return Err(broken("11.2.1.8", format!("Data-In for tag {}, which names no command here", pdu.itt)));
            }
        }
        window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        if let Some(DataInStatus { stat_sn, .. }) = pdu.status {
            context.sender.status(stat_sn)?;
        }
        Ok(task.map(|task| task.place(pdu.buffer_offset, pdu.data_segment_len as u32)))
    }

    pub(super) fn r2t(&mut self, pdu: &R2t, context: &mut TurnContext<'_>) -> Result<(), SessionError> {
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

/// Whether a command has additional header segments.
#[inline]
fn needs_extension(command: &Command) -> bool {
    !command.cdb_rest.is_empty() || (command.data_in.is_some() && command.data_out.is_some())
}

/// The additional header segments of a long CDB and of a bidirectional command; mostly none. `None` when no header has
/// room for them.
pub(super) fn extension(command: &Command) -> Option<Vec<u8>> {
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
