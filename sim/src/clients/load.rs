//! The load: commands, and everything else that an initiator may ask for.

use lunette_initiator::{Completion, Repeat, Request, Session};
use lunette_pdu::TaskAttribute;

use super::{Answer, Clients, Stage, Told, put};
use crate::env::{Env, Happening};
use crate::network::Network;
use crate::oracle::{Extent, Kind, Submission, User};
use crate::scenario::UNITS;
use crate::server::lun;
use crate::store::Stores;

/// Between two looks at whether there is a session.
const IDLE_US: u64 = 300_000;

/// Commands that are submitted in one go at most.
const BURST: u64 = 8;

const READ_16: u8 = 0x88;
const COMPARE_AND_WRITE: u8 = 0x89;
const WRITE_16: u8 = 0x8a;
const SYNCHRONIZE_CACHE_16: u8 = 0x91;
const TEST_UNIT_READY: u8 = 0x00;
/// FUA, in byte 1 of reads and writes.
const FUA: u8 = 0x08;

impl Clients {
    /// An initiator does something, and says when it does the next thing.
    pub(crate) fn act(&mut self, client: usize, net: &mut Network, stores: &mut Stores, env: &mut Env) {
        let session = self.all[client].session.clone();
        let busy = match (self.stage, session) {
            (Stage::Done, _) => return,
            (Stage::Load, Some(session)) => self.load(client, &session, net, stores, env),
            (Stage::Check, Some(session)) if client == 0 => self.check_all(client, &session, env),
            _ => false,
        };
        let most = if busy { env.scenario.load.pause_us } else { IDLE_US };
        let at = env.now + env.dice.micros(0, most);
        env.enter(at, Happening::Act(client));
    }

    fn load(
        &mut self,
        client: usize,
        session: &Session,
        net: &mut Network,
        stores: &mut Stores,
        env: &mut Env,
    ) -> bool {
        if self.issued >= env.scenario.load.commands {
            return false;
        }
        let manage = env.scenario.load.manage;
        match env.dice.below(48) {
            0 => self.ping(session.clone(), env),
            1 => self.text(session.clone()),
            2 if env.dice.one_in(30) => self.close(client),
            3 => self.flush(session, env),
            4 => self.test(session, env),
            5 => self.give_up_one(env),
            6 if env.scenario.reader() == Some(client) => self.meddle(session, env),
            6 if self.all.len() > 1 => self.reserve(client, session.clone(), stores, env),
            _ if manage > 0 && env.dice.one_in(manage) => self.manage(client, session.clone(), stores, env),
            _ => return self.submit_some(client, session, net, env),
        }
        true
    }

    fn ping(&mut self, session: Session, env: &mut Env) {
        let data = env.dice.bytes::<64>().to_vec();
        self.ask(None, async move { Answer::Pong(session.ping(data).await) });
    }

    fn text(&mut self, session: Session) {
        self.ask(None, async move { Answer::Text(session.text(vec![("SendTargets".into(), String::new())]).await) });
    }

    /// Commands without data, of which nothing is expected but an end.
    fn flush(&mut self, session: &Session, env: &mut Env) {
        let mut cdb = [0; 16];
        cdb[0] = SYNCHRONIZE_CACHE_16;
        self.nudge(session, cdb, env);
    }

    fn test(&mut self, session: &Session, env: &mut Env) {
        let mut cdb = [0; 16];
        cdb[0] = TEST_UNIT_READY;
        self.nudge(session, cdb, env);
    }

    fn nudge(&mut self, session: &Session, cdb: [u8; 16], env: &mut Env) {
        let mut request = Request::new(lun(env.dice.place(UNITS) as u16), cdb);
        request.attribute = attribute(env);
        let pending = session.execute(request);
        self.ask(None, async move { Answer::Ended(0, pending.await) });
    }

    /// A command is aborted, and its end not waited for.
    fn give_up_one(&mut self, env: &mut Env) {
        let users: Vec<User> = self.questions.iter().filter_map(|question| question.user).collect();
        if users.is_empty() {
            return;
        }
        let user = env.dice.pick(&users);
        self.questions.retain(|question| question.user != Some(user));
        env.note(|| format!("command {user} is given up"));
        env.tally.command("given up");
        self.open.remove(&user);
        let doubted = env.oracle().doubted(user);
        env.check(doubted);
    }

