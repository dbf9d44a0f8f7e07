//! The lost Data-In PDUs and R2Ts of a command (RFC 7143 sections 7.1.4.1, 7.8 and 7.9).
//!
//! Both are numbered in one sequence, so a gap in the numbers tells of either.

use std::ops::Range;

use lunette_pdu::{DataIn, LunField, R2t, TargetTransferTag};

use super::{Incoming, Response, Sequence, Task, TaskTag};
use crate::extents::Extents;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::keys::Parameters;
use crate::limits::{MAX_DATA_ACKS, MAX_OPEN_RECOVERY_R2TS};

/// The name of data that does not come again.
pub(crate) const DATA: &str = "data";

const STATUS_CHECK_CONDITION: u8 = 0x02;

/// Sense data for data that will not come: ABORTED COMMAND, CRC ERROR DETECTED in the protocol service (RFC 7143
/// section 11.4.7.2), in the fixed format of SPC.
const CRC_ERROR_SENSE: [u8; 18] = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x47, 0x05, 0, 0, 0, 0];

#[derive(Default)]
pub(super) struct Lost {
    /// The numbers that are missing.
    numbers: Extents,
    /// Acknowledgements that wait until no number before theirs is missing (RFC 7143 section 11.16.2).
    acks: Vec<DataAck>,
    /// The target will not send it again.
    refused: bool,
}

/// The acknowledgement that a Data-In with the A bit asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataAck {
    pub(crate) lun: LunField,
    pub(crate) ttt: TargetTransferTag,
    /// All Data-In before this number is here.
    pub(crate) beg_run: u32,
}

impl Lost {
    /// The first number that is missing.
    fn first(&self) -> Option<u32> {
        self.numbers.ranges().next().map(|first| first.start)
    }
}

impl Task {
    fn lost(&mut self) -> &mut Lost {
        self.lost.get_or_insert_default()
    }

    /// Another connection goes on with it. Gives ExpDataSN (RFC 7143 section 11.5.6): what comes after the first gap,
    /// comes again.
    pub(crate) fn reassigned(&mut self) -> u32 {
        self.resumes = true;
        (self.unsolicited, self.open_r2ts) = (false, 0);
        self.next_sn = self.lost.take().and_then(|lost| lost.first()).unwrap_or(self.next_sn);
        self.incoming.comes_again();
        if self.command.data_in.is_some() { self.next_sn } else { 0 }
    }

    /// The number of the first PDU after a reassignment. The target may go back, as far as to the beginning (RFC 7143
    /// section 7.2.2), and of a write, R2Ts that did not come do not count.
    fn resume(&mut self, number: u32) {
        if std::mem::take(&mut self.resumes) && (number < self.next_sn || self.command.data_in.is_none()) {
            self.next_sn = number;
        }
    }

    /// Sends the command once more, from its beginning.
    pub(crate) fn restart(&mut self) {
        self.next_sn = 0;
        (self.unsolicited, self.open_r2ts) = (false, 0);
        (self.incoming, self.lost) = (Incoming::default(), None);
    }

    /// A PDU with this number has come, maybe damaged. Gives the numbers before it that are lost, as it shows now.
    /// `None` when it has come before.
    pub(crate) fn number_came(&mut self, number: u32) -> Result<Option<Range<u32>>, SessionError> {
        self.resume(number);
        if number < self.next_sn {
            return Ok(self.is_lost(number).then_some(number..number));
        }
        let lost = self.numbers_sent(number)?;
        self.next_sn = number.checked_add(1).ok_or_else(|| broken("4.2.2.4", "2^32 PDUs for one task"))?;
        Ok(Some(lost))
    }

    /// All numbers before `end` have been sent. Gives those that are lost, as it shows now.
    pub(crate) fn numbers_sent(&mut self, end: u32) -> Result<Range<u32>, SessionError> {
        let lost = self.next_sn..end.max(self.next_sn);
        if !lost.is_empty() {
            self.lose(lost.clone())?;
            self.next_sn = lost.end;
        }
        Ok(lost)
    }

    fn lose(&mut self, numbers: Range<u32>) -> Result<(), SessionError> {
        self.lost().numbers.insert(numbers).map_err(|_| SessionError::Unrecovered(DATA))
    }

    fn is_lost(&self, number: u32) -> bool {
        self.lost.as_ref().is_some_and(|lost| lost.numbers.missing(number..number.saturating_add(1)).next().is_none())
    }

    /// Notes that a lost PDU has come. True when this number was.
    fn found(&mut self, number: u32) -> Result<bool, SessionError> {
        if !self.is_lost(number) {
            return Ok(false);
        }
        let found = number..number.saturating_add(1);
        self.lost().numbers.remove(&found).map_err(|_| SessionError::Unrecovered(DATA))?;
        Ok(true)
    }

    /// Takes the header of a Data-In, in any order. Its bytes count when [`data_in_came`](Self::data_in_came).
    pub(crate) fn accept_data_in(&mut self, pdu: &DataIn) -> Result<(), SessionError> {
        let room = self.check_reads(pdu)?;
        self.incoming.accept_anywhere(pdu, room)
    }

    /// The bytes of a Data-In are here. True when they were lost before.
    pub(crate) fn data_in_came(&mut self, pdu: &DataIn) -> Result<bool, SessionError> {
        self.found(pdu.data_sn)
    }

    /// The bytes of a Data-In came damaged. True when that was not the first time.
    pub(crate) fn data_in_damaged(&mut self, pdu: &DataIn) -> Result<bool, SessionError> {
        self.incoming.discard(pdu)?;
        let again = self.is_lost(pdu.data_sn);
        if !again {
            self.lose(pdu.data_sn..pdu.data_sn.saturating_add(1))?;
        }
        Ok(again)
    }

