//! The length of data segments that the initiator may send, while another one is being declared.

use lunette_pdu::SerialNumber;

/// The longest data segment that we take.
pub(super) struct ReceiveLimit {
    /// The length that is in force.
    pub(super) current: u32,
    /// A shorter one comes into force when the initiator has acknowledged that status: until then, PDUs that it sent
    /// before it knew are on their way.
    shorter: Option<(SerialNumber, u32)>,
}

impl ReceiveLimit {
    pub(super) fn new(current: u32) -> Self {
        Self { current, shorter: None }
    }

    /// We have declared `declared` in the response with that StatSN.
    pub(super) fn declare(&mut self, declared: u32, stat_sn: SerialNumber) {
        self.shorter = (declared < self.current).then_some((stat_sn, declared));
        self.current = self.current.max(declared);
    }

    /// The initiator has sent a PDU with that ExpStatSN.
    pub(super) fn acknowledged(&mut self, exp_stat_sn: SerialNumber) {
        if let Some((_, shorter)) = self.shorter.take_if(|(stat_sn, _)| exp_stat_sn.is_after(*stat_sn)) {
            self.current = shorter;
        }
    }
}
