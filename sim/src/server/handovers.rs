//! Handovers of the simulated target: another server takes the place of the one that runs, as another process does.
//!
//! The successor is drawn to die at each step of the way, and then the predecessor goes on. Once the successor has
//! all, the predecessor may be gone before it has heard of it. The word itself is a call here.

use std::net::TcpStream;
use std::sync::Arc;

use lunette_device::TargetDevice;
use lunette_handover::Handover;
use lunette_session::Time;
use lunette_session::keys::Offer;
use lunette_store::Store;
use lunette_target::{LeftSession, PEER_PATIENCE, PendingStandstill, Standstill};

use super::{Running, Server, open_device};
use crate::env::{Env, Happening};
use crate::scenario::TARGET;
use crate::store::Stores;

/// Between two handovers at most.
const PAUSE_US: [u64; 3] = [10_000, 200_000, 1_500_000];

/// Sessions have at most so long to come to a standstill.
const PATIENCE_US: [u64; 4] = [1000, 100_000, 10_000_000, 10_000_000];

/// Most handovers begin when commands are under way. That is waited for so often, with at most so long between two
/// looks.
const LOOKS: u32 = 60;
const LOOK_US: u64 = 20_000;

/// Each step of a successor takes at most so long.
const STEP_US: [u64; 4] = [0, 1000, 100_000, 2_000_000];

/// The handovers of a target, one at a time.
#[derive(Default)]
pub(super) struct Handovers {
    /// How many are still to come.
    to_come: u32,
    /// How often it was looked whether commands are under way.
    looks: u32,
    /// The number of the last one.
    number: u64,
    /// When the sessions began to come to a standstill.
    began: Option<Time>,
    stage: Stage,
    /// Connections that no process has accepted.
    waiting: Vec<TcpStream>,
    /// Predecessors that have not ended yet.
    leaving: Vec<Running>,
}

#[derive(Default)]
enum Stage {
    #[default]
    None,
    Pending(PendingStandstill),
    /// The sessions stand still.
    Reached {
        standstill: Standstill,
        left: Box<Left>,
        end: End,
    },
    /// The successor is ready to go on.
    Opened {
        standstill: Standstill,
        successor: Box<Running>,
        end: End,
    },
}

/// How a handover ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The successor is gone before it has read anything.
    GoneUnread,
    /// The successor is gone with units and targets that have inherited.
    GoneRead,
    /// The successor is gone when it could go on.
    GoneOpened,
    Taken,
    /// The predecessor is gone at that moment.
    TakenAtOnce,
}

/// The state that a predecessor has left, as a successor reads it.
pub(super) struct Left {
    value: Handover,
    /// By session.
    sockets: Vec<Vec<TcpStream>>,
    pub(super) agrees: Offer,
    pub(super) guest: Option<Arc<dyn Store>>,
}

impl Handovers {
    pub(super) fn new(to_come: u32) -> Self {
        Self { to_come, ..Self::default() }
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self.stage, Stage::None)
    }

    pub(super) fn stands_still(&self) -> bool {
        matches!(self.stage, Stage::Reached { .. } | Stage::Opened { .. })
    }

    /// Nothing is left of any.
    pub(super) fn are_over(&self) -> bool {
        self.is_none() && self.leaving.is_empty()
    }

    /// Keeps a connection that comes during a handover, and gives any other.
    pub(super) fn hold(&mut self, stream: TcpStream) -> Option<TcpStream> {
        if self.is_none() {
            return Some(stream);
        }
        self.waiting.push(stream);
        None
    }

    /// The target is gone, and all that was under way.
    pub(super) fn end(&mut self) {
        let Self { stage, waiting, leaving, .. } = self;
        *stage = Stage::None;
        waiting.clear();
        leaving.clear();
    }
}

impl Left {
    fn of(running: &Running, sessions: Vec<LeftSession>) -> Result<Self, String> {
        let (values, sockets) = sessions.into_iter().map(|left| (left.value, left.sockets)).unzip();
        let units = running.device.units();
        let written = Handover {
            sessions: values,
            targets: vec![running.device.handover()],
            units: units.iter().map(|(_, unit)| unit.handover(TARGET)).collect(),
            ..Handover::default()
        };
        let bytes = written.encode().map_err(|error| error.to_string())?;
        let value = Handover::decode(&bytes).map_err(|error| error.to_string())?;
        if value != written {
            return Err("a handover is read as another one".into());
        }
        let guest = running.guest.as_ref().map(|unit| Arc::clone(unit.store()));
        Ok(Self { value, sockets, agrees: running.agrees.clone(), guest })
    }

