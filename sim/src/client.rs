//! The driver of the initiator: opens a session and keeps it open, and puts load on it.

mod events;
mod load;
mod management;

use std::collections::{BTreeMap, VecDeque};

use lunette_buffer::Pool;
use lunette_pdu::Cid;
use lunette_session::iscsi_initiator::{Session, TaskTag};
use lunette_session::{Entropy, Time};

use self::management::Asked;
use crate::env::{Env, Happening};
use crate::fault::Fault;
use crate::oracle::{Extent, User};
use crate::request::Request;
use crate::scenario::{Scenario, UNITS};
use crate::server::gather;
use crate::wire::{Network, Side, WireId};

/// Bytes of data that the initiator has at a time: more than any run needs.
const POOL_BYTES: usize = 256 << 20;

/// Before a session or a connection is opened again.
const PAUSE_US: u64 = 200_000;

/// One connection of the session.
struct Lane {
    cid: Cid,
    /// Something may have happened on it that was not asked for yet.
    touched: bool,
}

/// A command under way.
struct Open {
    tag: TaskTag,
    request: Request,
    /// What the target may send.
    room: usize,
    /// It looks whether all that was acknowledged is still there.
    checks: bool,
}

/// A request other than a command that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Ping,
    Text,
    Management(Asked),
}

/// How far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Load.
    Load,
    /// Everything is read once more.
    Check,
    /// The last session is on its way out.
    Leaving,
    Done,
}

pub(crate) struct Client {
    session: Option<Session>,
    lanes: BTreeMap<WireId, Lane>,
    /// Connections that are being made.
    dialing: u32,
    /// The session takes commands.
    logged_in: bool,
    /// The end of the session was asked for.
    logging_out: bool,
    sessions: u32,
    open: BTreeMap<User, Open>,
    questions: BTreeMap<u64, Question>,
    last_question: u64,
    stage: Stage,
    issued: u32,
    /// What is still to be read at the end.
    to_check: VecDeque<Extent>,
    /// Faults that wait for commands to be issued.
    faults: Vec<Fault>,
    pool: Pool,
}

