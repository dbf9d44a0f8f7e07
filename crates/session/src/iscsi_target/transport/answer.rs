//! The answer to a SCSI command: Data-In PDUs, the status, and the residuals (RFC 7143 sections 11.4 and 11.7), the
//! first time and again.
//!
//! How data is cut to PDUs follows from a few numbers, so an answer is kept as its buffer and those numbers. What is
//! sent again is cut again, the same way; only an R-Data SNACK, and another connection, change the cut (section
//! 11.16.3).

mod handover;

use std::ops::Range;

use lunette_buffer::Payload;
use lunette_crc32c::Crc32c;
use lunette_pdu::sense::SENSE_LENGTH_LEN;
use lunette_pdu::{
    DataIn, DataInStatus, InitiatorTaskTag, LunField, Residual, ScsiResponse, ScsiResponseCode, SerialNumber,
    TargetTransferTag,
};

use crate::iscsi_target::event::{CommandOrder, KnownDigests, Response};
use crate::iscsi_target::tasks::task::Task;
use crate::keys::{Digest, Parameters};
use crate::markers::MarkedOutbox;

pub(crate) const STATUS_GOOD: u8 = 0x00;
pub(crate) const STATUS_CHECK_CONDITION: u8 = 0x02;

/// Sense data in fixed format: ABORTED COMMAND, READ ERROR - FAILED RETRANSMISSION REQUEST.
const FAILED_RETRANSMISSION_REQUEST: [u8; 18] = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0x13, 0, 0, 0, 0];

/// ExpCmdSN and MaxCmdSN, as they are now.
type CommandNumbers = (SerialNumber, SerialNumber);

/// The facts about its task that the answer needs.
pub(crate) struct Answered {
    itt: InitiatorTaskTag,
    lun: LunField,
    order: CommandOrder,
    data_out_len: u32,
    data_in_len: u32,
    bidirectional: bool,
    /// R2Ts and Data-In PDUs of a bidirectional command share one numbering (RFC 7143 section 11.8.3): where the latter
    /// begin.
    first_data_sn: u32,
}

impl From<&Task> for Answered {
    fn from(task: &Task) -> Self {
        Self {
            itt: task.itt,
            lun: task.lun,
            order: task.order,
            data_out_len: task.data_out_len,
            data_in_len: task.data_in_len,
            bidirectional: task.bidirectional,
            first_data_sn: if task.bidirectional { task.data.r2ts() } else { 0 },
        }
    }
}

impl Answered {
    /// Whether its command used up no number.
    pub(crate) fn is_immediate(&self) -> bool {
        self.order.immediate
    }
}

/// How data is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    segment_len: usize,
    burst_len: usize,
    /// Between the blocks whose digests are known.
    at_blocks: bool,
}

impl Cut {
    fn new(parameters: &Parameters, digests: Option<&KnownDigests>, block_len: u16) -> Self {
        let whole = Self {
            segment_len: parameters.send_data_segment_len as usize,
            burst_len: parameters.max_burst_len as usize,
            at_blocks: false,
        };
        match digests {
            Some(digests) if parameters.data_digest == Digest::Crc32c => whole.at_blocks(digests.block_len as usize),
            _ if block_len > 0 => Self { at_blocks: false, ..whole.at_blocks(block_len.into()) },
            _ => whole,
        }
    }

    /// The range with whole blocks only, if one fits.
    fn at_blocks(self, block_len: usize) -> Self {
        let whole_blocks = |len| len - len % block_len;
        match (whole_blocks(self.segment_len), whole_blocks(self.burst_len)) {
            (0, _) | (_, 0) => self,
            (segment_len, burst_len) => Self { segment_len, burst_len, at_blocks: true },
        }
    }
}

/// A place between two Data-In PDUs of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    data_sn: u32,
    offset: usize,
}

/// The content of one Data-In PDU.
struct Piece {
    at: Mark,
    len: usize,
    /// Whether it ends its sequence.
    final_: bool,
    /// Whether it is the last PDU of the answer.
    last: bool,
}

struct Pieces {
    at: Mark,
    end: usize,
    cut: Cut,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let at = self.at;
        if at.offset >= self.end {
            return None;
        }
        let burst_left = self.cut.burst_len - at.offset % self.cut.burst_len;
        let len = self.cut.segment_len.min(burst_left).min(self.end - at.offset);
        self.at = Mark { data_sn: at.data_sn.wrapping_add(1), offset: at.offset + len };
        let last = self.at.offset == self.end;
        Some(Piece { at, len, final_: last || len == burst_left, last })
    }
}

