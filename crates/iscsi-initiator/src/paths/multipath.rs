//! Drives the paths of a disk: sessions below, requests above, and the rule of `machine` between them.

mod activation;
mod clearing;
mod connecting;
mod each_path;
mod on_path;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use lunette_pdu::Isid;
use lunette_reactor::Key;
use lunette_scsi::Lun;
use lunette_scsi::port_groups::Management;
use lunette_session::Time;

use super::attempt::attempt_result;
use super::check::Identity;
use super::command::changed_blocks;
use super::machine::Machine;
use super::machine::action::{self, Action, AttemptResult, EndReason, Refused};
use super::portals::portals;
use super::registration::{self, Registration};
use super::request::PathRequest;
use super::status::{PathState, PathStatus};
use crate::detached::detach;
use crate::engine::message::{Bell, Message};
use crate::limits::{MAX_UNFINISHED_REQUESTS, PATH_CONNECT_TIMEOUT, PATH_PING};
use crate::pending::{Answer, Filler, Slot};
use crate::request::{Completion, Outcome, Request, Sink};
use crate::url::Paths;
use crate::{Error, Initiator, Options, Portal, Session, Url};

/// All paths of one disk.
pub(crate) struct Multipath {
    me: Weak<Self>,
    initiator: Initiator,
    target: String,
    lun: Lun,
    options: Options,
    routes: Vec<Route>,
    epoch: Instant,
    power_ons: AtomicU64,
    state: Mutex<State>,
}

/// The data from which a path is made. Its ISID stays the same, so that each login reinstates the nexus of the one
/// before.
struct Route {
    portal: Portal,
    isid: Isid,
}

struct State {
    machine: Machine<PathRequest>,
    sessions: Vec<Option<Session>>,
    /// Why paths are down.
    errors: Vec<Option<Error>>,
    /// The disk behind the first path that was checked, and its portal.
    identity: Option<(Identity, Portal)>,
    /// The disk behind each path, as it said itself when the path was made last.
    identities: Vec<Option<Identity>>,
    management: Option<Management>,
    /// The registration of the nexuses of all paths (PERSISTENT RESERVE OUT).
    registration: Registration,
    /// Told of the ends of the first attempts to connect.
    first_attempts: Vec<Option<Filler<()>>>,
    /// When the machine is due, as far as the event loop knows.
    alarm: Option<Time>,
}

