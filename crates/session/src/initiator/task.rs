//! One command under way, and the rules that the target's PDUs for it must keep (RFC 7143 sections 11.4, 11.7 and 11.8).
//!
//! DataPDUInOrder and DataSequenceInOrder are Yes: what is right is always the next byte.

use lunette_pdu::{
    Cid, DataIn, LunField, R2t, Residual, ScsiResponse, ScsiResponseCode, SerialNumber, TargetTransferTag,
};

use super::error::{SessionError, broken};
use super::event::Command;
use super::sender::Sequence;
use super::{TaskTag, event::Response};
use crate::keys::Parameters;

const STATUS_GOOD: u8 = 0x00;

/// A command with its progress.
pub(crate) struct Task {
    pub(crate) command: Command,
    /// The connection that it is allegiant to: all its PDUs go there (RFC 7143 section 4.2.2).
    pub(crate) cid: Cid,
    pub(crate) cmd_sn: SerialNumber,
    /// Its place among all requests of the session.
    pub(crate) order: u64,
    /// DataSN of the next Data-In, R2TSN of the next R2T: one numbering for both (RFC 7143 section 11.8.2).
    next_sn: u32,
    /// Data-Out up to here was sent with the command, may be sent unasked, or was asked for.
    granted: u32,
    /// Unsolicited Data-Out is not at its end. It counts as no R2T (RFC 7143 section 13.17).
    unsolicited: bool,
    /// R2Ts whose Data-Out is not at its end.
    open_r2ts: u32,
    /// Data-In up to here has come.
    received: u32,
    /// Of this, since the last F bit.
    burst: u32,
}

impl Task {
    pub(crate) fn new(command: Command, cid: Cid, cmd_sn: SerialNumber, order: u64) -> Self {
        Self {
            command,
            cid,
            cmd_sn,
            order,
            next_sn: 0,
            granted: 0,
            unsolicited: false,
            open_r2ts: 0,
            received: 0,
            burst: 0,
        }
    }

    /// `len` bytes of Data-Out go without an R2T.
    pub(crate) fn grant(&mut self, len: u32) {
        self.granted = len;
    }

    fn data_in_len(&self) -> u32 {
        self.command.data_in.as_ref().map_or(0, |buffer| buffer.len() as u32)
    }

    fn data_out_len(&self) -> u32 {
        self.command.data_out.as_ref().map_or(0, |buffer| buffer.len() as u32)
    }

    /// Where bytes `offset..offset + len` of Data-In go.
    pub(crate) fn place(&mut self, offset: u32, len: u32) -> &mut [u8] {
        let range = offset as usize..offset.saturating_add(len) as usize;
        self.command.data_in.as_mut().and_then(|buffer| buffer.get_mut(range)).unwrap_or_default()
    }

    /// Checks the header of a Data-In. Its bytes have a place afterwards.
    pub(crate) fn data_in(&mut self, pdu: &DataIn, parameters: &Parameters) -> Result<(), SessionError> {
        let Some(room) = self.command.data_in.as_ref().map(|buffer| buffer.len() as u64) else {
            return Err(broken("11.7", format!("Data-In for task {}, which reads nothing", pdu.itt)));
        };
        if pdu.data_sn != self.next_sn {
            let (got, due) = (pdu.data_sn, self.next_sn);
            return Err(broken("11.7.5", format!("DataSN {got} where {due} was due")));
        }
        if pdu.buffer_offset != self.received {
            let (got, due) = (pdu.buffer_offset, self.received);
            let how = if got < due { "overlaps data that has come" } else { "leaves a gap" };
            return Err(broken("11.7.6", format!("Data-In at offset {got} {how}: {due} was due")));
        }
        let end = u64::from(pdu.buffer_offset) + pdu.data_segment_len as u64;
        if end > room {
            return Err(broken("11.7.6", format!("Data-In up to byte {end} of a buffer of {room}")));
        }
        self.burst += pdu.data_segment_len as u32;
        if self.burst > parameters.max_burst_len {
            let (got, most) = (self.burst, parameters.max_burst_len);
            return Err(broken("13.13", format!("a sequence of {got} bytes with MaxBurstLength={most}")));
        }
        if pdu.final_ {
            self.burst = 0;
        }
        self.next_sn = self.next_sn.wrapping_add(1);
        self.received = end as u32;
        Ok(())
    }