impl Client {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let blocks = scenario.load.blocks;
        let step = scenario.load.longest;
        let of_unit =
            |unit| (0..blocks).step_by(step).map(move |first| Extent { unit, first, blocks: step.min(blocks - first) });
        Self {
            session: None,
            lanes: BTreeMap::new(),
            dialing: 0,
            logged_in: false,
            logging_out: false,
            sessions: 0,
            open: BTreeMap::new(),
            questions: BTreeMap::new(),
            last_question: 0,
            stage: Stage::Load,
            issued: 0,
            to_check: (0..UNITS).flat_map(of_unit).collect(),
            faults: scenario.faults.clone(),
            pool: Pool::new(POOL_BYTES),
        }
    }

    pub(crate) fn begin(&mut self, net: &mut Network, env: &mut Env) {
        self.arm_faults(net);
        self.reopen(env);
        env.enter(env.now, Happening::Act);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// What is left.
    pub(crate) fn describe(&self) -> String {
        let (lanes, dialing, questions) = (self.lanes.len(), self.dialing, &self.questions);
        let open: Vec<User> = self.open.keys().copied().collect();
        let stage = self.stage;
        format!(
            "initiator: {stage:?}, {lanes} connections and {dialing} to come, commands {open:?}, requests {questions:?}"
        )
    }

    pub(crate) fn bytes_in_use(&self) -> usize {
        self.pool.used_bytes()
    }

    fn arm_faults(&mut self, net: &mut Network) {
        let issued = self.issued;
        for fault in self.faults.extract_if(.., |fault| fault.after <= issued) {
            net.arm(fault);
        }
    }

    // Connections.

    /// Opens a session.
    pub(crate) fn reopen(&mut self, env: &mut Env) {
        if self.session.is_none() && self.stage != Stage::Done {
            self.session = Some(Session::new(env.scenario.config.clone()));
            self.dial(env, 0);
        }
    }

    fn dial(&mut self, env: &mut Env, pause_us: u64) {
        self.dialing += 1;
        let at = env.now + env.dice.micros(0, env.scenario.weather.latency_us) + env.dice.micros(0, pause_us);
        env.enter(at, Happening::Dialed);
    }

    /// An attempt to connect has come to its end. Gives the new connection for the target to accept.
    pub(crate) fn dialed(&mut self, net: &mut Network, env: &mut Env) -> Option<WireId> {
        self.dialing -= 1;
        let wanted = env.scenario.setup.connections as usize;
        let session = self.session.as_mut()?;
        let may_lead = self.lanes.is_empty() && (!self.logged_in || session.wants_connection());
        let may_join = self.logged_in && !self.lanes.is_empty();
        if session.is_over() || self.logging_out || !(may_lead || may_join) || self.lanes.len() >= wanted {
            return None;
        }
        let Some(id) = net.connect(env) else {
            env.tally.recovery("dialed again");
            self.dial(env, PAUSE_US);
            return None;
        };
        let cid = session.connect(Entropy(env.dice.bytes()), env.now);
        env.note(|| format!("wire {id}: connection {} begins", cid.0));
        self.lanes.insert(id, Lane { cid, touched: true });
        Some(id)
    }

    /// Opens connections until there are as many as wanted.
    fn join(&mut self, env: &mut Env, pause_us: u64) {
        let wanted = env.scenario.setup.connections as usize;
        while self.logged_in
            && !self.logging_out
            && !self.lanes.is_empty()
            && self.lanes.len() + (self.dialing as usize) < wanted
        {
            self.dial(env, pause_us);
        }
    }

    /// Sees to what no event tells: a session that lives on only when a connection is made, and one that got none in time.
    pub(crate) fn settle(&mut self, net: &mut Network, env: &mut Env) -> bool {
        let Some(session) = &self.session else { return false };
        if session.is_over() {
            self.end_session(net, env);
            return true;
        }
        let lonely = self.logged_in && self.dialing == 0 && session.wants_connection();
        if lonely {
            self.dial(env, PAUSE_US);
        }
        lonely
    }

    // Time.

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.session.as_ref()?.next_timeout()
    }

    pub(crate) fn time_has_come(&mut self, now: Time) {
        let Some(session) = &mut self.session else { return };
        if session.next_timeout().is_some_and(|at| at <= now) {
            session.time_has_come(now);
            self.touch_all();
        }
    }

    pub(crate) fn ids(&self) -> Vec<WireId> {
        self.lanes.keys().copied().collect()
    }

    fn touch_all(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.touched = true;
        }
    }

    // Bytes.

    /// One connection does what it can: false when that is nothing.
    pub(crate) fn turn(&mut self, id: WireId, net: &mut Network, env: &mut Env) -> bool {
        let Some(lane) = self.lanes.get_mut(&id) else { return false };
        let mut moved = false;
        if std::mem::replace(&mut lane.touched, false) {
            self.take_events(id, &[], net, env);
            moved = true;
        }
        moved | self.receive(id, net, env) | self.send(id, usize::MAX, net, env)
    }

    fn receive(&mut self, id: WireId, net: &mut Network, env: &mut Env) -> bool {
        let (Some(lane), Some(session)) = (self.lanes.get(&id), &mut self.session) else { return false };
        let cid = lane.cid;
        if net.has_ended(id, Side::Initiator) {
            env.note(|| format!("wire {id}: the initiator sees its end"));
            session.disconnected(cid, env.now);
            self.take_events(id, &[], net, env);
            return true;
        }
        let Some(mut bytes) = net.receive(id, Side::Initiator) else { return false };
        let place = if env.dice.coin() { session.direct(cid) } else { None };
        if let Some(place) = place {
            let len = bytes.len().min(place.len());
            place[..len].copy_from_slice(&bytes[..len]);
            session.direct_received(cid, len, env.now);
            net.unreceive(id, Side::Initiator, bytes.split_off(len));
            bytes.clear();
        }
        self.take_events(id, &bytes, net, env);
        true
    }

    fn send(&mut self, id: WireId, most: usize, net: &mut Network, env: &mut Env) -> bool {
        let (Some(lane), Some(session)) = (self.lanes.get_mut(&id), &mut self.session) else { return false };
        let bytes = gather(session.slices(lane.cid), net.room(id, Side::Initiator, env).min(most));
        if bytes.is_empty() {
            return false;
        }
        session.sent(lane.cid, bytes.len());
        lane.touched = true;
        net.send(id, Side::Initiator, bytes, env);
        true
    }
}
