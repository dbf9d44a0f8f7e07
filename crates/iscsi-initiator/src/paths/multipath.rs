//! Drives the paths of a disk: sessions below, requests above, and the rule of `machine` between them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use lunette_pdu::Isid;
use lunette_reactor::Key;
use lunette_scsi::port_groups::{self, AccessState, Management};
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey, requests};
use lunette_session::Time;

use super::check::{self, Checked, Identity};
use super::command::changed_blocks;
use super::machine::{Action, Clearing, End, Ended, Fate, Machine, Refused};
use super::portals::portals;
use super::registration::{self, Registration};
use super::{PathState, PathStatus};
use crate::detached::detach;
use crate::engine::{Bell, Message, may_lose_cache};
use crate::limits::{MAX_UNFINISHED_REQUESTS, PATH_CONNECT_TIMEOUT, PATH_PING};
use crate::pending::{Answer, Filler, Slot};
use crate::request::{Completion, Outcome, Reply, Request, Sink};
use crate::url::Paths;
use crate::{Error, Initiator, Listener, Options, Portal, Session, SessionEvent, Url};

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
    machine: Machine<Kept>,
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

/// A request, whose buffers are here while it is not on its way.
struct Kept {
    request: Request,
    completion: Completion,
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
            state.machine.submit(Kept { request, completion }, changes.as_ref(), repeat, timeout, self.now());
        self.act(state);
        match submitted {
            Ok(_) => {}
            Err(Refused::TooMany(kept)) => {
                let (what, limit) = ("the number of unfinished requests", MAX_UNFINISHED_REQUESTS);
                kept.end(Err(Error::TooMuch { what, limit }));
            }
            Err(Refused::NoPath(kept)) => kept.end(Err(self.no_path())),
        }
    }

    /// Sends a command over each path that is there, one after the other, up to the first that refuses it. A path that
    /// is lost meanwhile gets its registration when it is made again.
    async fn on_each_path(&self, mut request: Request) -> Outcome {
        let timeout = request.timeout.unwrap_or(self.options.request_timeout);
        let (data_out, leaves) = (request.data_out.clone(), registration::registration(&request));
        let mut lives = vec![0; self.routes.len()];
        let mut last = None;
        while let Some((path, life, session)) = self.next_up(&lives) {
            lives[path] = life;
            request.data_out.clone_from(&data_out);
            let outcome = session.execute(request.send(timeout)).await;
            if judge(&outcome.result) == Ended::Lost {
                last.get_or_insert(outcome);
                continue;
            }
            if outcome.check_whole().is_err() {
                return outcome;
            }
            if let Some(registration) = leaves {
                self.lock().registration = registration;
            }
            last = Some(outcome);
        }
        last.unwrap_or_else(|| Outcome { result: Err(self.no_path()), data_in: None, data_out })
    }

    /// The first path that is up in a life that is not among `lives`, and its session.
    fn next_up(&self, lives: &[u64]) -> Option<(usize, u64, Session)> {
        let state = self.lock();
        lives.iter().enumerate().find_map(|(path, seen)| {
            let life = state.machine.life(path);
            state.machine.access(path).filter(|_| life != *seen)?;
            Some((path, life, state.sessions[path].clone()?))
        })
    }

    fn no_path(&self) -> Error {
        let paths: Vec<String> = self.status().iter().map(ToString::to_string).collect();
        Error::NoPath { paths: paths.join("; ") }
    }

    /// Does what the machine asks for, and has it woken in time. The lock is not held while others are called.
    fn act<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        while let Some(action) = state.machine.next_action() {
            if let Action::Send { request, path, timeout } = action {
                let sent = state.machine.payload(request).map(|kept| kept.request.send(timeout));
                let session = state.sessions[path].clone();
                drop(state);
                if let (Some(sent), Some(session), Some(me)) = (sent, session, self.me.upgrade()) {
                    session.submit(sent, Completion::new(me, request.to_u64()));
                }
            } else {
                self.act_seldom(action, state);
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

    #[cold]
    fn act_seldom(&self, action: Action, mut state: MutexGuard<'_, State>) {
        let Some(me) = self.me.upgrade() else { return };
        match action {
            Action::Send { .. } => {}
            Action::End { request, why } => {
                let (kept, has_path) = (state.machine.take(request), state.machine.best().is_some());
                drop(state);
                let Some(kept) = kept else { return };
                let error = match why {
                    End::TimedOut if has_path => {
                        let timeout = kept.request.timeout.unwrap_or(self.options.request_timeout);
                        Error::TimedOut { command: kept.request.name(), timeout }
                    }
                    End::TimedOut | End::NoPath => self.no_path(),
                };
                kept.end(Err(error));
            }
            Action::PowerOn => drop(self.power_ons.fetch_add(1, Ordering::Release)),
            Action::Testify { path, life, witness } => {
                let session = state.sessions[witness].clone();
                drop(state);
                detach(async move {
                    let has_answered = me.answers(session).await;
                    let mut state = me.lock();
                    state.machine.testified(path, life, witness, has_answered, me.now());
                    me.act(state);
                });
            }
            Action::Connect { path, life } => {
                drop(state);
                detach(async move {
                    let result = me.connect(path, life).await;
                    me.connected(path, life, result);
                });
            }
            Action::Close { path } => {
                tracing::warn!(portal = %self.routes[path].portal, "commands do not end; making the path again");
                let session = state.sessions[path].take();
                state.errors[path] = Some(Error::Closed);
                drop(state);
                drop(session);
            }
            Action::AskStates { path } => {
                let (session, life) = (state.sessions[path].clone(), state.machine.life(path));
                drop(state);
                let Some(session) = session else { return };
                detach(async move {
                    let told = check::states(&session, me.lun).await;
                    let mut state = me.lock();
                    match told {
                        Ok(groups) => state.machine.states(path, life, groups.as_deref(), me.now()),
                        // A lost session tells so itself; others had no buffer, or no answer in time.
                        Err(_) => state.machine.not_told(path, life, me.now()),
                    }
                    me.act(state);
                });
            }
            Action::Clear { path, way } => {
                drop(state);
                detach(async move {
                    let result = me.clear(path, way).await;
                    if let Err(error) = &result {
                        tracing::warn!(portal = %me.routes[path].portal, %error, "the commands of a path are not ended");
                    }
                    let mut state = me.lock();
                    state.machine.cleared(path, result.is_ok(), me.now());
                    me.act(state);
                });
            }
        }
    }

    /// The options of a path's session: it does not reconnect, because its requests are to take other paths.
    fn path_options(&self, path: usize, life: u64) -> Options {
        let mut options = self.options.clone();
        options.reconnect_for = Duration::ZERO;
        options.isid = Some(self.routes[path].isid);
        let (me, listener) = (Weak::clone(&self.me), self.options.listener.clone());
        let listen: Listener = Arc::new(move |event: &SessionEvent| {
            if let Some(listener) = &listener {
                listener(event);
            }
            if let Some(me) = me.upgrade() {
                me.heard(path, life, event);
            }
        });
        options.listener = Some(listen);
        options
    }

    /// Whether the disk answers a command over a session, whatever it says.
    async fn answers(&self, session: Option<Session>) -> bool {
        let Some(session) = session else { return false };
        session.execute(Request::new(self.lun, requests::test_unit_ready())).await.result.is_ok()
    }

    async fn connect(&self, path: usize, life: u64) -> Result<(Session, Checked, Registration), Error> {
        let (portal, options) = (&self.routes[path].portal, self.path_options(path, life));
        let session = Session::connect(&self.initiator, portal, &self.target, options).await?;
        let checked = check::check(&session, self.lun).await?;
        let registration = self.lock().registration;
        registration.restore(&session, self.lun).await?;
        Ok((session, checked, registration))
    }

    fn connected(&self, path: usize, life: u64, result: Result<(Session, Checked, Registration), Error>) {
        let (mut state, now) = (self.lock(), self.now());
        let portal = &self.routes[path].portal;
        // A registration that has changed meanwhile is not that of this path.
        let result = result.and_then(|(session, checked, registration)| {
            if registration == state.registration { Ok((session, checked)) } else { Err(Error::Closed) }
        });
        let checked = result.and_then(|(session, checked)| state.identify(portal, session, checked));
        let first_attempt = state.first_attempts[path].take();
        let told = match checked {
            Ok((session, checked)) => {
                if first_attempt.is_none() {
                    tracing::info!(%portal, state = ?checked.found.access, "a path to the disk is there");
                }
                (state.sessions[path], state.errors[path]) = (Some(session), None);
                state.identities[path] = Some(checked.identity);
                state.management = checked.management;
                state.machine.connected(path, life, checked.found, now);
                Ok(())
            }
            Err(error) => {
                tracing::debug!(%portal, %error, "no path to the disk");
                state.errors[path] = Some(error.clone());
                state.machine.not_connected(path, life, now);
                Err(error)
            }
        };
        self.act(state);
        if let Some(first_attempt) = first_attempt {
            first_attempt.fill(told);
        }
    }

    async fn clear(&self, path: usize, way: Clearing) -> Result<(), Error> {
        let lost = &self.routes[path].portal;
        match way {
            Clearing::Reinstate { portal_of } => {
                let portal = &self.routes[portal_of].portal;
                tracing::info!(portal = %lost, by = %portal, "reinstating the nexus of a lost path to end its tasks");
                let session =
                    Session::connect(&self.initiator, portal, &self.target, self.reinstating_options(path)).await?;
                let checked = check::check(&session, self.lun).await?;
                session.close().await?;
                self.check_nexus(path, portal, &checked)
            }
            Clearing::Reset { over } => {
                let portal = &self.routes[over].portal;
                tracing::warn!(portal = %lost, by = %portal, "resetting the logical unit to end the tasks of a lost path");
                let session = self.lock().sessions[over].clone().ok_or(Error::Closed)?;
                session.reset_logical_unit(self.lun).await
            }
            Clearing::Abort => {
                let session = self.lock().sessions[path].clone().ok_or(Error::Closed)?;
                session.abort_task_set(self.lun).await
            }
        }
    }

    /// The options of a login that only reinstates the nexus of a path. A power-on that it hears of is not told to that
    /// nexus again.
    fn reinstating_options(&self, path: usize) -> Options {
        let (me, lun) = (Weak::clone(&self.me), self.lun);
        let listen: Listener = Arc::new(move |event: &SessionEvent| {
            if let (SessionEvent::UnitAttention { lun: of, sense }, Some(me)) = (event, me.upgrade())
                && *of == lun
            {
                let mut state = me.lock();
                Self::attention(path, sense, &mut state);
                me.act(state);
            }
        });
        Options { listener: Some(listen), ..self.path_options(path, 0) }
    }

    /// Checks that a login through `portal` has reinstated the nexus of a path: it is the same target port, and the
    /// same disk behind it. A redirection may have led elsewhere, and portal groups of different gateways may have the
    /// same tag.
    fn check_nexus(&self, path: usize, portal: &Portal, reinstated: &Checked) -> Result<(), Error> {
        let state = self.lock();
        let (lost, found) = (state.machine.found(path), reinstated.found);
        if lost.portal_group != found.portal_group {
            return Err(Error::NotAgreed { what: "the target portal group" });
        }
        if lost.port_group != found.port_group {
            return Err(Error::NotAgreed { what: "the target port group" });
        }
        match &state.identities[path] {
            Some(identity) if *identity != reinstated.identity => Err(Error::OtherDisk {
                portal: portal.to_string(),
                found: reinstated.identity.to_string(),
                other_portal: self.routes[path].portal.to_string(),
                expected: identity.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// An event of a path's session, on the event loop's thread.
    fn heard(&self, path: usize, life: u64, event: &SessionEvent) {
        let mut state = self.lock();
        match event {
            SessionEvent::Over(error) => {
                tracing::warn!(portal = %self.routes[path].portal, %error, "a path to the disk is lost");
                state.errors[path] = Some(error.clone());
                state.machine.session_lost(path, life, self.now());
            }
            SessionEvent::UnitAttention { lun, sense } if *lun == self.lun => Self::attention(path, sense, &mut state),
            _ => return,
        }
        self.act(state);
    }

    fn attention(path: usize, sense: &SenseData, state: &mut State) {
        const STATES: [AdditionalSense; 2] =
            [AdditionalSense::ACCESS_STATE_CHANGED, AdditionalSense::IMPLICIT_ACCESS_STATE_TRANSITION_FAILED];
        if may_lose_cache(sense) {
            state.machine.power_on(path);
        }
        if STATES.contains(&sense.code) {
            state.machine.states_changed(path);
        }
    }

    /// The alarm that was set for this time has rung. The event loop's clock stands still within a batch, so that may
    /// be a little early.
    fn rung(&self, alarm: Time) {
        let mut state = self.lock();
        state.alarm.take_if(|next| *next == alarm);
        if self.initiator.queue().is_closed() {
            // Nothing moves any more.
            let kept = state.machine.end();
            drop(state);
            return kept.into_iter().for_each(|kept| kept.end(Err(Error::Closed)));
        }
        state.machine.time_has_come(self.now());
        self.act(state);
    }

    /// SET TARGET PORT GROUPS: makes the target port group of a path active/optimized.
    pub(crate) async fn activate(&self, portal: &Portal) -> Result<(), Error> {
        let path = self.routes.iter().position(|route| route.portal == *portal);
        let (session, group) = {
            let state = self.lock();
            let up = path.and_then(|path| Some((state.sessions[path].clone()?, state.machine.access(path)?.0)));
            let (session, group) = up.ok_or_else(|| self.no_such_path(portal, &state))?;
            let is_explicit = state.management.is_some_and(Management::is_explicit);
            (session, group.filter(|_| is_explicit).ok_or(Error::NotExplicit)?)
        };
        let list = port_groups::emit_set(&[(group, AccessState::ActiveOptimized)]);
        let mut buffer = session.buffer(list.len())?;
        buffer.copy_from_slice(&list);
        let cdb = requests::set_target_port_groups(list.len() as u32);
        session.execute(Request::new(self.lun, cdb).with_data_out(buffer.share())).await.check_whole()?;
        // The port that is asked learns of no unit attention.
        let groups = check::states(&session, self.lun).await?;
        let mut state = self.lock();
        if let Some(path) = path {
            let life = state.machine.life(path);
            state.machine.states(path, life, groups.as_deref(), self.now());
        }
        self.act(state);
        Ok(())
    }

    fn no_such_path(&self, portal: &Portal, state: &State) -> Error {
        let path = self.routes.iter().position(|route| route.portal == *portal);
        let error = path.and_then(|path| state.errors[path].clone());
        let list: Vec<String> = self.routes.iter().map(|route| route.portal.to_string()).collect();
        error.unwrap_or_else(|| Error::NoPath { paths: format!("{portal} is none of {}", list.join(", ")) })
    }
}

impl State {
    /// Checks that the disk is the one that other paths lead to.
    fn identify(&mut self, portal: &Portal, session: Session, checked: Checked) -> Result<(Session, Checked), Error> {
        let (identity, of) = self.identity.get_or_insert_with(|| (checked.identity.clone(), portal.clone()));
        if identity.is_same_unit(&checked.identity) {
            return Ok((session, checked));
        }
        Err(Error::OtherDisk {
            portal: portal.to_string(),
            found: checked.identity.to_string(),
            other_portal: of.to_string(),
            expected: identity.to_string(),
        })
    }
}

impl Sink for Multipath {
    fn complete(self: Arc<Self>, tag: u64, outcome: Outcome) {
        let request = Key::from_u64(tag);
        let Outcome { result, data_in, data_out } = outcome;
        let mut ended = judge(&result);
        let mut state = self.lock();
        let Some(kept) = state.machine.payload(request) else { return };
        // When the event loop has ended the buffers are gone.
        if ended == Ended::Lost && self.initiator.queue().is_closed() {
            ended = Ended::Answered;
        }
        (kept.request.data_in, kept.request.data_out) = (data_in, data_out);
        let fate = state.machine.ended(request, ended, self.now());
        self.act(state);
        match fate {
            Fate::Stays => {}
            Fate::Over(kept) => kept.end(result),
            Fate::InDoubt(kept) => {
                let command = kept.request.name();
                kept.end(Err(Error::InDoubt { command }));
            }
        }
    }
}

/// The meaning of the end of an attempt for its request.
fn judge(result: &Result<Reply, Error>) -> Ended {
    match result {
        Ok(reply) if reply.sense.is_empty() => Ended::Answered,
        Ok(reply) => match reply.sense_data() {
            Some(SenseData { key: SenseKey::NOT_READY, code, .. }) => {
                not_active(code).map_or(Ended::Answered, Ended::NotActive)
            }
            _ => Ended::Answered,
        },
        Err(Error::TimedOut { .. } | Error::InDoubt { .. }) => Ended::GivenUp,
        Err(
            Error::Lost { .. }
            | Error::Session { .. }
            | Error::Connect { .. }
            | Error::Redirected { .. }
            | Error::TooManyRedirects { .. }
            | Error::BadRedirect { .. }
            | Error::Closed,
        ) => Ended::Lost,
        Err(_) => Ended::Answered,
    }
}

/// The access state that refused a command (SPC-6 5.18.2.4).
fn not_active(code: AdditionalSense) -> Option<AccessState> {
    match code {
        AdditionalSense::PORT_IN_STANDBY_STATE => Some(AccessState::Standby),
        AdditionalSense::PORT_IN_UNAVAILABLE_STATE => Some(AccessState::Unavailable),
        AdditionalSense::ACCESS_STATE_TRANSITION => Some(AccessState::Transitioning),
        _ => None,
    }
}

impl Kept {
    /// Ends the request.
    fn end(self, result: Result<Reply, Error>) {
        let Request { data_in, data_out, .. } = self.request;
        self.completion.complete(Outcome { result, data_in, data_out });
    }
}

impl Request {
    /// The request as it is sent: the buffers go with it.
    fn send(&mut self, timeout: Duration) -> Self {
        Self {
            lun: self.lun,
            cdb: self.cdb,
            cdb_rest: self.cdb_rest.clone(),
            attribute: self.attribute,
            priority: self.priority,
            data_out: self.data_out.take(),
            data_in: self.data_in.take(),
            block_len: self.block_len,
            repeat: self.repeat,
            timeout: Some(timeout),
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
