//! What the session tells its driver, and what the driver makes of it.

use lunette_pdu::{AsyncEvent, Cid, LoginStatus, RejectReason, Residual};
use lunette_session::iscsi_initiator::{Command, Event, LoginError, Response, Session, SessionError};

use super::{Client, Open, PAUSE_US, Question, Stage};
use crate::env::{Env, Happening};
use crate::request::Request;
use crate::server::{SENSE, gather};
use crate::wire::{Network, Side, WireId};

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 0x02;

/// Fixed format, ABORTED COMMAND: FAILED RETRANSMISSION REQUEST, as the target says it, and PROTOCOL SERVICE CRC ERROR, which
/// stands for a SNACK that it refuses.
const FORGOTTEN: [[u8; 18]; 2] = [
    [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0x13, 0, 0, 0, 0],
    [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x47, 0x05, 0, 0, 0, 0],
];

impl Client {
    pub(super) fn take_events(&mut self, id: WireId, mut input: &[u8], net: &mut Network, env: &mut Env) {
        while let (Some(lane), Some(session)) = (self.lanes.get(&id), &mut self.session) {
            let Some(event) = session.next_event(lane.cid, &mut input, env.now) else { break };
            self.handle(id, event, net, env);
            // What comes of an event may go out over any connection, and be told by any.
            self.touch_all();
        }
        if self.session.as_ref().is_some_and(Session::is_over) {
            self.end_session(net, env);
        }
    }

    fn handle(&mut self, id: WireId, event: Event, net: &mut Network, env: &mut Env) {
        match event {
            Event::LoggedIn(cid) => self.logged_in(id, cid, env),
            Event::Completed { command, response } => self.completed(&command, &response, env),
            Event::Aborted(command) => {
                let user = command.user;
                env.note(|| format!("command {user} is given back"));
                env.tally.command("aborted");
                let aborted = env.oracle.aborted(user);
                env.check(aborted);
                self.forget(user);
            }
            Event::TaskManagementDone { user, response, information } => {
                env.note(|| format!("request {user}: {response}"));
                self.managed(user, response, information, env);
            }
            Event::Pong { user, intact } => {
                // A ping that was damaged on its way is refused.
                if !intact && !net.has_damaged(Side::Target) {
                    env.fail(format!("ping {user} came back with other bytes"));
                }
                self.answered(user, Question::Ping, env);
            }
            Event::Text { user, pairs } => {
                if pairs.first().is_none_or(|(key, _)| key != "TargetName") {
                    env.fail(format!("the answer to SendTargets is {pairs:?}"));
                }
                self.answered(user, Question::Text, env);
            }
            Event::Async { message, data } => {
                env.note(|| format!("wire {id}: {}", message.event));
                self.heard(message.event, &data, env);
            }
            Event::Redirected { .. } => env.fail("redirected without a reason"),
            Event::Closed { cid, why } => {
                // Another connection may have told.
                let Some(id) = self.wire_of(cid) else {
                    return env.fail(format!("connection {} is over a second time: {why}", cid.0));
                };
                env.note(|| format!("wire {id}: connection {} is over, {why}", cid.0));
                self.closed(id, &why, net, env);
            }
        }
    }

    fn wire_of(&self, cid: Cid) -> Option<WireId> {
        self.lanes.iter().find(|(_, lane)| lane.cid == cid).map(|(id, _)| *id)
    }

    fn logged_in(&mut self, id: WireId, cid: Cid, env: &mut Env) {
        env.note(|| format!("wire {id}: connection {} is logged in", cid.0));
        if self.logged_in {
            return;
        }
        self.logged_in = true;
        self.sessions += 1;
        if self.sessions > 1 {
            env.tally.recovery("session opened again");
        }
        env.oracle.session_replaced();
        self.join(env, 0);
    }

    /// One connection is over: what is ready still goes out.
    fn closed(&mut self, id: WireId, why: &SessionError, net: &mut Network, env: &mut Env) {
        check_end(why, net, env);
        let Some(lane) = self.lanes.remove(&id) else { return };
        if let Some(session) = &mut self.session {
            let bytes = gather(session.slices(lane.cid), usize::MAX);
            session.sent(lane.cid, bytes.len());
            net.send(id, Side::Initiator, bytes, env);
        }
        net.close(id, Side::Initiator, env);
        if !self.session.as_ref().is_some_and(Session::is_over) {
            env.tally.recovery("connection opened again");
            if self.logged_in {
                self.join(env, PAUSE_US);
            }
        }
    }

    /// The session is over: its commands are in doubt until another one is there.
    pub(super) fn end_session(&mut self, net: &mut Network, env: &mut Env) {
        // Each connection has an end of its own to tell.
        for id in self.lanes.keys().copied().collect::<Vec<_>>() {
            while let (Some(lane), Some(session)) = (self.lanes.get(&id), &mut self.session) {
                let Some(event) = session.next_event(lane.cid, &mut &[][..], env.now) else { break };
                self.handle(id, event, net, env);
            }
            if self.lanes.remove(&id).is_some() {
                env.fail(format!("the session is over and connection {id} does not know"));
            }
        }
        let Some(session) = self.session.take() else { return };
        if let Some(why) = session.why_over() {
            env.note(|| format!("the session is over: {why}"));
            check_end(why, net, env);
        }
        for (kind, count) in session.recoveries().kinds() {
            env.tally.recoveries(kind, count);
        }
        for command in session.into_unfinished() {
            env.tally.command("in doubt");
            let lost = env.oracle.lost(command.user);
            env.check(lost);
            self.forget(command.user);
        }
        if let Some((user, _)) = self.open.pop_first() {
            env.fail(format!("command {user} vanished with its session"));
        }
        self.questions.clear();
        (self.logged_in, self.logging_out) = (false, false);
        if self.stage == Stage::Leaving {
            self.stage = Stage::Done;
            return;
        }
        let at = env.now + env.dice.micros(0, PAUSE_US);
        env.enter(at, Happening::Reopen);
    }

