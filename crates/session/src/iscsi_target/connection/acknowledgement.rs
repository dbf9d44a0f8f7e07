//! The acknowledgements of the initiator, and the PDUs that are kept until then.

use lunette_pdu::SerialNumber;

use super::{Connection, ConnectionMut, Phase};
use crate::Time;
use crate::iscsi_target::event::CloseReason;
use crate::limits::ACKNOWLEDGE_TIMEOUT;

impl ConnectionMut<'_> {
    /// The status number that the initiator has to acknowledge before it has received everything that is sent by now;
    /// `None` when it has. It is asked to answer at once.
    pub(crate) fn ask_acknowledgement(&mut self) -> Option<SerialNumber> {
        let (full, mut cx) = self.full()?;
        let due = cx.sender.stat_sn();
        if cx.sender.acknowledged() == due {
            return None;
        }
        full.ping(&mut cx);
        Some(due)
    }

    /// The initiator has been [asked](Self::ask_acknowledgement) to acknowledge and has had time enough. The connection
    /// ends, unless something still waits to be sent on it: then the initiator may not have been asked yet, and whether
    /// it reads is looked at by itself.
    pub(crate) fn acknowledgement_overdue(&mut self) {
        if self.sender.outbox.is_empty() {
            self.close(CloseReason::NotAcknowledged);
        }
    }

    /// Others wait for buffers, and this connection keeps some to be able to send again what is in them. The initiator
    /// is asked to acknowledge. What it does not acknowledge in time is forgotten, and what it could not acknowledge,
    /// because nothing is read from it, at once. True when there is something to send, or when buffers came free.
    pub fn make_room(&mut self, now: Time) -> bool {
        let wants_input = self.wants_input();
        let is_asked = wants_input && self.room_due.is_some();
        let Some((full, mut cx)) = self.full() else { return false };
        if cx.sender.retained_bytes() == 0 || is_asked {
            return false;
        }
        let sent = cx.sender.stat_sn();
        if wants_input {
            full.ping(&mut cx);
            self.room_due = Some((now + ACKNOWLEDGE_TIMEOUT, sent));
        } else if let Some(retained) = cx.sender.retained() {
            retained.forget_data_before(sent);
        }
        true
    }
}

impl Connection {
    /// Answers that were sent, and that the initiator had not received when it last told.
    pub fn unacknowledged_answers(&self) -> usize {
        let answers = self.sender.stat_sn().distance_from(self.sender.acknowledged());
        usize::try_from(answers).unwrap_or_default()
    }

    /// Commands that the initiator waits for, as far as one can tell here: numbered tasks, and those whose answers it
    /// had not received when it last told.
    pub(crate) fn awaited_commands(&self) -> u32 {
        let (Phase::FullFeature(full) | Phase::Suspended(full)) = &self.phase else { return 0 };
        let answers = self.sender.stat_sn().distance_from(self.sender.acknowledged());
        full.numbered_tasks().saturating_add_signed(answers)
    }

    /// Whether the initiator has received everything before that status number. A connection that is over will hear of
    /// nothing more.
    pub(crate) fn has_acknowledged(&self, stat_sn: SerialNumber) -> bool {
        !matches!(self.phase, Phase::FullFeature(_)) || !stat_sn.is_after(self.sender.acknowledged())
    }
}