    fn submit_some(&mut self, client: usize, session: &Session, net: &mut Network, env: &mut Env) -> bool {
        let mut any = false;
        for _ in 0..env.dice.between(1, BURST) {
            if self.open.len() >= env.scenario.load.depth || self.issued >= env.scenario.load.commands {
                break;
            }
            let Some((kind, extent)) = draw(env) else { continue };
            let repeat = env.dice.pick(&[Repeat::Never, Repeat::IfNotRun, Repeat::Always]);
            if !self.submit(client, session, kind, extent, repeat, env) {
                break;
            }
            any = true;
            self.issued += 1;
            self.arm_faults(net);
        }
        any
    }

    fn submit(
        &mut self,
        client: usize,
        session: &Session,
        kind: Kind,
        extent: Extent,
        repeat: Repeat,
        env: &mut Env,
    ) -> bool {
        // What was compared with would differ the second time.
        let repeat = if kind == Kind::Exchange { Repeat::Never } else { repeat };
        let is_barred = self.holder(extent.unit).is_some_and(|holder| holder != client);
        let submission = Submission { client, kind, extent, may_repeat: repeat == Repeat::Always, is_barred };
        let expected = env.oracle().last_acknowledged(extent);
        let user = env.oracle().submitted(submission);
        let mut request = Request::new(lun(extent.unit as u16), cdb(kind, extent, env));
        (request.repeat, request.attribute) = (repeat, attribute(env));
        let len = extent.blocks * env.scenario.load.block_len;
        let writer = vec![user; extent.blocks];
        let parts = match kind {
            Kind::Read => vec![],
            Kind::Write => vec![writer],
            Kind::Exchange => vec![expected, writer],
        };
        let filled = if kind == Kind::Read {
            session.reserve(len).map(|buffer| request.data_in = Some(buffer))
        } else {
            session.buffer(parts.len() * len).map(|mut buffer| {
                for (part, bytes) in parts.iter().zip(buffer.chunks_mut(len)) {
                    env.oracle().medium.fill(extent.unit, extent.first, part, bytes);
                }
                request.data_out = Some(buffer.share());
            })
        };
        if let Err(error) = filled {
            env.fail(format!("no buffer: {error}"));
            return false;
        }
        env.note(|| format!("command {user} of initiator {client}: {kind:?} {extent:?}, {repeat:?}"));
        self.open.insert(user, submission);
        if env.dice.one_in(4) {
            let pending = session.execute(request);
            self.ask(Some(user), async move { Answer::Ended(user, pending.await) });
        } else {
            let told = std::sync::Arc::clone(&self.told);
            session.submit(request, Completion::call(move |outcome| put(&told, Told::Ended(user, outcome))));
        }
        true
    }

    /// Looks whether all that was acknowledged is still there.
    fn check_all(&mut self, client: usize, session: &Session, env: &mut Env) -> bool {
        let mut any = false;
        while self.open.len() < env.scenario.load.depth
            && let Some(extent) = self.to_check.pop_front()
        {
            any |= self.submit(client, session, Kind::Read, extent, Repeat::Always, env);
        }
        any
    }
}

pub(super) fn attribute(env: &mut Env) -> TaskAttribute {
    match env.dice.below(12) {
        0 => TaskAttribute::ORDERED,
        1 => TaskAttribute::HEAD_OF_QUEUE,
        _ => TaskAttribute::SIMPLE,
    }
}

fn draw(env: &mut Env) -> Option<(Kind, Extent)> {
    let load = env.scenario.load;
    let kind =
        env.dice.pick(&[Kind::Read, Kind::Read, Kind::Read, Kind::Write, Kind::Write, Kind::Write, Kind::Exchange]);
    let blocks = if kind == Kind::Exchange { 1 } else { env.dice.between(1, load.longest as u64) as usize };
    let extent = Extent { unit: env.dice.place(UNITS), first: env.dice.place(load.blocks - blocks + 1), blocks };
    (!kind.writes() || env.oracle().is_free(extent)).then_some((kind, extent))
}

fn cdb(kind: Kind, extent: Extent, env: &mut Env) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[2..10].copy_from_slice(&(extent.first as u64).to_be_bytes());
    match kind {
        Kind::Exchange => (cdb[0], cdb[13]) = (COMPARE_AND_WRITE, extent.blocks as u8),
        Kind::Read | Kind::Write => {
            cdb[0] = if kind == Kind::Read { READ_16 } else { WRITE_16 };
            cdb[10..14].copy_from_slice(&(extent.blocks as u32).to_be_bytes());
        }
    }
    if env.dice.one_in(8) {
        cdb[1] = FUA;
    }
    cdb
}
