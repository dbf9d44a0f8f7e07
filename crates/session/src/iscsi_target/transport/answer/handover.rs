//! An answer that may have to be sent again, as a value.

use lunette_buffer::Payload;
use lunette_handover as handover;
use lunette_handover::ByteBuf;
use lunette_pdu::{InitiatorTaskTag, LunField, Residual, SerialNumber};

use super::{Answer, Cut, Mark};
use crate::iscsi_target::event::CommandOrder;
use crate::iscsi_target::handover::{InheritError, bytes_of};
use crate::limits::MAX_RETAINED_BYTES;

impl Answer {
    /// The answer. Digests of its data that are known are not: they are computed when it is sent again.
    pub(crate) fn hand_over(&self) -> handover::Answer {
        handover::Answer {
            itt: self.itt.0,
            lun: self.lun.0,
            cmd_sn: self.order.cmd_sn.0,
            immediate: self.order.immediate,
            stat_sn: self.stat_sn.0,
            status: self.status,
            status_qualifier: self.status_qualifier,
            sense: ByteBuf::from(self.sense.clone()),
            residual: residual_of(self.residual),
            read_residual: residual_of(self.bidi_read_residual),
            collapsed: self.collapsed,
            data: bytes_of(&self.data),
            data_len: self.data_len as u64,
            block_len: self.block_len,
            segment_len: self.cut.segment_len as u64,
            burst_len: self.cut.burst_len as u64,
            at_blocks: self.cut.at_blocks,
            unacknowledged_data_sn: self.unacknowledged.data_sn,
            unacknowledged_offset: self.unacknowledged.offset as u64,
            end_data_sn: self.end_data_sn,
            asks: self.asks,
            snack_tag: self.snack_tag,
        }
    }

    pub(crate) fn inherit(from: &handover::Answer) -> Result<Self, InheritError> {
        let bounded = |len: u64| {
            let len = usize::try_from(len).ok().filter(|len| *len <= MAX_RETAINED_BYTES);
            len.ok_or(InheritError::Malformed("a length of an answer"))
        };
        let (data_len, offset) = (bounded(from.data_len)?, bounded(from.unacknowledged_offset)?);
        let is_whole = from.data.is_empty() || from.data.len() == data_len;
        let is_cut = from.segment_len > 0 && from.burst_len > 0;
        if !is_whole || !is_cut || offset > data_len || (from.collapsed && from.end_data_sn == 0) {
            return Err(InheritError::Malformed("an answer"));
        }
        let cut = |len| usize::try_from(len).unwrap_or(usize::MAX);
        Ok(Self {
            itt: InitiatorTaskTag(from.itt),
            lun: LunField(from.lun),
            order: CommandOrder { cmd_sn: SerialNumber(from.cmd_sn), immediate: from.immediate },
            stat_sn: SerialNumber(from.stat_sn),
            status: from.status,
            status_qualifier: from.status_qualifier,
            sense: from.sense.to_vec(),
            residual: residual_from(from.residual),
            bidi_read_residual: residual_from(from.read_residual),
            collapsed: from.collapsed,
            data: if from.data.is_empty() { Payload::Empty } else { Payload::from(from.data.to_vec()) },
            data_len,
            digests: None,
            block_len: from.block_len,
            cut: Cut { segment_len: cut(from.segment_len), burst_len: cut(from.burst_len), at_blocks: from.at_blocks },
            unacknowledged: Mark { data_sn: from.unacknowledged_data_sn, offset },
            end_data_sn: from.end_data_sn,
            asks: from.asks,
            snack_tag: from.snack_tag,
        })
    }
}

fn residual_of(residual: Residual) -> handover::Residual {
    match residual {
        Residual::None => handover::Residual::None,
        Residual::Overflow(bytes) => handover::Residual::Overflow(bytes),
        Residual::Underflow(bytes) => handover::Residual::Underflow(bytes),
    }
}

fn residual_from(residual: handover::Residual) -> Residual {
    match residual {
        handover::Residual::None => Residual::None,
        handover::Residual::Overflow(bytes) => Residual::Overflow(bytes),
        handover::Residual::Underflow(bytes) => Residual::Underflow(bytes),
    }
}