/// A command's answer. It is [sent](Self::send) once; parts of it may be sent again.
pub(crate) struct Answer {
    itt: InitiatorTaskTag,
    lun: LunField,
    order: CommandOrder,
    stat_sn: SerialNumber,
    status: u8,
    status_qualifier: u16,
    sense: Vec<u8>,
    residual: Residual,
    bidi_read_residual: Residual,
    /// The status rides on the last Data-In PDU.
    collapsed: bool,
    /// Empty when it is not kept any more.
    data: Payload,
    data_len: usize,
    digests: Option<KnownDigests>,
    block_len: u16,
    cut: Cut,
    /// Where data begins that has not been acknowledged.
    unacknowledged: Mark,
    /// DataSN after the last.
    end_data_sn: u32,
    /// Sequences end with the A bit.
    asks: bool,
    /// The tag of the last R-Data SNACK; 0 when there was none.
    snack_tag: u32,
}

/// Why an answer's data cannot be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsendable {
    /// The data was not sent, or has been acknowledged.
    OutOfRange,
    /// The data is not kept any more.
    Forgotten,
    /// The known digest of the data is wrong.
    Damaged,
}

impl Answer {
    /// From the device's words.
    pub(crate) fn new(task: &Answered, response: Response, parameters: &Parameters) -> Self {
        let Response { status, status_qualifier, sense, data_in, digests, block_len, data_out_transfer_len, .. } =
            response;
        let status_qualifier = if parameters.has_sam5_features() { status_qualifier } else { 0 };
        let (read_len, room) = (data_in.len(), task.data_in_len as usize);
        let read_residual = residual(read_len as u64, task.data_in_len);
        let write_residual = residual(data_out_transfer_len, task.data_out_len);
        let writes = task.data_out_len > 0 || data_out_transfer_len > 0;
        let data = match read_len.min(room) {
            0 => Payload::Empty,
            len if len == read_len => data_in,
            len => data_in.slice(0..len),
        };
        Self {
            itt: task.itt,
            lun: task.lun,
            order: task.order,
            stat_sn: SerialNumber(0),
            status,
            residual: if writes || task.bidirectional { write_residual } else { read_residual },
            bidi_read_residual: if task.bidirectional { read_residual } else { Residual::None },
            status_qualifier,
            // Nothing else is to be said (RFC 7143 section 11.7.3).
            collapsed: status == STATUS_GOOD
                && status_qualifier == 0
                && sense.is_empty()
                && !task.bidirectional
                && read_len.min(room) > 0,
            sense,
            data_len: read_len.min(room),
            data,
            digests,
            block_len,
            cut: Cut::new(parameters, digests.as_ref(), block_len),
            unacknowledged: Mark { data_sn: task.first_data_sn, offset: 0 },
            end_data_sn: task.first_data_sn,
            asks: false,
            snack_tag: 0,
        }
    }

    pub(crate) fn itt(&self) -> InitiatorTaskTag {
        self.itt
    }

    pub(crate) fn lun(&self) -> LunField {
        self.lun
    }

    /// The place of its command.
    pub(crate) fn order(&self) -> CommandOrder {
        self.order
    }

    /// Bytes for the initiator.
    pub(crate) fn data_len(&self) -> usize {
        self.data_len
    }

    /// Bytes of the pool that it keeps.
    pub(crate) fn pooled_bytes(&self) -> usize {
        self.data.pooled_bytes().unwrap_or(0)
    }

    /// The DataSN that a next Data-In PDU would have.
    pub(crate) fn end_data_sn(&self) -> u32 {
        self.end_data_sn
    }

    /// Queues all of it. `asks` wants the data acknowledged.
    pub(crate) fn send(
        &mut self,
        stat_sn: SerialNumber,
        asks: bool,
        numbers: CommandNumbers,
        outbox: &mut MarkedOutbox,
    ) {
        self.stat_sn = stat_sn;
        // The transfer tag of an acknowledgement is the StatSN, and one of them is reserved.
        self.asks = asks && !TargetTransferTag(stat_sn.0).is_reserved();
        self.end_data_sn = self.push_data(0..u32::MAX, numbers, outbox);
        if !self.collapsed {
            self.push_response(numbers, outbox);
        }
    }

