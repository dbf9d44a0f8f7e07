//! The load: commands, and everything else that an initiator may ask for.

use lunette_session::Time;
use lunette_session::iscsi_initiator::Session;

use super::{Client, Open, Question, Stage};
use crate::env::{Env, Happening};
use crate::oracle::{Extent, Kind};
use crate::request::Request;
use crate::scenario::UNITS;
use crate::wire::Network;

/// Between two looks at whether the session takes something.
const IDLE_US: u64 = 300_000;

/// Commands that are submitted in one go at most.
const BURST: u64 = 8;

impl Client {
    /// Does something, and says when the next thing is due.
    pub(crate) fn act(&mut self, net: &mut Network, env: &mut Env) {
        if self.stage == Stage::Done {
            return;
        }
        let busy = self.logged_in && self.do_something(net, env);
        let most = if busy { env.scenario.load.pause_us } else { IDLE_US };
        let at: Time = env.now + env.dice.micros(0, most);
        env.enter(at, Happening::Act);
    }

    fn do_something(&mut self, net: &mut Network, env: &mut Env) -> bool {
        match self.stage {
            Stage::Load if self.issued >= env.scenario.load.commands => {
                if self.open.is_empty() && self.questions.is_empty() {
                    self.stage = Stage::Check;
                }
                false
            }
            Stage::Load => self.load(net, env),
            Stage::Check => self.check_all(env),
            Stage::Leaving | Stage::Done => false,
        }
    }

    fn load(&mut self, net: &mut Network, env: &mut Env) -> bool {
        let manage = env.scenario.load.manage;
        match env.dice.below(40) {
            0 => self.ping(env),
            1 => self.text(env),
            2 if env.dice.one_in(8) => self.remove_connection(env),
            3 if env.dice.one_in(30) => return self.log_out(env),
            _ if manage > 0 && env.dice.one_in(manage) => self.manage(env),
            _ => return self.submit_some(net, env),
        }
        true
    }

    // Commands.

    fn submit_some(&mut self, net: &mut Network, env: &mut Env) -> bool {
        let mut any = false;
        for _ in 0..env.dice.between(1, BURST) {
            if self.open.len() >= env.scenario.load.depth || self.issued >= env.scenario.load.commands {
                break;
            }
            let Some((kind, extent)) = draw(env) else { continue };
            if !self.submit(kind, extent, false, env) {
                break;
            }
            any = true;
            self.issued += 1;
            self.arm_faults(net);
        }
        any
    }

    fn submit(&mut self, kind: Kind, extent: Extent, checks: bool, env: &mut Env) -> bool {
        let Some(session) = self.session.as_mut().filter(|session| session.room() > 0) else { return false };
        let extended = if env.dice.one_in(6) { env.dice.between(1, 244) as u8 } else { 0 };
        let request = Request { user: env.oracle.next_user(), kind, extent, extended };
        let len = extent.blocks * env.scenario.load.block_len;
        let data_out = kind.writes().then(|| {
            let mut buffer = self.pool.take(len).expect("the pool is larger than any load");
            let writers = vec![request.user; extent.blocks];
            env.oracle.medium.fill(extent.unit, extent.first, &writers, &mut buffer);
            buffer.share()
        });
        // Some take less than there is.
        let room = if kind.reads() && env.dice.one_in(10) { env.dice.between(1, len as u64) as usize } else { len };
        let data_in = kind.reads().then(|| self.pool.take(room).expect("the pool is larger than any load"));
        let Ok(tag) = session.submit(request.command(data_out, data_in), env.now) else {
            env.fail("a command was not taken although there is room");
            return false;
        };
        env.note(|| format!("command {}: {kind:?} {extent:?}", request.user));
        env.oracle.submitted(kind, extent);
        self.open.insert(request.user, Open { tag, request, room, checks });
        self.touch_all();
        true
    }

    /// Reads everything once more, then leaves.
    fn check_all(&mut self, env: &mut Env) -> bool {
        while self.open.len() < env.scenario.load.depth {
            let Some(extent) = self.to_check.pop_front() else { break };
            if !self.submit(Kind::Read, extent, true, env) {
                self.to_check.push_front(extent);
                break;
            }
        }
        if self.open.is_empty() && self.to_check.is_empty() && self.log_out(env) {
            self.stage = Stage::Leaving;
        }
        false
    }

    // Everything else.

    pub(super) fn ask(
        &mut self,
        question: Question,
        env: &mut Env,
        ask: impl FnOnce(&mut Session, u64, &mut Env) -> bool,
    ) {
        let Some(session) = &mut self.session else { return };
        self.last_question += 1;
        if ask(session, self.last_question, env) {
            let user = self.last_question;
            env.note(|| format!("request {user}: {question:?}"));
            self.questions.insert(user, question);
            self.touch_all();
        }
    }

    fn ping(&mut self, env: &mut Env) {
        let lane = env.dice.place(self.lanes.len().max(1));
        let Some(cid) = self.lanes.values().nth(lane).map(|lane| lane.cid) else { return };
        self.ask(Question::Ping, env, |session, user, env| {
            let data = (0..env.dice.below(600)).map(|at| at as u8).collect();
            session.ping(user, cid, data)
        });
    }

    fn text(&mut self, env: &mut Env) {
        self.ask(Question::Text, env, |session, user, _| session.text(user, &[("SendTargets", "")]));
    }

    fn remove_connection(&mut self, env: &mut Env) {
        let lane = env.dice.place(self.lanes.len().max(1));
        let (Some(lane), Some(session)) = (self.lanes.values().nth(lane), &mut self.session) else { return };
        let cid = lane.cid;
        if session.remove_connection(cid) {
            env.note(|| format!("connection {} is to leave", cid.0));
            self.touch_all();
        }
    }

    pub(super) fn log_out(&mut self, env: &mut Env) -> bool {
        let asked = self.session.as_mut().is_some_and(Session::logout);
        if asked {
            env.note(|| "the session is to end".into());
            self.logging_out = true;
            self.touch_all();
        }
        asked
    }
}

/// A command that overlaps with no write under way when it writes.
fn draw(env: &mut Env) -> Option<(Kind, Extent)> {
    let load = env.scenario.load;
    let blocks = env.dice.between(1, load.longest as u64) as usize;
    let first = env.dice.place(load.blocks - blocks + 1);
    let extent = Extent { unit: env.dice.place(UNITS), first, blocks };
    let kind = match env.dice.below(8) {
        0..4 => Kind::Write,
        4 => Kind::Exchange,
        _ => Kind::Read,
    };
    (!kind.writes() || env.oracle.is_free(extent)).then_some((kind, extent))
}