    /// One more acknowledgement may be owed. Gives those that nothing holds up.
    pub(crate) fn due_acks(&mut self, new: Option<DataAck>) -> Result<Vec<DataAck>, SessionError> {
        Ok(match &mut self.lost {
            None => Vec::from_iter(new),
            Some(lost) => {
                lost.acks.extend(new);
                if lost.acks.len() > MAX_DATA_ACKS {
                    return Err(SessionError::Unrecovered(DATA));
                }
                let missing = lost.first().unwrap_or(u32::MAX);
                lost.acks.extract_if(.., |ack| ack.beg_run <= missing).collect()
            }
        })
    }

    /// Whether the command cannot end yet: something that the target would send again is missing.
    pub(crate) fn lacks_data(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| !lost.refused && lost.first().is_some())
    }

    /// The runs of numbers that are missing.
    pub(crate) fn lost_runs(&self) -> Vec<Range<u32>> {
        self.lost.as_ref().map(|lost| lost.numbers.ranges().cloned().collect()).unwrap_or_default()
    }

    /// The target refuses to send a run again. That does not matter when it has come in the meantime; nor for R2Ts: the
    /// target has their data, or asks for it otherwise.
    pub(crate) fn refuse(&mut self, run: &Range<u32>) {
        let concerned = |lost: &Range<u32>| lost.start < run.end && run.start < lost.end;
        let reads = self.command.data_in.is_some();
        if let Some(lost) = &mut self.lost
            && lost.numbers.ranges().any(concerned)
        {
            lost.refused |= reads || lost.numbers.remove(run).is_err();
        }
    }

    /// The end of a command whose data the target refused to send again: its status cannot stand, unless it says so
    /// itself (RFC 7143 section 7.8).
    pub(super) fn end_incomplete(&self, status: u8, sense: &[u8]) -> Option<Response> {
        self.lost.as_ref().filter(|lost| lost.refused)?;
        let sense = if status == STATUS_CHECK_CONDITION { sense } else { &CRC_ERROR_SENSE };
        let data_in_len = self.incoming.front() as usize;
        Some(Response { status: STATUS_CHECK_CONDITION, sense: sense.to_vec(), data_in_len, ..Response::default() })
    }

    /// Checks an R2T whose number is right, in any order. Gives the sequence that answers it, and whether it asks for
    /// bytes that were asked for before.
    pub(crate) fn recoverable_r2t(
        &mut self,
        tag: TaskTag,
        pdu: &R2t,
        parameters: &Parameters,
    ) -> Result<(Sequence, bool), SessionError> {
        self.found(pdu.r2t_sn)?;
        let range = self.check_request(pdu, parameters, false)?;
        let most = parameters.effective_max_outstanding_r2t().saturating_add(MAX_OPEN_RECOVERY_R2TS);
        if self.open_r2ts >= most {
            return Err(broken("13.17", format!("{} R2Ts of one task wait for their data", self.open_r2ts)));
        }
        let fresh: Vec<Range<u32>> = self.granted.missing(range.clone()).collect();
        let again = fresh != std::slice::from_ref(&range);
        for part in fresh {
            self.granted.insert(part).map_err(|why| broken("11.8.4", why.to_string()))?;
        }
        self.open_r2ts += 1;
        // The answer to the first R2T may have been late, not lost: then the status does not wait for the second one.
        self.is_retried |= again;
        Ok((Sequence { task: tag, ttt: pdu.ttt, lun: pdu.lun, next: range.start, end: range.end, data_sn: 0 }, again))
    }
}

#[cfg(test)]
mod tests {
    use lunette_buffer::Pool;
    use lunette_pdu::{Cid, InitiatorTaskTag, Residual, SerialNumber, TaskAttribute};

    use super::*;
    use crate::iscsi_initiator::event::Command;

    const LEN: u32 = 512;

    fn write() -> Task {
        let command = Command {
            user: 1,
            lun: LunField::default(),
            cdb: [0; 16],
            cdb_rest: Box::default(),
            attribute: TaskAttribute::SIMPLE,
            priority: 0,
            data_out: Some(Pool::new(1 << 20).take(LEN as usize).unwrap().share()),
            data_in: None,
            block_len: 0,
        };
        Task::new(command, Cid(0), SerialNumber(0), 1)
    }

    fn r2t(task: &mut Task, r2t_sn: u32) -> Sequence {
        let pdu = R2t {
            lun: LunField::default(),
            itt: InitiatorTaskTag(0),
            ttt: TargetTransferTag(r2t_sn),
            stat_sn: SerialNumber(0),
            exp_cmd_sn: SerialNumber(0),
            max_cmd_sn: SerialNumber(0),
            r2t_sn,
            buffer_offset: 0,
            desired_data_transfer_length: LEN,
        };
        task.number_came(r2t_sn).unwrap();
        let tag = TaskTag { slot: 0, generation: 0 };
        task.recoverable_r2t(tag, &pdu, &Parameters::default()).unwrap().0
    }

    #[test]
    fn a_status_waits_for_data_unless_it_was_asked_for_again() {
        let mut task = write();
        r2t(&mut task, 0);
        assert!(task.end_with_data(0, Residual::None).is_err());
        let again = r2t(&mut task, 1);
        assert_eq!((again.next, again.end), (0, LEN));
        assert!(task.end_with_data(0, Residual::None).is_ok());
    }
}
