//! One command under way, and the rules that the target's PDUs for it must keep (RFC 7143 sections 11.4, 11.7 and
//! 11.8).

mod recovery;

use std::ops::Range;

use lunette_pdu::{
    Cid, DataIn, LunField, R2t, Residual, ScsiResponse, ScsiResponseCode, SerialNumber, TargetTransferTag,
};

use self::recovery::Lost;
pub(crate) use self::recovery::{DATA, DataAck};
use super::error::{SessionError, broken};
use super::event::Command;
use super::incoming::Incoming;
use super::sender::Sequence;
use super::{TaskTag, event::Response};
use crate::extents::Extents;
use crate::keys::Parameters;

const STATUS_GOOD: u8 = 0x00;

/// A command with its progress.
pub(crate) struct Task {
    pub(crate) command: Command,
    /// The connection that it is allegiant to: all its PDUs go there (RFC 7143 section 4.2.2).
    pub(crate) cid: Cid,
    pub(crate) cmd_sn: SerialNumber,
    /// The task's place among all requests of the session.
    pub(crate) order: u64,
    /// DataSN of the next Data-In, R2TSN of the next R2T: one numbering for both (RFC 7143 section 11.8.2).
    next_sn: u32,
    /// Data-Out that was sent with the command, may be sent unasked, or was asked for.
    granted: Extents,
    /// Unsolicited Data-Out is not at its end. It counts as no R2T (RFC 7143 section 13.17).
    unsolicited: bool,
    /// R2Ts whose Data-Out is not at its end.
    open_r2ts: u32,
    /// Whether the task is to be aborted, and sends no data.
    muted: bool,
    /// The target has said that it does not have it.
    unknown: bool,
    incoming: Incoming,
    /// Nothing has come since it moved to another connection.
    resumes: bool,
    /// How often it came to the target damaged.
    pub(crate) retries: u32,
    /// Whether it was sent again on its connection, or data of it was asked for again: the target may have had that
    /// already.
    pub(crate) is_retried: bool,
    /// The lost PDUs of the task; mostly none.
    lost: Option<Box<Lost>>,
}

impl Task {
    pub(crate) fn new(command: Command, cid: Cid, cmd_sn: SerialNumber, order: u64) -> Self {
        Self {
            command,
            cid,
            cmd_sn,
            order,
            next_sn: 0,
            granted: Extents::default(),
            unsolicited: false,
            open_r2ts: 0,
            muted: false,
            unknown: false,
            incoming: Incoming::default(),
            resumes: false,
            retries: 0,
            is_retried: false,
            lost: None,
        }
    }

    /// Data-In and R2T PDUs that have come for it.
    pub(crate) fn pdus_received(&self) -> u64 {
        self.next_sn.into()
    }

    /// `len` bytes of Data-Out go without an R2T.
    pub(crate) fn grant(&mut self, len: u32) {
        self.granted = Extents::up_to(len);
    }

    fn data_in_len(&self) -> u32 {
        self.command.data_in.as_ref().map_or(0, |buffer| buffer.len() as u32)
    }

    fn data_out_len(&self) -> u32 {
        self.command.data_out.as_ref().map_or(0, |buffer| buffer.len() as u32)
    }

    /// Where bytes `offset..offset + len` of Data-In go.
    #[inline]
    pub(crate) fn place(&mut self, offset: u32, len: u32) -> &mut [u8] {
        let range = offset as usize..offset.saturating_add(len) as usize;
        self.command.data_in.as_mut().and_then(|buffer| buffer.get_mut(range)).unwrap_or_default()
    }

    /// Checks the header of a Data-In. Its bytes have a place afterwards.
    #[inline]
    pub(crate) fn data_in(&mut self, pdu: &DataIn, parameters: &Parameters) -> Result<(), SessionError> {
        let room = self.check_reads(pdu)?;
        self.check_data_sn(pdu)?;
        self.incoming.accept(pdu, room, parameters)?;
        self.next_sn = self.next_sn.wrapping_add(1);
        Ok(())
    }

    /// The bytes of its buffer.
    #[inline]
    fn check_reads(&self, pdu: &DataIn) -> Result<u64, SessionError> {
        let room = self.command.data_in.as_ref().map(|buffer| buffer.len() as u64);
        room.ok_or_else(|| broken("11.7", format!("Data-In for task {}, which reads nothing", pdu.itt)))
    }

    /// The numbers count the PDUs in the order of sending, whatever the order of their bytes.
    #[inline]
    fn check_data_sn(&self, pdu: &DataIn) -> Result<(), SessionError> {
        if pdu.data_sn != self.next_sn {
            let (got, due) = (pdu.data_sn, self.next_sn);
            return Err(broken("11.7.5", format!("DataSN {got} where {due} was due")));
        }
        Ok(())
    }

