//! A host that may only read: it sends everything, and nothing of it changes what others see.
//!
//! Its writes are those of the load; the oracle says that none of them runs. All other commands are drawn here. What
//! they would change shows in what other initiators are answered, and the rule of the device says which of them must
//! not be answered GOOD.

use lunette_device::is_refused_to_readers;
use lunette_initiator::{Outcome, Request, Session};
use lunette_scsi::{Cdb, Status};

use super::load::attribute;
use super::{Answer, Clients};
use crate::env::Env;
use crate::scenario::UNITS;
use crate::server::lun;

/// Draws, at most, until a command is one that is refused.
const DRAWS: usize = 64;

impl Clients {
    /// Sends a command that would change something.
    pub(super) fn meddle(&mut self, session: &Session, env: &mut Env) {
        let Some(bytes) = (0..DRAWS).map(|_| draw(env)).find(|bytes| is_refused_to_readers(&Cdb::from(*bytes))) else {
            return;
        };
        let mut request = Request::new(lun(env.dice.place(UNITS) as u16), bytes);
        request.attribute = attribute(env);
        let pending = session.execute(request);
        self.ask(None, async move { Answer::Refused(bytes.into(), pending.await) });
    }

    pub(super) fn refused(cdb: &Cdb, outcome: &Outcome, env: &mut Env) {
        env.tally.happening("commands of a host that may only read");
        if outcome.result.as_ref().is_ok_and(|reply| reply.status == Status::GOOD) {
            env.fail(format!("a host that may only read is answered GOOD to {cdb:?}"));
        }
    }
}

/// Any operation code, with few bits set behind it.
fn draw(env: &mut Env) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = env.dice.below(256) as u8;
    cdb[1] = env.dice.below(32) as u8;
    for _ in 0..env.dice.below(3) {
        cdb[2 + env.dice.place(10)] = env.dice.below(256) as u8;
    }
    cdb
}
