//! The way out of a connection at a standstill, as a value.

use lunette_handover as handover;
use lunette_handover::ByteBuf;
use lunette_pdu::SerialNumber;

use super::Sender;
use crate::iscsi_target::handover::InheritError;
use crate::iscsi_target::transport::retained::Retained;

impl Sender {
    /// Fills in what is to be sent, or to be sent again.
    pub(crate) fn hand_over(&self, into: &mut handover::Connection) {
        into.stat_sn = self.stat_sn.0;
        into.acknowledged = self.acknowledged.0;
        into.unsent = ByteBuf::from(self.outbox.slices().flatten().copied().collect::<Vec<u8>>());
        into.retained = self.retained.as_ref().map_or_else(Vec::new, |retained| retained.hand_over());
    }

    pub(crate) fn inherit(from: &handover::Connection, retains: bool) -> Result<Self, InheritError> {
        let stat_sn = SerialNumber(from.stat_sn);
        let mut sender = Self::new(stat_sn);
        sender.acknowledged = SerialNumber(from.acknowledged);
        sender.outbox.start_markers(None);
        sender.outbox.push_left(from.unsent.to_vec());
        if retains {
            sender.retained = Some(Box::new(Retained::inherit(stat_sn, &from.retained)?));
        }
        Ok(sender)
    }
}
