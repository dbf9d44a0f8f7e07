//! Persistent reservations (SPC-4 5.13): one initiator at a time holds a unit, and the others' writes do not run.

use lunette_initiator::{Error, Repeat, Request, Session};

use super::{Answer, Clients};
use crate::env::Env;
use crate::scenario::UNITS;
use crate::server::lun;
use crate::store::Stores;

const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
const RESERVE: u8 = 0x01;
const RELEASE: u8 = 0x02;
const CLEAR: u8 = 0x03;
const PREEMPT_AND_ABORT: u8 = 0x05;
const REGISTER_AND_IGNORE_EXISTING_KEY: u8 = 0x06;
const WRITE_EXCLUSIVE: u8 = 0x01;
const PARAMETER_LEN: usize = 24;

/// The knowledge about the reservation of a unit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reservation {
    holder: Option<usize>,
    /// A change is under way.
    is_changing: bool,
    /// A change ended in doubt and may come late: nothing is known from then on.
    is_unknown: bool,
}

/// A change that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    action: u8,
    client: usize,
    unit: usize,
    /// The holder that is preempted.
    preempted: Option<usize>,
    /// When it was asked for, as the stores count.
    moment: u64,
}

impl Clients {
    /// Changes the reservation of a unit.
    pub(super) fn reserve(&mut self, client: usize, session: Session, stores: &mut Stores, env: &mut Env) {
        let unit = env.dice.place(UNITS);
        let reservation = &mut self.reservations[unit];
        if reservation.is_changing || reservation.is_unknown {
            return;
        }
        let action = match reservation.holder {
            Some(holder) if holder == client => env.dice.pick(&[RELEASE, CLEAR]),
            Some(_) => PREEMPT_AND_ABORT,
            None => env.dice.pick(&[RESERVE, RESERVE, CLEAR]),
        };
        let preempted = reservation.holder.filter(|_| action == PREEMPT_AND_ABORT);
        (reservation.holder, reservation.is_changing) = (None, true);
        env.oracle().unbar(unit);
        let change = Change { action, client, unit, preempted, moment: stores.ask() };
        env.note(|| format!("initiator {client} changes the reservation: {change:?}"));
        self.ask(None, async move { Answer::Reserved(change, make(&session, change).await) });
    }

    pub(super) fn reserved(&mut self, change: Change, result: &Result<bool, Error>, stores: &Stores, env: &mut Env) {
        let Change { action, client, unit, preempted, moment } = change;
        env.note(|| format!("{change:?}: {result:?}"));
        let reservation = &mut self.reservations[unit];
        reservation.is_changing = false;
        let Ok(is_done) = result else {
            reservation.is_unknown = true;
            return;
        };
        if !*is_done || reservation.is_unknown {
            return;
        }
        env.tally.happening("reservations changed");
        if let Some(preempted) = preempted
            && !stores.is_clear_of(moment, Some(unit), Some((preempted, &env.oracle())))
        {
            env.fail(format!("initiator {preempted} is preempted, and a store still works for its writes"));
        }
        if matches!(action, RESERVE | PREEMPT_AND_ABORT) {
            reservation.holder = Some(client);
            if let Some(preempted) = preempted {
                env.oracle().bar(unit, preempted);
            }
        }
    }

    /// The initiator that holds the unit.
    pub(super) fn holder(&self, unit: usize) -> Option<usize> {
        self.reservations[unit].holder
    }

    /// A target that stops forgets its reservations.
    pub(crate) fn forget_reservations(&mut self, env: &mut Env) {
        for (unit, reservation) in self.reservations.iter_mut().enumerate() {
            (reservation.holder, reservation.is_unknown) = (None, true);
            env.oracle().unbar(unit);
        }
    }
}

/// Registers, then makes the change. `false`: the target refuses it.
async fn make(session: &Session, change: Change) -> Result<bool, Error> {
    let key = |client: usize| client as u64 + 1;
    let own = key(change.client);
    let registered = send(session, change.unit, REGISTER_AND_IGNORE_EXISTING_KEY, 0, own).await?;
    let other = change.preempted.map_or(0, key);
    Ok(registered && send(session, change.unit, change.action, own, other).await?)
}

async fn send(session: &Session, unit: usize, action: u8, own: u64, other: u64) -> Result<bool, Error> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (PERSISTENT_RESERVE_OUT, action, WRITE_EXCLUSIVE, PARAMETER_LEN as u8);
    let mut parameters = session.buffer(PARAMETER_LEN)?;
    parameters.fill(0);
    parameters[..8].copy_from_slice(&own.to_be_bytes());
    parameters[8..16].copy_from_slice(&other.to_be_bytes());
    let mut request = Request::new(lun(unit as u16), cdb);
    (request.data_out, request.repeat) = (Some(parameters.share()), Repeat::IfNotRun);
    Ok(session.execute(request).await.result?.ok().is_ok())
}