    /// A command has no place in our books any more. What it was to check is checked by another one.
    fn forget(&mut self, user: u64) -> Option<Open> {
        let open = self.open.remove(&user)?;
        if open.checks {
            self.to_check.push_back(open.request.extent);
        }
        Some(open)
    }

    fn completed(&mut self, command: &Command, response: &Response, env: &mut Env) {
        let user = command.user;
        env.note(|| format!("command {user} ends with status {:#x}", response.status));
        let Some(mut open) = self.open.remove(&user) else {
            return env.fail(format!("command {user} ended and is not under way"));
        };
        if response.response != 0 {
            env.fail(format!("command {user} ended with response {:#x}", response.response));
        }
        let outcome = if response.status == GOOD {
            env.tally.command("done");
            open.checks = false;
            check_moved(&open, response, env);
            let data_in = command.data_in.as_ref().map(|data| &data[..response.data_in_len]);
            env.oracle.succeeded(user, data_in)
        } else if FORGOTTEN.iter().any(|sense| *sense == *response.sense) && env.scenario.may_forget() {
            env.tally.command("data forgotten");
            env.oracle.forgotten(user)
        } else {
            env.tally.command("refused");
            check_sense(user, response, env);
            env.oracle.failed(user, response.status)
        };
        env.check(outcome);
        if open.checks {
            self.to_check.push_back(open.request.extent);
        }
    }

    /// The target says something of its own accord.
    fn heard(&mut self, event: AsyncEvent, data: &[u8], env: &mut Env) {
        env.tally.happening(match event {
            AsyncEvent::SCSI_EVENT => "SCSI event",
            AsyncEvent::LOGOUT_REQUEST => "logout request",
            AsyncEvent::CONNECTION_DROP => "connection drop notice",
            AsyncEvent::SESSION_DROP => "session drop notice",
            AsyncEvent::NEGOTIATION_REQUEST => "negotiation request",
            AsyncEvent::TASK_TERMINATION => "task termination notice",
            _ => "other message",
        });
        match event {
            AsyncEvent::LOGOUT_REQUEST => {
                self.log_out(env);
            }
            AsyncEvent::SCSI_EVENT if data != [&[0, SENSE.len() as u8], &SENSE[..]].concat() => {
                env.fail(format!("a SCSI event with sense data {data:02x?}"));
            }
            _ => {}
        }
    }

    fn answered(&mut self, user: u64, question: Question, env: &mut Env) {
        env.tally.happening(if question == Question::Ping { "ping" } else { "text" });
        if self.questions.remove(&user) != Some(question) {
            env.fail(format!("request {user} was answered and waits for nothing"));
        }
    }
}

/// A target that keeps to the rules is not found fault with, nor are we, unless bytes were changed on their way.
fn check_end(why: &SessionError, net: &Network, env: &mut Env) {
    let damaged = |side| net.has_damaged(side);
    let expected = match why {
        SessionError::Protocol { .. } => false,
        SessionError::Damaged(_) => damaged(Side::Initiator),
        SessionError::Rejected { reason, .. } => *reason == RejectReason::DATA_DIGEST_ERROR && damaged(Side::Target),
        SessionError::Login(LoginError::Refused(status)) => {
            // The session may have been lost while a connection was about to join it, or the target may not know yet that
            // another one was.
            matches!(*status, LoginStatus::SESSION_DOES_NOT_EXIST | LoginStatus::TOO_MANY_CONNECTIONS)
        }
        SessionError::RecoveryFailed(why) => !why.contains("refuses"),
        SessionError::Login(error) => *error == LoginError::Timeout,
        _ => true,
    };
    if !expected {
        env.fail(format!("a connection ended without a reason: {why}"));
    }
}

/// All that was to come has come, and the residual says what did not fit.
fn check_moved(open: &Open, response: &Response, env: &mut Env) {
    let Request { user, kind, extent, .. } = open.request;
    let len = extent.blocks * env.scenario.load.block_len;
    if !kind.reads() {
        return;
    }
    let residual = if kind.writes() { response.read_residual } else { response.residual };
    let overflow = (len > open.room).then(|| Residual::Overflow((len - open.room) as u32));
    if response.data_in_len != open.room || residual != overflow {
        let came = response.data_in_len;
        env.fail(format!("command {user}: {came} of {} bytes came, the residual is {residual:?}", open.room));
    }
}

fn check_sense(user: u64, response: &Response, env: &mut Env) {
    let expected = if response.status == CHECK_CONDITION { &SENSE[..] } else { &[] };
    if response.sense != expected {
        env.fail(format!("command {user} has sense data {:02x?}", response.sense));
    }
}
