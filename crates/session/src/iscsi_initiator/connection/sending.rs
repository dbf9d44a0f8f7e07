//! The bytes that a connection sends.

use super::{Connection, Phase};
use crate::iscsi_initiator::shared::Shared;
use crate::outbox::Pieces;
use crate::{OutgoingPdu, Traffic};

impl Connection {
    pub(in crate::iscsi_initiator) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.sender.outbox.slices()
    }

    pub(in crate::iscsi_initiator) fn pieces(&self) -> Pieces<'_> {
        self.sender.outbox.pieces()
    }

    pub(in crate::iscsi_initiator) fn sent(&mut self, shared: &mut Shared, len: usize) {
        self.sender.outbox.sent(len);
        self.fill(shared);
    }

    pub(in crate::iscsi_initiator) fn take_pdu(&mut self, shared: &mut Shared) -> Option<OutgoingPdu> {
        let pdu = self.sender.outbox.take_pdu()?;
        self.fill(shared);
        Some(pdu)
    }

    pub(in crate::iscsi_initiator) fn take_traffic(&mut self) -> Traffic {
        Traffic { sent_pdus: self.sender.outbox.take_queued_pdus(), ..self.receiver.take_traffic() }
    }

    pub(in crate::iscsi_initiator) fn has_output(&self) -> bool {
        !self.sender.outbox.is_empty()
    }

    /// Cuts waiting data to PDUs, as far as there is room.
    #[inline]
    pub(in crate::iscsi_initiator) fn fill(&mut self, shared: &mut Shared) {
        if self.sender.has_data()
            && let Phase::FullFeature(full) = &self.phase
        {
            self.sender.fill(&mut shared.tasks, full.parameters().send_data_segment_len);
        }
    }

    /// The end of the session was asked for: no more data follows.
    pub(in crate::iscsi_initiator) fn stop_data(&mut self) {
        self.sender.stop_data();
    }
}