    /// Lets a device go on from what that of the predecessor was.
    pub(super) fn give_to(&self, device: &TargetDevice) -> Result<(), String> {
        let units = device.units();
        for left in &self.value.units {
            if let Some((_, unit)) = units.iter().find(|(_, unit)| unit.config().serial == left.serial) {
                unit.inherit(left).map_err(|error| error.to_string())?;
            }
        }
        self.value.targets.iter().try_for_each(|target| device.inherit(target)).map_err(|error| error.to_string())
    }

    pub(super) fn into_sessions(self) -> Vec<LeftSession> {
        let values = self.value.sessions.into_iter().zip(self.sockets);
        values.map(|(value, sockets)| LeftSession { value, sockets }).collect()
    }
}

impl Server {
    pub(super) fn plan_handover(&mut self, env: &mut Env) {
        if self.handovers.to_come > 0 {
            self.handovers.to_come -= 1;
            let most = env.dice.pick(&PAUSE_US);
            let at = env.now + env.dice.micros(0, most);
            env.enter(at, Happening::HandOver);
        }
    }

    /// Begins to bring the sessions to a standstill.
    pub(crate) fn hand_over(&mut self, env: &mut Env) {
        // One that is being changed is asked again later.
        let running = self.running.as_ref().filter(|_| !self.stopping && self.handovers.is_none());
        let Some(running) = running.filter(|running| running.updates.is_empty()) else {
            self.handovers.to_come += 1;
            return self.plan_handover(env);
        };
        if running.stepped.monitor().read().tasks == 0 && self.handovers.looks < LOOKS && !env.dice.one_in(LOOKS.into())
        {
            self.handovers.looks += 1;
            let at = env.now + env.dice.micros(0, LOOK_US);
            return env.enter(at, Happening::HandOver);
        }
        self.handovers.looks = 0;
        match running.stepped.control().begin_standstill() {
            Ok(pending) => self.handovers.stage = Stage::Pending(pending),
            Err(error) => return env.fail(format!("a standstill is refused: {error}")),
        }
        env.note(|| "the target is to hand over".into());
        self.handovers.number += 1;
        self.handovers.began = Some(env.now);
        let limit = env.dice.pick(&PATIENCE_US);
        self.enter_step(limit, env);
    }

    fn enter_step(&self, most_us: u64, env: &mut Env) {
        let at = env.now + env.dice.micros(0, most_us);
        env.enter(at, Happening::HandOverStep(self.handovers.number));
    }

    /// Looks whether all sessions stand still. Tells whether that is news.
    pub(crate) fn look_at_handover(&mut self, stores: &Stores, env: &mut Env) -> bool {
        let pending = match std::mem::take(&mut self.handovers.stage) {
            Stage::Pending(pending) => pending,
            other => {
                self.handovers.stage = other;
                return false;
            }
        };
        match pending.poll() {
            Ok(standstill) => {
                self.reached(standstill, stores, env);
                true
            }
            Err(Some(pending)) => {
                self.handovers.stage = Stage::Pending(pending);
                false
            }
            // The target stops.
            Err(None) => {
                self.goes_on("handovers given up for a stop", env);
                true
            }
        }
    }

    fn reached(&mut self, mut standstill: Standstill, stores: &Stores, env: &mut Env) {
        let Some(running) = &self.running else { return };
        if stores.running() > 0 {
            env.fail("the sessions stand still, and a store works");
        }
        let is_held_up = running.device.units().iter().any(|(_, unit)| unit.holds_up_handover().is_some());
        if is_held_up || !running.freeze.is_none() {
            drop(standstill);
            return self.goes_on("handovers held up by units", env);
        }
        let sessions = standstill.take_sessions();
        let lost = standstill.lost();
        // Over a slow network an initiator may owe data for longer than is waited for.
        let was_patient = self.handovers.began.is_some_and(|began| env.now - began < PEER_PATIENCE);
        if lost > 0 && env.scenario.is_calm() {
            if was_patient {
                env.fail(format!("{lost} sessions do not go over"));
            }
            drop((standstill, sessions));
            return self.goes_on("handovers given up for initiators that owe something", env);
        }
        note(&sessions, lost, env);
        let end = env.dice.pick(&[
            End::GoneUnread,
            End::GoneRead,
            End::GoneOpened,
            End::Taken,
            End::Taken,
            End::TakenAtOnce,
            End::TakenAtOnce,
        ]);
        match Left::of(running, sessions) {
            Ok(left) => self.handovers.stage = Stage::Reached { standstill, left: Box::new(left), end },
            Err(why) => return env.fail(why),
        }
        let most = env.dice.pick(&STEP_US);
        self.handovers.number += 1;
        self.enter_step(most, env);
    }

