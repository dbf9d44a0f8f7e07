//! Recovery level 2: connections that are lost, or that could not be made, are made again while the session lives.

use lunette_session::Time;
use lunette_session::initiator::Session;

use super::{Link, Live, Phase};
use crate::engine::Env;
use crate::engine::dial::dial;
use crate::engine::judge::backoff;
use crate::limits::{FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE};

/// What a session needs to keep its number of connections.
pub(super) struct Keeper {
    wanted: usize,
    /// In a row.
    failures: u32,
    /// No attempt before.
    pause: Option<Time>,
}

impl Keeper {
    pub(super) fn new(wanted: u32) -> Self {
        Self { wanted: wanted as usize, failures: 0, pause: None }
    }

    pub(super) fn succeeded(&mut self) {
        (self.failures, self.pause) = (0, None);
    }

    pub(super) fn failed(&mut self, now: Time) {
        self.pause = Some(now + backoff(FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.pause
    }

    /// How many connections to make now. One is enough to save a session that has none. Otherwise a lost one is replaced when
    /// its tasks have been taken over: until then it may count at the target.
    fn due(&mut self, session: &Session, made: usize, joining: usize, now: Time) -> usize {
        self.pause.take_if(|at| *at <= now);
        if self.pause.is_some() {
            return 0;
        }
        if session.wants_connection() {
            return usize::from(joining == 0);
        }
        if session.is_recovering() { 0 } else { self.wanted.saturating_sub(made + joining) }
    }
}

impl Link {
    /// Makes the connections that the session lacks, and notices when it has waited for one in vain.
    pub(super) fn keep_connections(&mut self, env: &mut Env<'_, '_>) {
        let Phase::Live(live) = &mut self.phase else { return };
        let made = live.connections();
        let Live { session, wires, joining, keeper: Some(keeper), .. } = &mut **live else { return };
        if let Some(why) = session.why_over().filter(|_| wires.is_empty()).cloned() {
            return self.lost(why, env);
        }
        let due = if self.closing.is_none() { keeper.due(session, made, *joining as usize, env.now) } else { 0 };
        *joining += due as u32;
        for _ in 0..due {
            dial(env.queue, self.key, self.attempt, self.portal.clone(), self.options.connect_timeout);
        }
    }
}
