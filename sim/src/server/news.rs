//! What the target says and does of its own accord.

use std::time::Duration;

use super::{SENSE, Server};
use crate::env::{Env, Happening};
use crate::request::lun;
use crate::scenario::UNITS;
use crate::wire::{Network, WireId};

/// The time that the initiator has to begin a negotiation.
const NEGOTIATION_GRACE: Duration = Duration::from_secs(5);

impl Server {
    /// Has something to say in a while.
    pub(crate) fn plan_news(&mut self, env: &mut Env) {
        if self.news > 0 {
            self.news -= 1;
            let at = env.now + env.dice.micros(0, env.scenario.load.news_pause_us);
            env.enter(at, Happening::News);
        }
    }

    /// Says something on one of the connections, or drops it.
    pub(crate) fn tell_news(&mut self, net: &mut Network, env: &mut Env) {
        self.plan_news(env);
        let served: Vec<WireId> = self
            .connections
            .iter()
            .filter(|(_, conn)| conn.protocol.session().is_some() && !conn.parked && !conn.closing)
            .map(|(id, _)| *id)
            .collect();
        let at = env.dice.place(served.len().max(1));
        let Some(id) = served.get(at).copied() else { return };
        let Some(conn) = self.connections.get_mut(&id) else { return };
        conn.touched = true;
        match env.dice.below(6) {
            0 => conn.protocol.request_logout(Duration::from_secs(env.dice.between(1, 20)), env.now),
            1 | 2 => {
                let len = env.dice.pick(&[512, 1000, 8192, 100_000]);
                conn.protocol.renegotiate(len, NEGOTIATION_GRACE);
            }
            3 => conn.protocol.scsi_event(lun(env.dice.place(UNITS)), &SENSE),
            4 => conn.protocol.drop_session(),
            _ => {
                env.note(|| format!("wire {id} is dropped by the target"));
                env.tally.happening("connection dropped");
                self.lose(id, net, env);
            }
        }
    }
}