    /// Checks an R2T. Gives the sequence that answers it.
    pub(crate) fn r2t(&mut self, tag: TaskTag, pdu: &R2t, parameters: &Parameters) -> Result<Sequence, SessionError> {
        let total = self.data_out_len();
        if total == 0 {
            return Err(broken("11.8", format!("R2T for task {}, which writes nothing", pdu.itt)));
        }
        if pdu.ttt.is_reserved() {
            return Err(broken("11.8.5", "R2T with the reserved transfer tag"));
        }
        if pdu.r2t_sn != self.next_sn {
            let (got, due) = (pdu.r2t_sn, self.next_sn);
            return Err(broken("11.8.2", format!("R2TSN {got} where {due} was due")));
        }
        let len = pdu.desired_data_transfer_length;
        if len == 0 {
            return Err(broken("11.8.4", "R2T for no bytes"));
        }
        if len > parameters.max_burst_len {
            let most = parameters.max_burst_len;
            return Err(broken("11.8.4", format!("R2T for {len} bytes with MaxBurstLength={most}")));
        }
        if pdu.buffer_offset != self.granted {
            let (got, due) = (pdu.buffer_offset, self.granted);
            return Err(broken("11.8.4", format!("R2T for offset {got} where {due} was due")));
        }
        let end = u64::from(pdu.buffer_offset) + u64::from(len);
        if end > u64::from(total) {
            return Err(broken("11.8.4", format!("R2T up to byte {end} of {total}")));
        }
        if self.open_r2ts >= parameters.max_outstanding_r2t {
            let most = parameters.max_outstanding_r2t;
            return Err(broken("13.17", format!("one more R2T than MaxOutstandingR2T={most} allows")));
        }
        self.next_sn = self.next_sn.wrapping_add(1);
        self.granted = end as u32;
        self.open_r2ts += 1;
        Ok(Sequence { task: tag, ttt: pdu.ttt, lun: pdu.lun, next: pdu.buffer_offset, end: self.granted, data_sn: 0 })
    }

    /// The unsolicited Data-Out after `immediate` bytes in the command.
    pub(crate) fn unsolicited(&mut self, tag: TaskTag, immediate: u32) -> Sequence {
        self.unsolicited = true;
        let (ttt, lun) = (TargetTransferTag::RESERVED, LunField::default());
        Sequence { task: tag, ttt, lun, next: immediate, end: self.granted, data_sn: 0 }
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
    pub(crate) fn end_with_data(&self, status: u8, residual: Residual) -> Result<Response, SessionError> {
        self.check_silent()?;
        self.check_moved(status, residual, Residual::None)?;
        Ok(Response { status, residual: some(residual), data_in_len: self.received as usize, ..Response::default() })
    }

    /// The end of the command by a SCSI Response.
    pub(crate) fn end(&self, pdu: &ScsiResponse, sense: &[u8]) -> Result<Response, SessionError> {
        self.check_silent()?;
        let (response, status) = (pdu.response.0, pdu.status);
        if pdu.response == ScsiResponseCode::COMMAND_COMPLETED {
            self.check_moved(status, pdu.residual, pdu.bidi_read_residual)?;
            self.check_count(pdu.exp_data_sn)?;
            if status == STATUS_GOOD && self.burst > 0 {
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
            data_in_len: self.received as usize,
        })
    }

    /// RFC 7143 section 11.4.2: the status waits for the last data that we were allowed to send.
    fn check_silent(&self) -> Result<(), SessionError> {
        if self.unsolicited || self.open_r2ts > 0 {
            return Err(broken("11.4.2", "a status for a task whose data is still being sent"));
        }
        Ok(())
    }

    /// ExpDataSN counts the Data-In PDUs. A lost one shows here. Zero is what many targets always send, and for commands that
    /// write they do not agree on what is counted.
    fn check_count(&self, exp_data_sn: u32) -> Result<(), SessionError> {
        if self.command.data_out.is_none() && exp_data_sn != 0 && exp_data_sn != self.next_sn {
            let due = self.next_sn;
            return Err(broken("11.4.8", format!("ExpDataSN {exp_data_sn} after {due} Data-In PDUs")));
        }
        Ok(())
    }

    /// RFC 7143 section 11.4.5: what was moved and the residual make what was expected.
    fn check_moved(&self, status: u8, residual: Residual, read_residual: Residual) -> Result<(), SessionError> {
        let good = status == STATUS_GOOD;
        match (self.command.data_out.is_some(), self.command.data_in.is_some()) {
            (false, _) => check_read(good, self.data_in_len(), self.received, residual),
            (true, false) => check_write(good, self.data_out_len(), self.granted, residual),
            (true, true) => {
                check_write(good, self.data_out_len(), self.granted, residual)?;
                check_read(good, self.data_in_len(), self.received, read_residual)
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
