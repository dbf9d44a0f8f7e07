//! Damaged data segments at recovery level 1 and above: they cost a repetition, not the connection (RFC 7143 sections
//! 7.2.1, 7.3 and 7.8).
//!
//! A request that was discarded leaves a gap in the command numbers, and comes again on the same connection, behind
//! what was sent meanwhile. Two rules follow. A number counts only when its whole PDU has been verified. And nothing
//! that comes before its turn may keep the stream from being read: data of a command that waits is dropped, and asked
//! for when its turn has come.

use lunette_buffer::Payload;
use lunette_pdu::{ScsiCommand, SerialNumber, SnackRequest};

use super::FullFeature;
use super::data_out::r2t;
use super::numbering::{Turn, Waiting};
use super::snack::unsendable;
use crate::iscsi_target::event::TaskTag;
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::transport::answer::Unsendable;
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;
use crate::keys::Digest;
use crate::limits::MAX_EARLY_BYTES;

impl FullFeature {
    /// Whether PDUs that are lost come again.
    pub(super) fn recovers(&self) -> bool {
        self.parameters.error_recovery_level > 0
    }

    /// Whether a command with data counts only when its data has been verified.
    pub(super) fn verifies_first(&self) -> bool {
        self.recovers() && self.parameters.data_digest == Digest::Crc32c
    }

    /// The task whose data is here while the driver has not said where it goes: nothing more is read until then.
    pub(crate) fn brought_data(&self) -> Option<TaskTag> {
        self.brought_data.filter(|task| self.is_undecided(*task))
    }

    /// A request with a data segment has been verified: now it counts.
    pub(super) fn verified(
        &mut self,
        expect: &Expect,
        segment: Vec<u8>,
        ahs: &[u8],
        cx: &mut TurnContext<'_>,
    ) -> Result<(), Violation> {
        let done = match expect {
            Expect::Command(pdu) => self.command_verified(pdu, ahs, segment, cx),
            Expect::Ping(nop) => match self.turn_with(nop.immediate, nop.cmd_sn, segment.len(), cx)? {
                Turn::Now => {
                    self.echo(nop, segment, cx);
                    Ok(())
                }
                Turn::Later => {
                    self.numbering.hold(nop.cmd_sn, Waiting::Ping(*nop, segment), cx);
                    Ok(())
                }
                Turn::Never => Ok(()),
            },
            Expect::Text(request) => match self.turn_with(request.immediate, request.cmd_sn, segment.len(), cx)? {
                Turn::Now => self.text_request(request, &segment, cx),
                Turn::Later => {
                    self.numbering.hold(request.cmd_sn, Waiting::Text(*request, segment), cx);
                    Ok(())
                }
                Turn::Never => Ok(()),
            },
            _ => Ok(()),
        };
        self.numbering.resume_waiters(cx);
        done
    }

    /// Counts the number of a request that keeps its data while it waits. When too much waits it is not counted, and
    /// will come again.
    fn turn_with(
        &mut self,
        immediate: bool,
        cmd_sn: SerialNumber,
        data_len: usize,
        cx: &mut TurnContext<'_>,
    ) -> Result<Turn, Violation> {
        let turn = self.numbering.arrive(immediate, cmd_sn, cx)?;
        let too_much = turn == Turn::Later && self.numbering.early_bytes() + data_len > MAX_EARLY_BYTES;
        Ok(if too_much { Turn::Never } else { turn })
    }

    fn command_verified(
        &mut self,
        pdu: &ScsiCommand,
        ahs: &[u8],
        segment: Vec<u8>,
        cx: &mut TurnContext<'_>,
    ) -> Result<(), Violation> {
        match self.scsi_command(pdu, ahs, cx)? {
            Expect::Data { task, .. } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.data.bring(segment);
                }
                self.brought_data = Some(task);
            }
            Expect::Lost { task, offset, len } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    // A range from the very beginning splits nothing.
                    let _ = task.data.lost(offset, len);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A command has come again that is on its way: so does its unsolicited data (RFC 7143 section 7.2.1).
    pub(super) fn ignore_repetition(&mut self, pdu: &ScsiCommand) {
        if !self.recovers() || pdu.final_ {
            return;
        }
        let original = self.tasks.find(pdu.itt).and_then(|tag| self.tasks.get_mut(tag));
        if let Some(task) = original.filter(|task| task.order.cmd_sn == pdu.cmd_sn) {
            task.data.repeat();
        }
    }

    /// The data segment of a PDU was damaged.
    pub(crate) fn lost(&mut self, expect: &Expect, cx: &mut TurnContext<'_>) {
        if let Expect::Data { task, offset, len } | Expect::Lost { task, offset, len } = *expect {
            self.data_lost(task, offset, len, cx);
        }
    }

    /// Bytes of a task did not arrive whole, or could not be taken: they are asked for again.
    pub(super) fn data_lost(&mut self, tag: TaskTag, offset: u32, len: u32, cx: &mut TurnContext<'_>) {
        let Some(task) = self.tasks.get_mut(tag) else { return };
        match task.data.lost(offset, len) {
            Err(error) => self.fail_delivery(tag, error, cx),
            Ok(()) => self.go_on(tag, cx),
        }
    }

    /// Data or R2Ts may have been lost whole, with their headers: what is overdue is asked for again. False when no
    /// task is left that could wait for data.
    pub(crate) fn ask_for_overdue(&mut self, cx: &mut TurnContext<'_>) -> bool {
        let all = self.tasks.tags_where(|_| true);
        for tag in &all {
            let Some(task) = self.tasks.get_mut(*tag).filter(|task| !task.is_undecided()) else { continue };
            if !task.data.is_overdue() {
                continue;
            }
            if task.data.give_up() {
                self.push_r2ts(*tag, |_| true, cx);
            } else {
                self.go_on(*tag, cx);
            }
        }
        !all.is_empty()
    }

    /// Queues R2Ts of a task again that wait for data.
    fn push_r2ts(&self, tag: TaskTag, concerns: impl Fn(u32) -> bool, cx: &mut TurnContext<'_>) {
        let Some(task) = self.tasks.get(tag) else { return };
        for (ttt, asked) in task.data.outstanding(tag.slot).filter(|(_, asked)| concerns(asked.r2t_sn)) {
            let pdu = r2t(task, ttt, asked, cx.sender.stat_sn(), cx.window.numbers());
            cx.sender.outbox.push(pdu.emit(), Payload::Empty);
        }
    }

    /// Queues R2Ts again that wait for data (RFC 7143 section 11.16). `None`: there is no such task.
    pub(super) fn resend_r2ts(&self, snack: &SnackRequest, cx: &mut TurnContext<'_>) -> Option<Result<(), Violation>> {
        let tag = self.tasks.find(snack.itt)?;
        let task = self.tasks.get(tag)?;
        let end = task.data.r2ts();
        let all = snack.beg_run == 0 && snack.run_length == 0;
        let run = match snack.run_length {
            0 => snack.beg_run..end,
            len => snack.beg_run..snack.beg_run.saturating_add(len),
        };
        let known = task.data.outstanding(tag.slot).filter(|(_, asked)| run.contains(&asked.r2t_sn)).count();
        // One that has been answered was received.
        let are_there = known > 0 && (known == run.len() || snack.run_length == 0);
        if !all && !are_there {
            return Some(Err(unsendable(Unsendable::OutOfRange, end)));
        }
        self.push_r2ts(tag, |r2t_sn| run.contains(&r2t_sn), cx);
        Some(Ok(()))
    }
}
