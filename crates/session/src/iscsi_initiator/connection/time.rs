//! The meaning of the target's silence, and the reaction to it.

use super::{Connection, Phase};
use crate::Time;
use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::shared::Shared;

impl Connection {
    pub(in crate::iscsi_initiator) fn next_timeout(&self) -> Option<Time> {
        let resend = self.full_feature().and_then(|full| full.resend_timeout(self.timers.resend));
        self.patience().into_iter().chain(resend).min()
    }

    /// When the silence of the target means something.
    fn patience(&self) -> Option<Time> {
        let silence = match &self.phase {
            Phase::FullFeature(_) if self.deadline.is_none() => Some(self.last_received + self.timers.ping_after),
            _ => None,
        };
        silence.or(self.deadline.as_ref().map(|(at, _)| *at))
    }

    pub(in crate::iscsi_initiator) fn time_has_come(&mut self, shared: &mut Shared, now: Time) {
        if let Err(error) = self.ask_again(shared, now) {
            return self.close(error);
        }
        if self.patience().is_none_or(|at| at > now) {
            return;
        }
        if let Some((_, why)) = self.deadline.take() {
            self.close(why);
        } else if let Some((full, mut context)) = self.split(shared) {
            full.keep_alive(&mut context);
            self.deadline = Some((now + self.timers.ping_answer, SessionError::PingTimeout));
        }
    }

    /// Asks again for what was lost and has not come in time.
    fn ask_again(&mut self, shared: &mut Shared, now: Time) -> Result<(), SessionError> {
        match self.split(shared) {
            Some((full, mut context)) if full.recovers() => {
                let heard = std::mem::replace(&mut context.now, now);
                full.ask_again(heard, &mut context)
            }
            _ => Ok(()),
        }
    }

    /// Whether the target still has this connection is not certain: it has to give a sign of life.
    pub(in crate::iscsi_initiator) fn doubt(&mut self, shared: &mut Shared, now: Time) {
        let Some((full, mut context)) = self.split(shared) else { return };
        full.keep_alive(&mut context);
        self.deadline.get_or_insert((now + self.timers.ping_answer, SessionError::PingTimeout));
    }

    /// A logout is out: it has the time of a ping to be answered. The target was heard at most `ping_after` ago.
    pub(in crate::iscsi_initiator) fn expect_logout(&mut self) {
        let silence = self.timers.ping_after + self.timers.ping_answer;
        self.deadline = Some((self.last_received + silence, SessionError::PingTimeout));
    }
}
