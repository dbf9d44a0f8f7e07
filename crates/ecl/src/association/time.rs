//! When an association wants to be called, and what it does then.

use std::time::Duration;

use lunette_session::Time;

use super::receiving::Outcomes;
use super::{Association, State};
use crate::close::{Close, CloseCode};
use crate::header::HEADER_LEN;
use crate::recovery::Timeout;

/// How long an association that was asked to finish waits for what it has sent to be acknowledged.
pub(super) const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a sender without credit asks whether it has some: the packet that told it may have been lost.
pub(super) const CREDIT_PROBE: Duration = Duration::from_millis(250);

impl<P: Copy> Association<P> {
    /// When [`fill`](Self::fill) is to be called, though nothing came and nothing was pushed.
    pub fn next_timeout(&self) -> Option<Time> {
        let deadline = if let State::Finishing(deadline) = self.state { deadline } else { None };
        if self.why_over().is_some() {
            return None;
        }
        // What cannot be sent now is due when something comes or leaves.
        let mtu =
            self.mtu.next_timeout().filter(|_| self.address.is_validated() && self.has_room(self.mtu.datagram_len()));
        let path = [mtu, self.address.next_timeout()];
        let recovery = self.recovery.next_timeout().filter(|_| self.has_room(HEADER_LEN));
        let own = [recovery, self.paced_until, self.asks_credit_at, deadline];
        path.into_iter().chain(own).flatten().min()
    }

    /// Does what is due before packets are built.
    pub(super) fn time_has_come(&mut self, now: Time) {
        if self.why_over().is_some() {
            return;
        }
        let Self { recovery, outgoing, mtu, .. } = self;
        let mut outcomes = Outcomes { outgoing, mtu, change: None, now };
        let timeout = recovery.on_timeout(now, &mut |outcome| outcomes.note(outcome));
        let change = outcomes.change;
        self.path_changed(change);
        match timeout {
            Timeout::Nothing => {}
            Timeout::Probe if self.leaves_soon && self.recovery.is_unheard(now) => {
                return self.close(CloseCode::TIMEOUT, "the peer does not answer, and this end leaves");
            }
            Timeout::Probe => self.probes = true,
            Timeout::Silent => {
                let why = Close::new(CloseCode::TIMEOUT, "the peer does not answer");
                return self.lost(why);
            }
        }
        if self.address.on_timeout(now) {
            self.recovery.on_path_change(now);
        }
        self.ask_for_credit(now);
        if let State::Finishing(Some(deadline)) = self.state
            && deadline <= now
        {
            self.close(CloseCode::TIMEOUT, "what was sent last was not acknowledged");
        }
    }

    /// A sender that only waits for credit asks for it now and then.
    fn ask_for_credit(&mut self, now: Time) {
        if !self.outgoing.waits_for_credit(self.peer_credit) {
            self.asks_credit_at = None;
            return;
        }
        let due = *self.asks_credit_at.get_or_insert(now + CREDIT_PROBE);
        if due <= now {
            self.probes = true;
            self.asks_credit_at = Some(now + CREDIT_PROBE);
        }
    }

    /// An association that was asked to finish has nothing left to send.
    pub(super) fn finish_if_empty(&mut self, now: Time) {
        if let State::Finishing(deadline) = &mut self.state {
            deadline.get_or_insert(now + FINISH_TIMEOUT);
            if self.outgoing.is_empty() {
                self.close(CloseCode::FINISHED, "");
            }
        }
    }
}