    /// Queues Data-In PDUs again, exactly as they were: `run_length` of them from `beg_run` on; 0 stands for all that
    /// are left, and both 0 for all that have not been acknowledged (RFC 7143 section 11.16).
    ///
    /// # Errors
    ///
    /// Nothing is sent.
    pub(crate) fn resend_data(
        &self,
        beg_run: u32,
        run_length: u32,
        numbers: CommandNumbers,
        outbox: &mut MarkedOutbox,
    ) -> Result<(), Unsendable> {
        let unacknowledged = self.unacknowledged.data_sn..self.end_data_sn;
        let run = match (beg_run, run_length) {
            (0, 0) => unacknowledged.clone(),
            (from, 0) => from..self.end_data_sn,
            (from, len) => from..from.checked_add(len).ok_or(Unsendable::OutOfRange)?,
        };
        let asks_for_none = run.is_empty() && (beg_run, run_length) != (0, 0);
        if run.start < unacknowledged.start || run.end > unacknowledged.end || asks_for_none {
            return Err(Unsendable::OutOfRange);
        }
        self.check_sendable()?;
        self.push_data(run, numbers, outbox);
        Ok(())
    }

    /// Queues what has not been acknowledged, cut as `parameters` say now, and a SCSI Response that carries the SNACK
    /// tag (RFC 7143 section 11.16.3).
    ///
    /// # Errors
    ///
    /// Nothing is sent.
    pub(crate) fn resegment(
        &mut self,
        snack_tag: u32,
        parameters: &Parameters,
        numbers: CommandNumbers,
        outbox: &mut MarkedOutbox,
    ) -> Result<(), Unsendable> {
        self.check_sendable()?;
        self.cut = Cut::new(parameters, self.digests.as_ref(), self.block_len);
        self.collapsed = false;
        self.snack_tag = snack_tag;
        self.end_data_sn = self.push_data(self.unacknowledged.data_sn..u32::MAX, numbers, outbox);
        self.push_response(numbers, outbox);
        Ok(())
    }

    /// Whether [`resend_status`](Self::resend_status) can send it: it may have ridden on data that is not kept any
    /// more.
    pub(crate) fn keeps_status(&self) -> bool {
        !self.collapsed || !self.data.is_empty()
    }

    /// Queues the PDU with the status again.
    pub(crate) fn resend_status(&self, numbers: CommandNumbers, outbox: &mut MarkedOutbox) {
        if self.collapsed {
            self.push_data(self.end_data_sn - 1..self.end_data_sn, numbers, outbox);
        } else {
            self.push_response(numbers, outbox);
        }
    }

    /// The initiator has all Data-In PDUs before `exp_data_sn`: it will not ask for them again.
    ///
    /// # Errors
    ///
    /// [`Unsendable::OutOfRange`] when they were not sent, or more has been acknowledged before.
    pub(crate) fn acknowledge_data(&mut self, exp_data_sn: u32) -> Result<(), Unsendable> {
        if !(self.unacknowledged.data_sn..=self.end_data_sn).contains(&exp_data_sn) {
            return Err(Unsendable::OutOfRange);
        }
        let mut pieces = self.pieces();
        while pieces.at.data_sn < exp_data_sn && pieces.next().is_some() {}
        self.unacknowledged = pieces.at;
        if self.unacknowledged.offset >= self.data_len {
            // If the status rode on the last of it, it has arrived too.
            self.collapsed = false;
            self.data = Payload::Empty;
        }
        Ok(())
    }

    /// Cuts the answer for a connection with these parameters. When its data is not kept any more, that is the answer
    /// (RFC 7143 section 11.4.7.2).
    pub(crate) fn recut(&mut self, parameters: &Parameters) {
        self.cut = Cut::new(parameters, self.digests.as_ref(), self.block_len);
        self.snack_tag = 0;
        if self.is_forgotten() {
            self.status = STATUS_CHECK_CONDITION;
            self.sense = FAILED_RETRANSMISSION_REQUEST.to_vec();
            self.collapsed = false;
        }
    }

    /// Gives the buffer back. Its data cannot be sent again.
    pub(crate) fn forget_data(&mut self) {
        self.data = Payload::Empty;
    }

