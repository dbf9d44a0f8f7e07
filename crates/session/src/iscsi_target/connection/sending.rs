//! Bytes out: what the connection has to send, and how much it keeps.

use lunette_buffer::PayloadRef;

use super::{Connection, Phase};
use crate::Traffic;
use crate::keys::Digest;
use crate::limits::{MAX_DISCOVERY_OUTBOX_BYTES, MAX_DISCOVERY_OUTBOX_PDUS, MAX_OUTBOX_OWNED_BYTES, MAX_OUTBOX_PDUS};

impl Connection {
    /// What is ready to be sent, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.sender.outbox.slices()
    }

    /// The same, for a driver that has given data in files: see [`sends_files`](Self::sends_files).
    pub fn pieces(&self) -> impl Iterator<Item = PayloadRef<'_>> {
        self.sender.outbox.pieces()
    }

    /// Whether [`Payload::File`](lunette_buffer::Payload::File) may be used: the bytes are not looked at, now (a digest,
    /// markers) or later (to send them again).
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

    /// Whether there is anything to send.
    pub fn has_output(&self) -> bool {
        !self.sender.outbox.is_empty()
    }

    /// Bytes of data segments that wait to be sent: what a peer that does not read keeps from others.
    pub fn queued_bytes(&self) -> usize {
        self.sender.outbox.segment_bytes()
    }

    /// The same, and bytes that were sent and may have to be sent again: at recovery level 1 and above, data is kept until
    /// the initiator acknowledges it.
    pub fn kept_bytes(&self) -> usize {
        self.sender.kept_bytes()
    }

    /// Bytes of the pool that answers keep which wait for data that the initiator still has to send (RFC 7143 section 11.4.2).
    pub fn draining_bytes(&mut self) -> usize {
        if let Phase::FullFeature(full) = &mut self.phase { full.draining_bytes() } else { 0 }
    }

    /// Answers that waited so and have been queued since this was asked last: bytes of data segments, and of the pool.
    pub fn take_drained(&mut self) -> Vec<(usize, usize)> {
        if let Phase::FullFeature(full) = &mut self.phase { full.take_drained() } else { Vec::new() }
    }

    /// Bytes of the pool that the answers of a suspended connection keep until they are taken over. A buffer
    /// counts as a whole, however few of its bytes are wanted.
    pub fn suspended_bytes(&self) -> usize {
        let Phase::Suspended(full) = &self.phase else { return 0 };
        full.kept_bytes() + self.sender.pooled_bytes()
    }

    /// What has been moved since this was asked last.
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
