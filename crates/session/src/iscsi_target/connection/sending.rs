//! Bytes out: what the connection has to send, and how much it keeps.

use lunette_buffer::PayloadRef;

use super::{Connection, Phase};
use crate::keys::Digest;
use crate::limits::{MAX_DISCOVERY_OUTBOX_BYTES, MAX_DISCOVERY_OUTBOX_PDUS, MAX_OUTBOX_OWNED_BYTES, MAX_OUTBOX_PDUS};
use crate::{OutgoingPdu, Traffic, Unacknowledged};

impl Connection {
    /// The bytes that are ready to be sent, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.sender.outbox.slices()
    }

    /// The pieces to be sent, for a driver that has given data in files: see [`sends_files`](Self::sends_files).
    pub fn pieces(&self) -> impl Iterator<Item = PayloadRef<'_>> {
        self.sender.outbox.pieces()
    }

    /// Whether [`Payload::File`](lunette_buffer::Payload::File) may be used: the bytes are not looked at, now (a
    /// digest, markers) or later (to send them again).
    pub fn sends_files(&self) -> bool {
        let Phase::FullFeature(full) = &self.phase else { return false };
        full.parameters().data_digest == Digest::None
            && full.parameters().error_recovery_level == 0
            && !self.sender.outbox.has_markers()
    }

    /// The first `len` of these bytes are on their way.
    pub fn sent(&mut self, len: usize) {
        self.sender.outbox.sent(len);
        self.progress.sent(len);
    }

    /// Takes the first PDU that is ready to be sent, for a transport that keeps PDUs apart: instead of
    /// [`pieces`](Self::pieces) and [`sent`](Self::sent), on a connection without digests and markers.
    pub fn take_pdu(&mut self) -> Option<OutgoingPdu> {
        self.sender.take_pdu()
    }

    /// Notes how much such a transport keeps of the PDUs that it has taken, because the peer has not acknowledged it.
    /// It counts as not sent.
    pub fn set_unacknowledged(&mut self, unacknowledged: Unacknowledged) {
        let acknowledged_bytes = self.sender.set_unacknowledged(unacknowledged);
        self.progress.sent(acknowledged_bytes);
    }

    /// Whether there is anything to send.
    pub fn has_output(&self) -> bool {
        !self.sender.outbox.is_empty()
    }

    /// Bytes of the pool that answers hold: until they are sent or, at recovery level 1 and above, acknowledged. A
    /// buffer counts as a whole, however few of its bytes are wanted.
    pub fn answer_bytes(&mut self) -> usize {
        match &mut self.phase {
            Phase::FullFeature(full) => self.sender.held_bytes() + full.draining_bytes(),
            Phase::Suspended(full) => full.kept_bytes() + self.sender.pooled_bytes(),
            Phase::Closed => self.sender.held_bytes(),
        }
    }

    /// The traffic since the last call.
    pub fn take_traffic(&mut self) -> Traffic {
        Traffic { sent_pdus: self.sender.outbox.take_queued_pdus(), ..self.receiver.take_traffic() }
    }

    /// A peer that asks and does not read must not make us remember ever more answers.
    #[inline]
    pub(super) fn outbox_is_full(&self) -> bool {
        let outbox = &self.sender.outbox;
        // Looked at for each PDU: the smaller bounds first, which need no look at the session.
        if outbox.pdus() <= MAX_DISCOVERY_OUTBOX_PDUS && outbox.owned_bytes() <= MAX_DISCOVERY_OUTBOX_BYTES {
            return false;
        }
        let (pdus, bytes) = match &self.phase {
            Phase::FullFeature(full) if full.is_discovery() => (MAX_DISCOVERY_OUTBOX_PDUS, MAX_DISCOVERY_OUTBOX_BYTES),
            _ => (MAX_OUTBOX_PDUS, MAX_OUTBOX_OWNED_BYTES),
        };
        outbox.pdus() > pdus || outbox.owned_bytes() > bytes
    }
}
