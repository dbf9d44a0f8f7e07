//! The end: asked for, announced by the target, or come by itself.

use std::collections::VecDeque;

use lunette_pdu::{AsyncMessage, SerialNumber};

use super::{Connection, Phase};
use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::event::{Event, TaskTag};
use crate::iscsi_initiator::expect::Expect;
use crate::iscsi_initiator::shared::Shared;
use crate::markers::MarkedOutbox;

impl Connection {
    /// No more commands go over the connection; when those under way have ended, it logs out.
    pub(in crate::iscsi_initiator) fn leave(&mut self, shared: &mut Shared) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.leave();
            self.log_out_if_idle(shared);
        }
    }

    #[inline]
    pub(super) fn log_out_if_idle(&mut self, shared: &mut Shared) {
        let Some((full, mut context)) = self.split(shared) else { return };
        if full.log_out_if_idle(&mut context) {
            self.expect_logout();
        }
    }

    /// Keeps the connection from leaving, for the session has no other one any more.
    pub(in crate::iscsi_initiator) fn stay(&mut self) {
        if let Phase::FullFeature(full) = &mut self.phase {
            full.stay();
        }
    }

    /// The target says over another connection that it has dropped this one.
    pub(in crate::iscsi_initiator) fn dropped(&mut self, message: &AsyncMessage) -> VecDeque<Event> {
        let Phase::FullFeature(full) = &mut self.phase else { return VecDeque::new() };
        full.drop_announced(message);
        self.close(SessionError::Dropped);
        std::mem::take(&mut self.events)
    }

    /// Time2Wait and Time2Retain in seconds, when the target has announced the end of the connection.
    pub(in crate::iscsi_initiator) fn announced_times(&self) -> Option<(u32, u32)> {
        self.announced
    }

    pub(in crate::iscsi_initiator) fn disconnected(&mut self) {
        match &self.phase {
            Phase::Login(_) => self.close(SessionError::Disconnected),
            Phase::FullFeature(full) => self.close(full.lost()),
            Phase::Closed => {}
        }
    }

    pub(in crate::iscsi_initiator) fn close(&mut self, why: SessionError) {
        if !self.is_closed() {
            self.end(why);
        }
    }

    pub(super) fn end(&mut self, why: SessionError) {
        self.over();
        self.events.push_back(Event::Closed { cid: self.cid, why });
    }

    pub(super) fn over(&mut self) {
        if let Phase::FullFeature(full) = &self.phase {
            self.announced = full.announced();
        }
        if let Expect::Recoverable(pdu) = self.expect {
            self.cut_short = Some(pdu);
        }
        self.phase = Phase::Closed;
        self.deadline = None;
        self.expect = Expect::Nothing;
        self.sender.stop_data();
    }

    /// The connection is lost: nothing more is sent on it, and what came in part did not come. Gives the next StatSN
    /// that was expected.
    pub(in crate::iscsi_initiator) fn clear(&mut self, shared: &mut Shared) -> SerialNumber {
        self.sender.outbox = MarkedOutbox::default();
        if let Some(pdu) = self.cut_short.take()
            && let Some(task) = shared.tasks.get_mut(TaskTag::from_itt(pdu.itt))
        {
            // As good as damaged. An error would be one of the target, which is gone.
            let _ = task.data_in_damaged(&pdu);
        }
        self.sender.exp_stat_sn()
    }
}