    /// Whether there is data that was not acknowledged and is not kept.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.data.is_empty() && self.unacknowledged.offset < self.data_len
    }

    /// Whether data can be sent again. Where digests are known, the initiator may have found one wrong, so they are
    /// compared with those of the bytes.
    fn check_sendable(&self) -> Result<(), Unsendable> {
        if self.is_forgotten() {
            return Err(Unsendable::Forgotten);
        }
        let is_damaged = |piece: Piece| {
            let segment = self.segment(&piece);
            self.known_crc(&piece, &segment).is_some_and(|known| {
                let mut digest = Crc32c::new();
                segment.for_each_run(|run| digest.update(run));
                digest.finish() != known
            })
        };
        if self.cut.at_blocks && self.pieces().any(is_damaged) {
            return Err(Unsendable::Damaged);
        }
        Ok(())
    }

    fn segment(&self, piece: &Piece) -> Payload {
        self.data.slice(piece.at.offset..piece.at.offset + piece.len)
    }

    /// The CRC32C of the segment of a piece, where it is known: not of a piece that the end of the data cuts within a
    /// block, nor of those after data that was acknowledged when it was cut otherwise.
    #[inline]
    fn known_crc(&self, piece: &Piece, segment: &Payload) -> Option<u32> {
        if !self.cut.at_blocks {
            return None;
        }
        let KnownDigests { block_len, first_block, crc32c } = self.digests?;
        let whole = [piece.at.offset, piece.len].iter().all(|bytes| bytes.is_multiple_of(block_len as usize));
        let block = first_block + piece.at.offset as u64 / u64::from(block_len);
        whole.then(|| crc32c(block_len, block, segment))
    }

    fn pieces(&self) -> Pieces {
        Pieces { at: self.unacknowledged, end: self.data_len, cut: self.cut }
    }

    /// Queues the Data-In PDUs of a run. Gives the DataSN after the last.
    fn push_data(&self, run: Range<u32>, numbers: CommandNumbers, outbox: &mut MarkedOutbox) -> u32 {
        let mut pieces = self.pieces();
        if self.data.is_empty() {
            return pieces.at.data_sn;
        }
        while pieces.at.data_sn < run.end
            && let Some(piece) = pieces.next()
        {
            if run.contains(&piece.at.data_sn) {
                self.push_piece(&piece, numbers, outbox);
            }
        }
        pieces.at.data_sn
    }

    fn push_piece(&self, piece: &Piece, numbers: CommandNumbers, outbox: &mut MarkedOutbox) {
        let (exp_cmd_sn, max_cmd_sn) = numbers;
        let status = (piece.last && self.collapsed).then_some(DataInStatus {
            status: STATUS_GOOD,
            residual: self.residual,
            stat_sn: self.stat_sn,
        });
        let acknowledge = piece.final_ && self.asks;
        // Both are reserved without the A bit (RFC 7143 section 11.7.4).
        let named = (self.lun, TargetTransferTag(self.stat_sn.0));
        let (lun, ttt) = if acknowledge { named } else { (LunField::default(), TargetTransferTag::RESERVED) };
        let Mark { data_sn, offset } = piece.at;
        let pdu = DataIn {
            final_: piece.final_,
            acknowledge,
            status,
            lun,
            itt: self.itt,
            ttt,
            exp_cmd_sn,
            max_cmd_sn,
            data_sn,
            buffer_offset: offset as u32,
            data_segment_len: piece.len,
        };
        let segment = self.segment(piece);
        let crc = self.known_crc(piece, &segment);
        outbox.push_blocks(pdu.emit(), segment, crc, self.block_len);
    }

    fn push_response(&self, numbers: CommandNumbers, outbox: &mut MarkedOutbox) {
        let (exp_cmd_sn, max_cmd_sn) = numbers;
        let segment = sense_segment(&self.sense, self.cut.segment_len);
        let pdu = ScsiResponse {
            response: ScsiResponseCode::COMMAND_COMPLETED,
            status: self.status,
            status_qualifier: self.status_qualifier,
            itt: self.itt,
            snack_tag: self.snack_tag,
            stat_sn: self.stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            exp_data_sn: self.end_data_sn,
            residual: self.residual,
            bidi_read_residual: self.bidi_read_residual,
            data_segment_len: segment.len(),
        };
        outbox.push(pdu.emit(), Payload::from(segment));
    }
}

/// The residual of a transfer against its announced length.
fn residual(transfer_len: u64, announced: u32) -> Residual {
    let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match transfer_len.cmp(&u64::from(announced)) {
        std::cmp::Ordering::Less => Residual::Underflow(announced - transfer_len as u32),
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Greater => Residual::Overflow(clamp(transfer_len - u64::from(announced))),
    }
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
