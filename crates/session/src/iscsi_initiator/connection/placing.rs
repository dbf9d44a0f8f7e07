//! Data that is placed ahead of its turn, by a transport whose packets may overtake each other.
//!
//! Such a transport delivers PDUs in order, as all of this crate expects, but the bytes of a Data-In PDU go to their
//! place as soon as they come (RFC 5041 calls the two delivery and placement).

use lunette_pdu::{BHS_LEN, Bhs, DataIn, TargetPdu};

use super::Connection;
use crate::Time;
use crate::iscsi_initiator::event::TaskTag;
use crate::iscsi_initiator::expect::Expect;
use crate::iscsi_initiator::shared::Shared;

/// Where bytes were placed ahead of their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    task: TaskTag,
    /// In the data of the task.
    offset: u32,
}

impl Connection {
    pub(in crate::iscsi_initiator) fn place_early<'a>(
        &self,
        shared: &'a mut Shared,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Placement, &'a mut [u8])> {
        let TargetPdu::DataIn(pdu) = TargetPdu::parse(&Bhs::from(*bhs)).ok()? else { return None };
        let offset = early_offset(&pdu, pdu_offset, len)?;
        let task = TaskTag::from_itt(pdu.itt);
        let found = shared.tasks.get_mut(task).filter(|task| task.cid == self.cid)?;
        let place = found.place(offset, u32::try_from(len).ok()?);
        (place.len() == len).then_some((Placement { task, offset }, place))
    }

    pub(in crate::iscsi_initiator) fn placed(
        &mut self,
        placement: Placement,
        skipped: usize,
        len: usize,
        now: Time,
    ) -> bool {
        self.heard(now);
        let (task, offset) = match &self.expect {
            Expect::Data(pdu) | Expect::Recoverable(pdu) => (TaskTag::from_itt(pdu.itt), pdu.buffer_offset),
            // Data of a task that has ended is dropped.
            Expect::Nothing => return self.receiver.skip_placed(len),
            Expect::Segment(_) => return false,
        };
        let due = offset as usize + self.receiver.segment_filled();
        let is_there = task == placement.task && due == placement.offset as usize + skipped;
        is_there && self.receiver.skip_placed(len)
    }
}

/// Where bytes of a PDU belong in the data of its task. A pad belongs nowhere.
fn early_offset(pdu: &DataIn, pdu_offset: u32, len: usize) -> Option<u32> {
    let end = usize::try_from(pdu_offset).ok()?.checked_add(len)?;
    (end <= pdu.data_segment_len).then(|| pdu.buffer_offset.checked_add(pdu_offset))?
}