impl Multipath {
    /// Connects all paths, and waits until each was made or has failed.
    pub(crate) async fn open(
        initiator: &Initiator,
        url: &Url,
        paths: &Paths,
        mut options: Options,
    ) -> Result<Arc<Self>, Error> {
        let (target, lun) = (url.plain_target()?, url.lun.unwrap_or(Lun::ZERO));
        options.timers.ping_after = options.timers.ping_after.min(PATH_PING);
        options.timers.ping_answer = options.timers.ping_answer.min(PATH_PING);
        options.connect_timeout = options.connect_timeout.min(PATH_CONNECT_TIMEOUT);
        let portals = portals(initiator, &url.portal(), target, paths, &options).await?;
        let mut routes = Vec::with_capacity(portals.len());
        for portal in portals {
            routes.push(Route { portal, isid: random_isid()? });
        }
        let slots: Vec<_> = routes.iter().map(|_| Slot::new()).collect();
        let state = State {
            machine: Machine::new(routes.len(), options.reconnect_for),
            sessions: routes.iter().map(|_| None).collect(),
            errors: routes.iter().map(|_| None).collect(),
            identity: None,
            identities: routes.iter().map(|_| None).collect(),
            management: None,
            registration: Registration::default(),
            first_attempts: slots.iter().map(|slot| Some(Filler(Arc::clone(slot)))).collect(),
            alarm: None,
        };
        let multipath = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            initiator: initiator.clone(),
            target: target.into(),
            lun,
            options,
            routes,
            epoch: Instant::now(),
            power_ons: AtomicU64::new(0),
            state: Mutex::new(state),
        });
        multipath.act(multipath.lock());
        let mut failed = Vec::new();
        for slot in slots {
            failed.extend(Answer(slot).await.err());
        }
        if let Some(wrong) = failed.iter().find(|error| matches!(error, Error::OtherDisk { .. })) {
            return Err(wrong.clone());
        }
        match failed.into_iter().next() {
            Some(error) if multipath.lock().sessions.iter().all(Option::is_none) => Err(error),
            _ => Ok(multipath),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::new(self.epoch.elapsed())
    }

    pub(crate) fn power_ons(&self) -> u64 {
        self.power_ons.load(Ordering::Acquire)
    }

    /// The session of the best path, or of any that is up.
    pub(crate) fn session(&self) -> Option<Session> {
        let state = self.lock();
        let best = state.machine.best().and_then(|path| state.sessions[path].clone());
        best.or_else(|| state.sessions.iter().flatten().next().cloned())
    }

    pub(crate) fn status(&self) -> Vec<PathStatus> {
        let state = self.lock();
        let status = |(path, route): (usize, &Route)| {
            let (port_group, path_state) = match (state.machine.access(path), &state.errors[path]) {
                (Some((group, access)), _) => (group, PathState::Up(access)),
                (None, Some(error)) => (None, PathState::Down(error.clone())),
                (None, None) => (None, PathState::Connecting),
            };
            PathStatus { portal: route.portal.clone(), port_group, state: path_state }
        };
        self.routes.iter().enumerate().map(status).collect()
    }

    /// Sends a command over the best path; `completion` is told of its end.
    pub(crate) fn submit(&self, request: Request, completion: Completion) {
        if registration::is_for_each_path(&request)
            && let Some(me) = self.me.upgrade()
        {
            return detach(async move { completion.complete(me.on_each_path(request).await) });
        }
        let (changes, repeat) = (changed_blocks(&request), request.repeat);
        let timeout = request.timeout.unwrap_or(self.options.request_timeout);
        let mut state = self.lock();
        let submitted =
            state.machine.submit(PathRequest { request, completion }, changes.as_ref(), repeat, timeout, self.now());
        self.act(state);
        match submitted {
            Ok(_) => {}
            Err(Refused::TooMany(entry)) => {
                let (what, limit) = ("the number of unfinished requests", MAX_UNFINISHED_REQUESTS);
                entry.end(Err(Error::TooMuch { what, limit }));
            }
            Err(Refused::NoPath(entry)) => entry.end(Err(self.no_path())),
        }
    }

    /// Sends a command over each path that is there, one after the other, up to the first that refuses it. A path that
    fn no_path(&self) -> Error {
        let paths: Vec<String> = self.status().iter().map(ToString::to_string).collect();
        Error::NoPath { paths: paths.join("; ") }
    }

    /// Does what the machine asks for, and has it woken in time. The lock is not held while others are called.
    fn act<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        while let Some(action) = state.machine.next_action() {
            match action {
                Action::Send { request, path, timeout } => {
                    let sent = state.machine.payload(request).map(|entry| entry.request.send(timeout));
                    let session = state.sessions[path].clone();
                    drop(state);
                    if let (Some(sent), Some(session), Some(me)) = (sent, session, self.me.upgrade()) {
                        session.submit(sent, Completion::new(me, request.to_u64()));
                    }
                }
                Action::End { request, why } => self.end(request, why, state),
                Action::PowerOn => {
                    drop(state);
                    self.power_ons.fetch_add(1, Ordering::Release);
                }
                Action::OnPath(path, action) => self.act_on_path(path, action, state),
            }
            state = self.lock();
        }
        let next = state.machine.next_timeout();
        let is_new = next.is_some_and(|next| state.alarm.is_none_or(|alarm| next < alarm));
        if is_new {
            state.alarm = next;
        }
        drop(state);
        if let Some(next) = next.filter(|_| is_new) {
            let me = Weak::clone(&self.me);
            let bell = Bell::new(move || me.upgrade().into_iter().for_each(|me| me.rung(next)));
            self.initiator.queue().push(Message::Alarm { after: next - self.now(), bell });
        }
    }

    /// Ends a request that no path has.
    #[cold]
    fn end(&self, request: Key, why: EndReason, mut state: MutexGuard<'_, State>) {
        let (entry, has_path) = (state.machine.take(request), state.machine.best().is_some());
        drop(state);
        let Some(entry) = entry else { return };
        let error = match why {
            EndReason::TimedOut if has_path => {
                let timeout = entry.request.timeout.unwrap_or(self.options.request_timeout);
                Error::TimedOut { command: entry.request.name(), timeout }
            }
            EndReason::TimedOut | EndReason::NoPath => self.no_path(),
        };
        entry.end(Err(error));
    }

    /// The alarm that was set for this time has rung. The event loop's clock stands still within a batch, so that may
    /// be a little early.
    fn rung(&self, alarm: Time) {
        let mut state = self.lock();
        state.alarm.take_if(|next| *next == alarm);
        if self.initiator.queue().is_closed() {
            // Nothing moves any more.
            let left = state.machine.close_all();
            drop(state);
            return left.into_iter().for_each(|entry| entry.end(Err(Error::Closed)));
        }
        state.machine.time_has_come(self.now());
        self.act(state);
    }
}

impl Sink for Multipath {
    fn complete(self: Arc<Self>, tag: u64, outcome: Outcome) {
        let request = Key::from_u64(tag);
        let Outcome { result, data_in, data_out } = outcome;
        let mut attempt = attempt_result(&result);
        let mut state = self.lock();
        let Some(entry) = state.machine.payload(request) else { return };
        // When the event loop has ended the buffers are gone.
        if attempt == AttemptResult::Lost && self.initiator.queue().is_closed() {
            attempt = AttemptResult::Answered;
        }
        (entry.request.data_in, entry.request.data_out) = (data_in, data_out);
        let outcome = state.machine.attempt_ended(request, attempt, self.now());
        self.act(state);
        match outcome {
            action::Outcome::Continues => {}
            action::Outcome::Ended(entry) => entry.end(result),
            action::Outcome::InDoubt(entry) => {
                let command = entry.request.name();
                entry.end(Err(Error::InDoubt { command }));
            }
        }
    }
}

/// RFC 7143 section 11.12.5: type 10b, a random number.
fn random_isid() -> Result<Isid, Error> {
    const RANDOM: u8 = 0x80;
    let mut bytes = [0; 6];
    getrandom::fill(&mut bytes[1..]).map_err(|error| Error::Reactor(Arc::new(std::io::Error::other(error))))?;
    bytes[0] = RANDOM;
    Ok(Isid(bytes))
}