    /// Checks an R2T. Gives the sequence that answers it.
    pub(crate) fn r2t(&mut self, tag: TaskTag, pdu: &R2t, parameters: &Parameters) -> Result<Sequence, SessionError> {
        self.check_r2t_sn(pdu)?;
        let range = self.check_request(pdu, parameters, parameters.data_sequence_in_order)?;
        if self.open_r2ts >= parameters.max_outstanding_r2t {
            let most = parameters.max_outstanding_r2t;
            return Err(broken("13.17", format!("one more R2T than MaxOutstandingR2T={most} allows")));
        }
        let bytes = |why| broken("11.8.4", format!("R2T for bytes {}..{}: {why}", range.start, range.end));
        self.granted.insert(range.clone()).map_err(bytes)?;
        self.next_sn = self.next_sn.wrapping_add(1);
        self.open_r2ts += 1;
        Ok(Sequence { task: tag, ttt: pdu.ttt, lun: pdu.lun, next: range.start, end: range.end, data_sn: 0 })
    }

    fn check_r2t_sn(&self, pdu: &R2t) -> Result<(), SessionError> {
        if pdu.r2t_sn != self.next_sn {
            let (got, due) = (pdu.r2t_sn, self.next_sn);
            return Err(broken("11.8.2", format!("R2TSN {got} where {due} was due")));
        }
        Ok(())
    }

    /// The bytes that an R2T asks for.
    fn check_request(&self, pdu: &R2t, parameters: &Parameters, in_order: bool) -> Result<Range<u32>, SessionError> {
        let total = self.data_out_len();
        if total == 0 {
            return Err(broken("11.8", format!("R2T for task {}, which writes nothing", pdu.itt)));
        }
        if pdu.ttt.is_reserved() {
            return Err(broken("11.8.5", "R2T with the reserved transfer tag"));
        }
        let (offset, len) = (pdu.buffer_offset, pdu.desired_data_transfer_length);
        if len == 0 {
            return Err(broken("11.8.4", "R2T for no bytes"));
        }
        if len > parameters.max_burst_len {
            let most = parameters.max_burst_len;
            return Err(broken("11.8.4", format!("R2T for {len} bytes with MaxBurstLength={most}")));
        }
        let due = self.granted.front();
        if in_order && offset != due {
            return Err(broken("11.8.4", format!("R2T for offset {offset} where {due} was due")));
        }
        let end = u64::from(offset) + u64::from(len);
        if end > u64::from(total) {
            return Err(broken("11.8.4", format!("R2T up to byte {end} of {total}")));
        }
        Ok(offset..end as u32)
    }

    /// The unsolicited Data-Out after `immediate` bytes in the command.
    pub(crate) fn unsolicited(&mut self, tag: TaskTag, immediate: u32) -> Sequence {
        self.unsolicited = true;
        let (ttt, lun) = (TargetTransferTag::RESERVED, LunField::default());
        Sequence { task: tag, ttt, lun, next: immediate, end: self.granted.front(), data_sn: 0 }
    }

    /// The last PDU of one of its sequences is in the outbox.
    pub(crate) fn sequence_ended(&mut self, ttt: TargetTransferTag) {
        if ttt.is_reserved() {
            self.unsolicited = false;
        } else {
            self.open_r2ts = self.open_r2ts.saturating_sub(1);
        }
    }

    /// The end of the command by a status in its last Data-In.
    #[inline]
    pub(crate) fn end_with_data(&self, status: u8, residual: Residual) -> Result<Response, SessionError> {
        if let Some(response) = self.end_incomplete(status, &[])
            && !self.was_an_r2t(status, residual, Residual::None)
        {
            return Ok(response);
        }
        self.check_silent()?;
        self.check_moved(status, residual, Residual::None)?;
        Ok(Response {
            status,
            residual: some(residual),
            data_in_len: self.incoming.front() as usize,
            ..Response::default()
        })
    }

    /// The end of the command by a SCSI Response.
    pub(crate) fn end(&self, pdu: &ScsiResponse, sense: &[u8]) -> Result<Response, SessionError> {
        let (response, status) = (pdu.response.0, pdu.status);
        if let Some(response) = self.end_incomplete(status, sense)
            && !self.was_an_r2t(status, pdu.residual, pdu.bidi_read_residual)
        {
            return Ok(response);
        }
        self.check_silent()?;
        if pdu.response == ScsiResponseCode::COMMAND_COMPLETED {
            self.check_moved(status, pdu.residual, pdu.bidi_read_residual)?;
            self.check_count(pdu.exp_data_sn)?;
            if status == STATUS_GOOD && self.incoming.in_sequence() {
                return Err(broken("11.7.1", "the last sequence of Data-In ends without F"));
            }
        }
        Ok(Response {
            response,
            status,
            status_qualifier: pdu.status_qualifier,
            sense: sense.to_vec(),
            residual: some(pdu.residual),
            read_residual: some(pdu.bidi_read_residual),
            data_in_len: self.incoming.front() as usize,
        })
    }

