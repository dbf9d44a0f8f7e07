//! The answer to a SCSI command: Data-In PDUs, the status, and the residuals (RFC 7143 sections 11.4 and 11.7).

use lunette_buffer::SharedBuffer;
use lunette_pdu::{
    DataIn, DataInStatus, InitiatorTaskTag, LunField, Residual, ScsiResponse, ScsiResponseCode, TargetTransferTag,
};

use lunette_pdu::sense::SENSE_LENGTH_LEN;

use super::event::Response;
use super::session::Session;
use super::task::Task;
use crate::keys::Parameters;
use crate::outbox::Segment;

use super::connection::Sender;

const STATUS_GOOD: u8 = 0x00;
pub(crate) const STATUS_CHECK_CONDITION: u8 = 0x02;

/// What the answer needs to know of its task.
pub(crate) struct Answered {
    itt: InitiatorTaskTag,
    data_out_len: u32,
    data_in_len: u32,
    bidirectional: bool,
    /// R2Ts and Data-In PDUs of a bidirectional command share one numbering (RFC 7143 section 11.8.3): where the latter begin.
    first_data_sn: u32,
}

impl From<&Task> for Answered {
    fn from(task: &Task) -> Self {
        Self {
            itt: task.itt,
            data_out_len: task.data_out_len,
            data_in_len: task.data_in_len,
            bidirectional: task.bidirectional,
            first_data_sn: if task.bidirectional { task.data.r2ts() } else { 0 },
        }
    }
}

/// What was moved against what was announced.
fn residual(transfer_len: u64, announced: u32) -> Residual {
    let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match transfer_len.cmp(&u64::from(announced)) {
        std::cmp::Ordering::Less => Residual::Underflow(announced - transfer_len as u32),
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Greater => Residual::Overflow(clamp(transfer_len - u64::from(announced))),
    }
}

/// Queues everything that answers a command.
pub(crate) fn respond(
    task: &Answered,
    response: Response,
    parameters: &Parameters,
    session: &Session,
    sender: &mut Sender,
) {
    let Response { status, status_qualifier, sense, data_in, data_out_transfer_len } = response;
    let status_qualifier = if parameters.has_sam5_features() { status_qualifier } else { 0 };
    let read_len = data_in.as_ref().map_or(0, |data| data.len() as u64);
    let read_residual = residual(read_len, task.data_in_len);
    let write_residual = residual(data_out_transfer_len, task.data_out_len);
    let writes = task.data_out_len > 0 || data_out_transfer_len > 0;
    let plain_residual = if writes { write_residual } else { read_residual };
    let data = data_in.map(|data| {
        let sent = data.len().min(task.data_in_len as usize);
        data.slice(0..sent)
    });
    let data = data.filter(|data| !data.is_empty());
    // The status rides on the last Data-In PDU when there is nothing else to say (RFC 7143 section 11.7.3).
    let collapse =
        status == STATUS_GOOD && status_qualifier == 0 && sense.is_empty() && !task.bidirectional && data.is_some();
    let mut exp_data_sn = task.first_data_sn;
    if let Some(data) = data {
        exp_data_sn = send_data(task, &data, collapse.then_some(plain_residual), parameters, session, sender);
    }
    if collapse {
        return;
    }
    let (exp_cmd_sn, max_cmd_sn) = session.command_numbers();
    let segment = sense_segment(&sense, parameters.send_data_segment_len as usize);
    let bidirectional_residual = if task.bidirectional { read_residual } else { Residual::None };
    let pdu = ScsiResponse {
        response: ScsiResponseCode::COMMAND_COMPLETED,
        status,
        status_qualifier,
        itt: task.itt,
        snack_tag: 0,
        stat_sn: sender.next_stat_sn(),
        exp_cmd_sn,
        max_cmd_sn,
        exp_data_sn,
        residual: if task.bidirectional { write_residual } else { plain_residual },
        bidi_read_residual: bidirectional_residual,
        data_segment_len: segment.len(),
    };
    sender.outbox.push(pdu.emit(), Segment::owned(segment));
}

/// The data of a response: SenseLength, then sense data (RFC 7143 section 11.4.7), as much as the initiator takes.
fn sense_segment(sense: &[u8], max_segment_len: usize) -> Vec<u8> {
    if sense.is_empty() {
        return Vec::new();
    }
    let room = max_segment_len.saturating_sub(SENSE_LENGTH_LEN).min(usize::from(u16::MAX));
    let sense = &sense[..sense.len().min(room)];
    let mut segment = (sense.len() as u16).to_be_bytes().to_vec();
    segment.extend_from_slice(sense);
    segment
}

/// Cuts data to PDUs and sequences and returns the DataSN after the last.
fn send_data(
    task: &Answered,
    data: &SharedBuffer,
    collapsed: Option<Residual>,
    parameters: &Parameters,
    session: &Session,
    sender: &mut Sender,
) -> u32 {
    let burst_len = parameters.max_burst_len as usize;
    let pdu_len = (parameters.send_data_segment_len as usize).min(burst_len);
    let (exp_cmd_sn, max_cmd_sn) = session.command_numbers();
    let (mut offset, mut data_sn) = (0, task.first_data_sn);
    while offset < data.len() {
        let burst_left = burst_len - offset % burst_len;
        let len = pdu_len.min(burst_left).min(data.len() - offset);
        let last = offset + len == data.len();
        let status = collapsed.filter(|_| last).map(|residual| DataInStatus {
            status: STATUS_GOOD,
            residual,
            stat_sn: sender.next_stat_sn(),
        });
        let pdu = DataIn {
            final_: last || len == burst_left,
            acknowledge: false,
            status,
            // Reserved, as the tag is.
            lun: LunField::default(),
            itt: task.itt,
            ttt: TargetTransferTag::RESERVED,
            exp_cmd_sn,
            max_cmd_sn,
            data_sn,
            buffer_offset: offset as u32,
            data_segment_len: len,
        };
        sender.outbox.push(pdu.emit(), Segment::Shared(data.slice(offset..offset + len)));
        offset += len;
        data_sn += 1;
    }
    data_sn
}