    /// The patience is at its end, or the successor has done its next step.
    pub(crate) fn step_handover(&mut self, number: u64, stores: &Stores, env: &mut Env) {
        if number != self.handovers.number {
            return;
        }
        match std::mem::take(&mut self.handovers.stage) {
            Stage::None => {}
            Stage::Pending(pending) => {
                drop(pending);
                self.goes_on("handovers given up", env);
            }
            Stage::Reached { standstill, left, end } => {
                if end == End::GoneUnread {
                    drop((left, standstill));
                    return self.goes_on("successors gone without the state", env);
                }
                if end == End::GoneRead {
                    let read = open_device(Some(&*left), stores, &env.scenario);
                    drop((left, standstill));
                    env.check(read);
                    return self.goes_on("successors gone with the state", env);
                }
                match self.open(Some(*left), stores, env) {
                    Ok(successor) => {
                        self.handovers.stage = Stage::Opened { standstill, successor: Box::new(successor), end };
                    }
                    Err(why) => return env.fail(format!("the successor: {why}")),
                }
                let most = env.dice.pick(&STEP_US);
                self.enter_step(most, env);
            }
            Stage::Opened { standstill, successor, end: End::GoneOpened } => {
                // The order in which both are known to be gone is any.
                if env.dice.coin() {
                    drop((successor, standstill));
                } else {
                    drop((standstill, successor));
                }
                self.goes_on("successors gone before taking over", env);
            }
            Stage::Opened { standstill, successor, end } => self.taken(standstill, *successor, end, env),
        }
    }

    fn taken(&mut self, standstill: Standstill, successor: Running, end: End, env: &mut Env) {
        standstill.taken();
        let predecessor = self.running.replace(successor);
        if end != End::TakenAtOnce {
            self.handovers.leaving.extend(predecessor);
        }
        // A stop was for the predecessor.
        self.stopping = false;
        self.goes_on("handovers", env);
    }

    /// The target goes on, whichever it is.
    fn goes_on(&mut self, how: &'static str, env: &mut Env) {
        env.note(|| how.into());
        env.tally.happening(how);
        self.plan_handover(env);
        for stream in std::mem::take(&mut self.handovers.waiting) {
            if let Some(running) = self.running.as_mut().filter(|_| !self.stopping) {
                running.accept(stream);
            }
        }
    }

    /// Lets predecessors that have left come to their end.
    pub(super) fn turn_predecessors(&mut self, busy: &mut bool, env: &mut Env) -> bool {
        let mut moved = false;
        for predecessor in &mut self.handovers.leaving {
            moved |= predecessor.turn(&mut None, busy, env);
        }
        self.handovers.leaving.retain(|predecessor| !predecessor.has_ended());
        moved
    }
}

fn note(sessions: &[LeftSession], lost: usize, env: &mut Env) {
    let connections = || sessions.iter().flat_map(|session| &session.value.connections);
    let kept: usize = connections().map(|connection| connection.received.len()).sum();
    let unsent: usize = connections().map(|connection| connection.unsent.len()).sum();
    let (sessions, connections) = (sessions.len(), connections().count());
    env.note(|| {
        let bytes = format!("{kept} bytes are kept, {unsent} unsent");
        format!("{sessions} sessions with {connections} connections stand still, {bytes}, {lost} end")
    });
    env.tally.happening("standstills");
    env.tally.happenings("sessions at a standstill", sessions as u64);
    env.tally.happenings("connections at a standstill", connections as u64);
    env.tally.happenings("bytes kept at a standstill", kept as u64);
    env.tally.happenings("bytes unsent at a standstill", unsent as u64);
    env.tally.happenings("sessions that cannot go over", lost as u64);
}
