//! Messages to the initiator that are no answer to a request (RFC 7143 section 11.9), and the logout.

use std::time::Duration;

use lunette_pdu::{LogoutResponseCode, LunField};

use super::ConnectionMut;
use crate::Time;
use crate::iscsi_target::event::CloseReason;

impl ConnectionMut<'_> {
    /// Asks the initiator to log out within `grace`; ends the connection when it does not. To ask again changes
    /// nothing.
    pub(crate) fn request_logout(&mut self, grace: Duration, now: Time) {
        if matches!(self.deadline, Some((_, CloseReason::LogoutTimeout))) {
            return;
        }
        if let Some((_, mut cx)) = self.full() {
            cx.request_logout(grace);
            self.deadline = Some((now + grace, CloseReason::LogoutTimeout));
        }
    }

    /// Declares another MaxRecvDataSegmentLength: asks the initiator for a negotiation within `grace` (RFC 7143 section
    /// 11.9.1, event 4). It holds when the initiator has begun one, now or later. To ask again for the same changes
    /// nothing. False then.
    pub(crate) fn renegotiate(&mut self, recv_data_segment_len: u32, grace: Duration) -> bool {
        self.full().is_some_and(|(full, mut cx)| full.renegotiate(recv_data_segment_len, grace, &mut cx))
    }

    /// Tells the initiator at once of a unit attention on a logical unit, with its `sense` data (RFC 7143 section
    /// 11.9). The next command finds it too, so a peer that does not read is not told.
    pub(crate) fn scsi_event(&mut self, lun: LunField, sense: &[u8]) {
        if self.outbox_is_full() {
            return;
        }
        if let Some((_, mut cx)) = self.full() {
            cx.scsi_event(lun, sense);
        }
    }

    /// Answers a logout: the connection that it names has ended, or there is none.
    pub(crate) fn logout_done(&mut self, response: LogoutResponseCode) {
        if let Some((full, mut cx)) = self.full() {
            full.logout_done(response, &mut cx);
            self.close_if_logged_out();
        }
    }

    /// Ends the connection because another one of its session was lost (RFC 7143 section 7.1.4.4); tells the initiator
    /// so.
    pub(crate) fn drop_session(&mut self) {
        if let Some((full, mut cx)) = self.full() {
            full.drop_session(&mut cx);
        }
        self.close(CloseReason::SessionLost);
    }
}
