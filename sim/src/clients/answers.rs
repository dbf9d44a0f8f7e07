//! How commands and questions end, and what is right about it.

use lunette_initiator::{Error, Outcome, Reply, Session, SessionEvent};
use lunette_scsi::{Lun, SenseKey, Status};

use super::{Answer, Client, Clients, PAUSE_US, Stage, Told};
use crate::env::{Env, Happening};
use crate::network::Network;
use crate::oracle::{Kind, Submission, User};
use crate::store::Stores;
use crate::tally::RESETS_FOR_TASKS;

/// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED, and I_T NEXUS LOSS OCCURRED.
const RESET_ASC: u8 = 0x29;

/// The news of a session that is of interest here.
pub(super) fn news(client: usize, event: &SessionEvent) -> Option<Told> {
    match event {
        SessionEvent::Connected { .. } => Some(Told::Connected(client)),
        SessionEvent::Lost { why } | SessionEvent::ConnectionLost { why, .. } => Some(Told::Lost(why.clone())),
        SessionEvent::UnitAttention { lun, sense } if sense.code.asc == RESET_ASC => Some(Told::Reset(client, *lun)),
        SessionEvent::Over(error) => Some(Told::Over(client, error.clone())),
        _ => None,
    }
}

impl Clients {
    pub(super) fn hear(&mut self, told: Told, net: &Network, env: &mut Env) {
        match told {
            Told::Ended(user, outcome) => self.ended(user, &outcome, env),
            Told::Connected(client) => {
                env.note(|| format!("initiator {client} is connected"));
                env.oracle().session_replaced(client);
                self.all[client].connects += 1;
            }
            Told::Reset(client, lun) => self.reset(client, lun, env),
            Told::Lost(why) => {
                env.tally.recovery("connections and sessions lost");
                Self::check_blame(&why, net, env);
                if env.scenario.is_calm() {
                    env.fail(format!("a session or connection is lost, and nothing has happened to it: {why}"));
                }
            }
            Told::Over(client, error) => {
                env.note(|| format!("initiator {client}: the session is over, {error}"));
                env.tally.recovery("sessions over");
                if let Error::Session { why, .. } = &error {
                    Self::check_blame(why, net, env);
                }
                self.all[client].session = None;
                Self::reopen(client, env);
            }
        }
    }

    /// A unit says that it was reset, or that the nexus was lost.
    fn reset(&mut self, client: usize, lun: Lun, env: &mut Env) {
        let Client { connects, resets, .. } = &mut self.all[client];
        let resets = resets.entry(lun).or_default();
        *resets += 1;
        env.note(|| format!("initiator {client}: {lun} was reset"));
        let (load, initiators) = (&env.scenario.load, env.scenario.initiators);
        // A session begins with one. Others may be of a function, of another initiator, or of a unit that has come.
        let is_alone = (initiators, load.manage, load.changes) == (1, 0, 0);
        if is_alone && !env.tally.happenings.contains_key(RESETS_FOR_TASKS) && *resets > *connects {
            env.fail(format!("{lun} says that it was reset, and it was not"));
        }
    }

    fn reopen(client: usize, env: &mut Env) {
        let at = env.now + env.dice.micros(0, PAUSE_US);
        env.enter(at, Happening::Reopen(client));
    }

    pub(super) fn answered(&mut self, answer: Answer, stores: &Stores, env: &mut Env) {
        match answer {
            Answer::Opened(client, result) => self.opened(client, result, env),
            Answer::Closed(client) => {
                self.all[client].is_busy = false;
                Self::reopen(client, env);
            }
            Answer::Refused(cdb, outcome) => Self::refused(&cdb, &outcome, env),
            Answer::Reserved(change, result) => self.reserved(change, &result, stores, env),
            Answer::Managed(asked, answer) => Self::managed(asked, &answer, stores, env),
            Answer::Pong(Ok(true)) => env.tally.happening("pings"),
            Answer::Text(Ok(pairs)) => {
                env.tally.happening("text requests");
                if pairs.first().is_none_or(|(key, _)| key != "TargetName") {
                    env.fail(format!("the answer to SendTargets is {pairs:?}"));
                }
            }
            // A ping that was damaged on its way comes back so, or is refused; connections are lost.
            Answer::Pong(_) | Answer::Text(Err(_)) => {}
            Answer::Ended(user, outcome) => self.ended(user, &outcome, env),
        }
    }

    fn opened(&mut self, client: usize, result: Result<Session, Error>, env: &mut Env) {
        let leaves = matches!(self.stage, Stage::Leaving | Stage::Done);
        self.all[client].is_busy = false;
        match result {
            Ok(session) => {
                env.tally.recovery("sessions opened");
                self.all[client].session = Some(session);
                if leaves {
                    self.close(client);
                }
            }
            Err(error) => {
                env.note(|| format!("initiator {client} has no session: {error}"));
                env.tally.recovery("sessions refused");
                Self::reopen(client, env);
            }
        }
    }

    fn ended(&mut self, user: User, outcome: &Outcome, env: &mut Env) {
        // Commands without data have no name.
        let Some(submission) = self.open.remove(&user) else { return };
        let checks = self.stage == Stage::Check;
        let (end, verdict) = match &outcome.result {
            Ok(reply) if reply.status == Status::GOOD => ("good", good(user, submission, outcome, env)),
            Ok(reply) => {
                let status = describe(reply);
                env.note(|| format!("command {user} ends with {status}"));
                ("refused", env.oracle().failed(user, &status))
            }
            Err(error) => {
                env.note(|| format!("command {user} ends with {error}"));
                ("in doubt", env.oracle().doubted(user))
            }
        };
        env.tally.command(end);
        env.check(verdict);
        if checks && end != "good" {
            self.to_check.push_back(submission.extent);
        }
    }
}

fn good(user: User, submission: Submission, outcome: &Outcome, env: &mut Env) -> Result<(), String> {
    env.note(|| format!("command {user} ends well"));
    if let Err(error) = outcome.check_whole() {
        return Err(format!("command {user} was answered GOOD: {error}"));
    }
    match (submission.kind, &outcome.data_in) {
        (Kind::Read, Some(bytes)) => env.oracle().read_succeeded(user, bytes),
        (Kind::Read, None) => Err(format!("the buffer of command {user} is gone")),
        _ => env.oracle().write_succeeded(user),
    }
}

fn describe(reply: &Reply) -> String {
    match reply.sense_data() {
        Some(sense) if sense.key == SenseKey::MISCOMPARE => "MISCOMPARE".into(),
        Some(sense) => format!("{:?} {:?}", sense.key, sense.code),
        None => format!("{:?}", reply.status),
    }
}
