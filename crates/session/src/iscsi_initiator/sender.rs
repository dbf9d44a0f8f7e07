//! The way out of a connection: its PDU queue, the status numbers that PDUs acknowledge, and Data-Out.

use std::collections::VecDeque;

use lunette_buffer::Payload;
use lunette_pdu::{DataOut, LunField, SerialNumber, TargetTransferTag};

use super::error::{SessionError, broken};
use super::event::TaskTag;
use super::table::Table;
use super::task::Task;
use crate::limits::{MAX_OUTBOX_PDUS, MAX_QUEUED_DATA_OUT_BYTES};
use crate::markers::MarkedOutbox;

/// A run of Data-Out PDUs that ends with the F bit: unsolicited, or in answer to an R2T.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) task: TaskTag,
    pub(crate) ttt: TargetTransferTag,
    pub(crate) lun: LunField,
    pub(crate) next: u32,
    pub(crate) end: u32,
    pub(crate) data_sn: u32,
}

#[derive(Default)]
pub(crate) struct Sender {
    pub(crate) outbox: MarkedOutbox,
    exp_stat_sn: SerialNumber,
    /// In order: unsolicited data follows the order of its commands (RFC 7143 section 4.2.5.2).
    sequences: VecDeque<Sequence>,
    /// The sequences of tasks that send nothing for now.
    muted: Vec<Sequence>,
}

impl Sender {
    /// The next StatSN that we expect; every PDU of ours acknowledges those before it.
    pub(crate) fn exp_stat_sn(&self) -> SerialNumber {
        self.exp_stat_sn
    }

    /// The target begins to count here.
    pub(crate) fn first_status(&mut self, stat_sn: SerialNumber) {
        self.expect_status(stat_sn.next());
    }

    pub(crate) fn expect_status(&mut self, next: SerialNumber) {
        self.exp_stat_sn = next;
    }

    /// Forgets everything before this number.
    pub(crate) fn skip_to(&mut self, stat_sn: SerialNumber) {
        self.exp_stat_sn = stat_sn;
    }

    /// Takes the StatSN of a PDU that uses one up (RFC 7143 section 4.2.2.2).
    #[inline]
    pub(crate) fn status(&mut self, stat_sn: SerialNumber) -> Result<(), SessionError> {
        let due = self.exp_stat_sn;
        match stat_sn.distance_from(due) {
            0 => {
                self.exp_stat_sn = due.next();
                Ok(())
            }
            1.. => Err(broken("4.2.2.2", format!("StatSN {stat_sn} leaves a gap: {due} was due"))),
            _ => Err(broken("4.2.2.2", format!("StatSN {stat_sn} goes back: {due} was due"))),
        }
    }

    pub(crate) fn send_data(&mut self, sequence: Sequence) {
        self.sequences.push_back(sequence);
    }

    /// No more data of any task is sent.
    pub(crate) fn stop_data(&mut self) {
        self.sequences.clear();
        self.muted.clear();
    }

    /// No more data of this task is sent.
    pub(crate) fn forget(&mut self, task: TaskTag) {
        self.sequences.retain(|sequence| sequence.task != task);
        self.muted.retain(|sequence| sequence.task != task);
    }

    /// Data of tasks that are not muted any more goes on.
    pub(crate) fn resume_data(&mut self, tasks: &Table<Task>) {
        let is_muted = |sequence: &mut Sequence| tasks.get(sequence.task).is_some_and(Task::is_muted);
        let resumed: Vec<Sequence> = self.muted.extract_if(.., |sequence| !is_muted(sequence)).collect();
        for sequence in resumed.into_iter().rev() {
            self.sequences.push_front(sequence);
        }
    }

    /// Whether data waits.
    #[inline]
    pub(crate) fn has_data(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// Cuts waiting data to PDUs of up to `pdu_len` bytes, as far as the outbox has room.
    pub(crate) fn fill(&mut self, tasks: &mut Table<Task>, pdu_len: u32) {
        while self.outbox.segment_bytes() < MAX_QUEUED_DATA_OUT_BYTES && self.outbox.pdus() < MAX_OUTBOX_PDUS {
            let Some(sequence) = self.sequences.front_mut() else { return };
            let Some(task) = tasks.get_mut(sequence.task) else {
                self.sequences.pop_front();
                continue;
            };
            if task.is_muted() {
                self.muted.extend(self.sequences.pop_front());
                continue;
            }
            let len = cut_at_blocks(pdu_len, sequence, task.command.block_len);
            let range = sequence.next as usize..(sequence.next + len) as usize;
            let data = task.command.data_out.as_ref().map(|data| data.slice(range));
            let pdu = DataOut {
                final_: sequence.next + len == sequence.end,
                lun: sequence.lun,
                itt: sequence.task.itt(),
                ttt: sequence.ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: sequence.data_sn,
                buffer_offset: sequence.next,
                data_segment_len: len as usize,
            };
            sequence.next += len;
            sequence.data_sn += 1;
            if pdu.final_ {
                task.sequence_ended(sequence.ttt);
                self.sequences.pop_front();
            }
            let data = data.map_or(Payload::Empty, Payload::Shared);
            self.outbox.push_blocks(pdu.emit(), data, None, task.command.block_len);
        }
    }
}

/// The length of the next PDU of a sequence: up to `pdu_len`, and to the end of a block where that is possible.
#[inline]
fn cut_at_blocks(pdu_len: u32, sequence: &Sequence, block_len: u16) -> u32 {
    let left = sequence.end - sequence.next;
    if pdu_len >= left || block_len == 0 {
        return pdu_len.min(left);
    }
    let beyond_block = (sequence.next + pdu_len) % u32::from(block_len);
    if beyond_block < pdu_len { pdu_len - beyond_block } else { pdu_len }
}
