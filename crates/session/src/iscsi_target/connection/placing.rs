//! Data that is placed ahead of its turn, by a transport whose packets may overtake each other.
//!
//! Such a transport delivers PDUs in order, as all of this crate expects, but the bytes of a Data-Out PDU go to their
//! place as soon as they come (RFC 5041 calls the two delivery and placement).

use lunette_pdu::{BHS_LEN, Bhs, DataOut, InitiatorPdu};

use super::{Connection, Phase};
use crate::Time;
use crate::iscsi_target::event::TaskTag;
use crate::iscsi_target::expect::Expect;

/// Where bytes were placed ahead of their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    task: TaskTag,
    /// In the data of the task.
    offset: u32,
}

impl Connection {
    /// The place of `len` bytes that stand `pdu_offset` bytes behind the basic header segment of a PDU that is not due
    /// yet. `None`: they have no place now. The caller keeps them until their turn.
    pub fn place_early(&mut self, bhs: &[u8; BHS_LEN], pdu_offset: u32, len: usize) -> Option<(Placement, &mut [u8])> {
        let Phase::FullFeature(full) = &mut self.phase else { return None };
        let InitiatorPdu::DataOut(pdu) = InitiatorPdu::parse(&Bhs::from(*bhs)).ok()? else { return None };
        let offset = early_offset(&pdu, pdu_offset, len)?;
        let (task, place) = full.place_early(&pdu, offset, len)?;
        Some((Placement { task, offset }, place))
    }

    /// The next `len` bytes of the stream were placed, `skipped` bytes behind the front of what
    /// [`place_early`](Self::place_early) gave. False when they are due elsewhere: then the peer has sent two headers
    /// for them, and the connection has to end.
    pub fn placed(&mut self, placement: Placement, skipped: usize, len: usize, now: Time) -> bool {
        self.heard(now);
        self.progress.received(len);
        let is_there = match self.expect {
            Expect::Data { task, offset, .. } => {
                let due = offset as usize + self.receiver.segment_filled();
                task == placement.task && due == placement.offset as usize + skipped
            }
            // The task has ended meanwhile, and its data is dropped.
            Expect::Nothing | Expect::Lost { .. } | Expect::Kept => true,
            Expect::Text(_) | Expect::Ping(_) | Expect::Command(_) => false,
        };
        is_there && self.held.is_empty() && self.receiver.skip_placed(len)
    }

    /// Whether bytes are [held](Self::hold): nothing else is due before them.
    pub fn holds_bytes(&self) -> bool {
        !self.held.is_empty()
    }
}

/// Where bytes of a PDU belong in the data of its task. A pad belongs nowhere.
fn early_offset(pdu: &DataOut, pdu_offset: u32, len: usize) -> Option<u32> {
    let end = usize::try_from(pdu_offset).ok()?.checked_add(len)?;
    (end <= pdu.data_segment_len).then(|| pdu.buffer_offset.checked_add(pdu_offset))?
}