    /// Whether what the target refused to send again was no data: all of that has come.
    fn was_an_r2t(&self, status: u8, residual: Residual, read_residual: Residual) -> bool {
        self.command.data_out.is_some() && self.check_moved(status, residual, read_residual).is_ok()
    }

    /// Whether none of its data is sent: it is one of many that are aborted fast (RFC 7143 section 4.2.3.4).
    pub(crate) fn set_muted(&mut self, muted: bool) {
        self.muted = muted;
    }

    pub(crate) fn is_muted(&self) -> bool {
        self.muted
    }

    /// Lets the task end as soon as nothing under way may have aborted it.
    pub(crate) fn set_unknown(&mut self) {
        self.unknown = true;
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// RFC 7143 section 11.4.2: the status waits for the last data that we were allowed to send, unless we send none.
    #[inline]
    fn check_silent(&self) -> Result<(), SessionError> {
        if (self.unsolicited || self.open_r2ts > 0) && !self.is_retried && !self.muted {
            return Err(broken("11.4.2", "a status for a task whose data is still being sent"));
        }
        Ok(())
    }

    /// ExpDataSN counts the Data-In PDUs. A lost one shows here. Zero is what many targets always send, and for
    /// commands that write they do not agree on whether R2Ts, which share the numbering (RFC 7143 section 11.8.2),
    /// count too. More than all numbers there cannot be.
    fn check_count(&self, exp_data_sn: u32) -> Result<(), SessionError> {
        let right = match (self.command.data_in.is_some(), self.command.data_out.is_some()) {
            (_, false) => exp_data_sn == 0 || exp_data_sn == self.next_sn,
            (true, true) => exp_data_sn <= self.next_sn,
            (false, true) => true,
        };
        if !right {
            let due = self.next_sn;
            return Err(broken("11.4.8", format!("ExpDataSN {exp_data_sn} after {due} Data-In PDUs")));
        }
        Ok(())
    }

    /// RFC 7143 section 11.4.5: what was moved and the residual make what was expected.
    #[inline]
    fn check_moved(&self, status: u8, residual: Residual, read_residual: Residual) -> Result<(), SessionError> {
        let good = status == STATUS_GOOD;
        let (granted, received) = (self.granted.len_bytes(), self.incoming.received());
        if good && self.incoming.front() < received {
            let missing = self.incoming.front();
            return Err(broken("11.7.6", format!("the status comes without the Data-In for byte {missing}")));
        }
        match (self.command.data_out.is_some(), self.command.data_in.is_some()) {
            (false, _) => check_read(good, self.data_in_len(), received, residual),
            (true, false) => check_write(good, self.data_out_len(), granted, residual),
            (true, true) => {
                check_write(good, self.data_out_len(), granted, residual)?;
                check_read(good, self.data_in_len(), received, read_residual)
            }
        }
    }
}

fn some(residual: Residual) -> Option<Residual> {
    (residual != Residual::None).then_some(residual)
}

fn missing(residual: Residual) -> u64 {
    if let Residual::Underflow(count) = residual { u64::from(count) } else { 0 }
}

/// A read that went well has brought every byte that it does not report as missing; another one at most those.
#[inline]
fn check_read(good: bool, expected: u32, received: u32, residual: Residual) -> Result<(), SessionError> {
    let accounted = u64::from(received) + missing(residual);
    if accounted > u64::from(expected) || (good && accounted < u64::from(expected)) {
        let why = format!("{received} of {expected} bytes have come, the residual is {residual:?}");
        return Err(broken("11.4.5", why));
    }
    Ok(())
}

/// A write that went well has asked for every byte that it does not report as missing. Unasked data may be more.
fn check_write(good: bool, expected: u32, granted: u32, residual: Residual) -> Result<(), SessionError> {
    let missing = missing(residual);
    let accounted = u64::from(granted) + missing;
    if missing > u64::from(expected) || (good && accounted < u64::from(expected)) {
        let why = format!("{granted} of {expected} bytes were taken, the residual is {residual:?}");
        return Err(broken("11.4.5", why));
    }
    Ok(())
}
