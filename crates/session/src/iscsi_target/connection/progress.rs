//! Data phases that make no progress end, whatever else the initiator says meanwhile: what they hold is taken back.
//!
//! Progress is bytes, not time: at every check, [`Timers::progress`](crate::Timers) after the one before,
//! [`MIN_PROGRESS_BYTES`] have moved, or all that was to move. A slow line makes progress; an initiator that answers
//! pings and nothing else does not.

use super::{ConnectionMut, Phase};
use crate::Time;
use crate::iscsi_target::event::CloseReason;
use crate::limits::MIN_PROGRESS_BYTES;

/// The movement since the last check.
#[derive(Default)]
pub(super) struct Progress {
    /// The next check. There is none while nothing could stand still.
    due: Option<Time>,
    /// Bytes of Data-Out.
    received: usize,
    /// Bytes that the socket has taken or, of a transport that keeps PDUs apart, that the peer has acknowledged.
    sent: usize,
    /// Bytes that waited for the socket at the last check.
    waited: usize,
}

impl Progress {
    pub(super) fn next(&self) -> Option<Time> {
        self.due
    }

    /// Nothing could move up to now: the next check, if there is one, is at that time, and for what moves until then.
    pub(super) fn put_off(&mut self, at: Time) {
        if self.due.is_some() {
            *self = Self { due: Some(at), ..Self::default() };
        }
    }

    /// Bytes of Data-Out have come.
    pub(super) fn received(&mut self, len: usize) {
        self.received += len;
    }

    /// The socket has taken bytes, or the peer has acknowledged them.
    pub(super) fn sent(&mut self, len: usize) {
        self.sent += len;
    }

    /// The socket takes nothing, or next to nothing, though bytes wait for it. `waits`: bytes that do now.
    fn is_blocked(&mut self, waits: usize) -> bool {
        let expected = std::mem::replace(&mut self.waited, waits).min(MIN_PROGRESS_BYTES);
        std::mem::take(&mut self.sent) < expected
    }
}

impl ConnectionMut<'_> {
    /// Bytes have come: from now on it is looked whether things go on.
    #[inline]
    pub(super) fn watch_progress(&mut self, now: Time) {
        if self.progress.due.is_none() {
            self.begin_to_watch(now);
        }
    }

    #[cold]
    fn begin_to_watch(&mut self, now: Time) {
        if matches!(self.phase, Phase::FullFeature(_)) {
            self.progress = Progress { due: Some(now + self.timers.progress), ..Progress::default() };
        }
    }

    pub(super) fn check_progress(&mut self, now: Time) {
        if self.progress.due.take_if(|at| *at <= now).is_none() {
            return;
        }
        let takes_data = self.wants_input();
        if !matches!(self.phase, Phase::FullFeature(_)) {
            return;
        }
        let unsent = self.sender.unsent_bytes();
        if self.progress.is_blocked(unsent) {
            return self.close(CloseReason::NotReading);
        }
        let is_slow = std::mem::take(&mut self.progress.received) < MIN_PROGRESS_BYTES;
        let Some((full, mut cx)) = self.full() else { return };
        // While nothing is read from the initiator, it is not the initiator that stands still.
        if full.end_stalled(takes_data && is_slow, &mut cx) {
            return self.close(CloseReason::DataTimeout);
        }
        if full.has_any_task() || !cx.sender.outbox.is_empty() || cx.sender.unsent_bytes() > 0 {
            self.progress.due = Some(now + self.timers.progress);
        }
    }
}
