//! Which path a request takes, and when it takes another: a state machine without I/O and clock.
//!
//! The rules:
//!
//! - A request goes over a path in the best access state (active/optimized before active/non-optimized) with the fewest
//!   requests under way; equal paths take turns.
//! - A request that a port in standby or unavailable state refused did not run, and goes over another path.
//! - A request whose path was lost may have run. [`Repeat::Always`] requests go over another path; all others end in
//!   doubt.
//! - Writes of the same blocks take turns, and wait for copies that a lost path may still carry ([`Claims`]). Such a
//!   path is *cleared* by a login that reinstates its nexus, which ends its tasks (RFC 7143 section 6.3.5): its own
//!   next one, or one through another portal of its portal group. When a write waits and there is no such portal,
//!   LOGICAL UNIT RESET over another path ends them.
//! - A write that was given up over a path that is there may still run, too. ABORT TASK SET over that path ends it,
//!   when a write waits; a path that does not answer that is closed.
//! - LOGICAL UNIT RESET ends the requests of our other paths as well, and no target says so to those. ABORT TASK SET on
//!   each of them makes their sessions send again what was ended.
//! - A new nexus that hears of a power-on carries nothing before another path has shown that its own nexus outlived it;
//!   else the power-on counts ([`Action::PowerOn`]). A disk that was not written has nothing to lose.
//! - A path on which no request ends for a while is closed when another path reports that its port does not have the
//!   disk any more: what stands between that port and the disk may be cut, while the port still answers pings.
//! - A path that is lost again before it has answered a request is made again later and later. Else a request that each
//!   path loses would be sent [`MAX_REPEATS`] times within a second.
//! - A request ends exactly once.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use lunette_reactor::{Key, Slab};
use lunette_scsi::answers::PortGroup;
use lunette_scsi::port_groups::AccessState;
use lunette_session::Time;

use super::claims::Claims;
use crate::Repeat;
use crate::limits::{
    CLEAR_PAUSE, FIRST_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE, MAX_REPEATS, MAX_UNFINISHED_REQUESTS, PATH_PING,
    PROVEN_AFTER, STATES_INTERVAL, STATES_PAUSE, TIMEOUT_TICK,
};

/// The actions of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Send a request over a path. It has this much time left.
    Send { request: Key, path: usize, timeout: Duration },
    /// End a request, which no path has.
    End { request: Key, why: End },
    /// Log in, and check what is there. `life` tells this login's events from those of earlier ones.
    Connect { path: usize, life: u64 },
    /// Close the session of a path.
    Close { path: usize },
    /// Count a power-on: what the disk had in its cache may be lost.
    PowerOn,
    /// Send TEST UNIT READY over `witness`. An answer shows that its nexus survived, so the POWER ON of `path` only
    /// announced a new nexus.
    Testify { path: usize, life: u64, witness: usize },
    /// Ask for the access states of all target port groups.
    AskStates { path: usize },
    /// Make sure that nothing that was sent over `path` can run any more.
    Clear { path: usize, way: Clearing },
}

/// How a lost path is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clearing {
    /// Reinstate its nexus by a login through the portal of this path, which is in the same portal group.
    Reinstate { portal_of: usize },
    /// LOGICAL UNIT RESET over this path.
    Reset { over: usize },
    /// ABORT TASK SET over the path itself, which is there.
    Abort,
}

/// Why a request ends that no path has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The time of the request is over.
    TimedOut,
    /// No path existed for as long as the disk waits for one.
    NoPath,
}

/// How an attempt over a path has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// With an answer, or an error, that is for the caller.
    Answered,
    /// The port is in this state, and the command did not run.
    NotActive(AccessState),
    /// The session was lost.
    Lost,
    /// The request was given up, and may still run.
    GivenUp,
}

/// The fate of a request after an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate<T> {
    /// The request goes over another path; an action follows.
    Stays,
    /// The request ends with the outcome of the attempt.
    Over(T),
    /// The attempt was lost, and the request must not run twice.
    InDoubt(T),
}

/// The facts that the driver has found behind a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// The target portal group tag of the login.
    pub(super) portal_group: Option<u16>,
    /// The target port group of the path, with ALUA.
    pub(super) port_group: Option<u16>,
    pub(super) access: AccessState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Connecting,
    /// Logged in and checked. Another path is asked whether the power-on that this one has heard of is one.
    Proving(Found),
    /// The path carries requests.
    Up,
    /// To be connected again at this time.
    Down {
        until: Time,
    },
}

struct Path {
    link: Link,
    /// The number of the last login.
    life: u64,
    /// Attempts to connect, and lives, that have ended since it last proved itself: by a request that was answered, or
    /// by a life of [`PROVEN_AFTER`].
    failures: u32,
    up_since: Time,
    found: Found,
    in_flight: usize,
    /// When a request ended last, or the first one was sent.
    moved_at: Time,
    /// The generation before which no sent command can still run.
    cleared_before: u64,
    /// When it may be cleared over another path.
    clear_at: Time,
    clearing: Option<Clearing>,
    /// Whether something was lost or given up since the action that clears it was asked for, which may have come before
    /// that.
    lost_meanwhile: bool,
    /// Whether a login through another portal could not reinstate its nexus since it was lost.
    is_not_reinstated: bool,
    /// Whether it has heard of a power-on that was neither counted nor shown to be none.
    has_heard_power_on: bool,
    /// Whether a nexus in another portal group, where it was logged in before, may run what it was sent.
    has_moved: bool,
    is_asking: bool,
    /// When access states are asked for next, unless the path is active.
    ask_at: Time,
}

impl Path {
    fn new() -> Self {
        Self {
            link: Link::Connecting,
            life: 0,
            failures: 0,
            up_since: Time::default(),
            found: Found { portal_group: None, port_group: None, access: AccessState::Unavailable },
            in_flight: 0,
            moved_at: Time::default(),
            cleared_before: 0,
            clear_at: Time::default(),
            clearing: None,
            lost_meanwhile: false,
            is_not_reinstated: false,
            has_heard_power_on: false,
            has_moved: false,
            is_asking: false,
            ask_at: Time::default(),
        }
    }

    fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// When its requests under way have made no progress for too long.
    fn stands_still_at(&self) -> Option<Time> {
        (self.is_up() && self.in_flight > 0).then(|| self.moved_at + PATH_PING)
    }

    /// The place of the path in the order of preference, when it takes commands.
    fn rank(&self) -> Option<u8> {
        match self.found.access {
            AccessState::ActiveOptimized if self.is_up() => Some(0),
            AccessState::ActiveNonOptimized if self.is_up() => Some(1),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for its blocks.
    Claiming,
    /// Waits for a path.
    Ready,
    Sent {
        path: usize,
        life: u64,
    },
    /// An action ends it.
    Over,
}

struct Entry<T> {
    payload: T,
    repeat: Repeat,
    deadline: Time,
    stage: Stage,
    attempts: u32,
    /// The request's place among all, in the order of submission.
    order: u64,
}

/// The paths of a disk and its requests, each with a `T` of the driver's.
pub(super) struct Machine<T> {
    paths: Vec<Path>,
    requests: Slab<Entry<T>>,
    /// Requests that wait for a path, by their order.
    ready: BTreeMap<u64, Key>,
    claims: Claims,
    actions: VecDeque<Action>,
    last_order: u64,
    /// The path after the one that was chosen last.
    turn: usize,
    /// Whether any request could change the disk.
    is_written: bool,
    /// How long requests wait without a path.
    reconnect_for: Duration,
    /// Since when there has been no path.
    pathless_since: Option<Time>,
    /// No path came back in time.
    is_over: bool,
    /// When the deadlines of requests that wait are checked next.
    check_at: Option<Time>,
}

impl<T> Machine<T> {
    /// Paths that are to be connected at once.
    pub(super) fn new(paths: usize, reconnect_for: Duration) -> Self {
        let mut machine = Self {
            paths: (0..paths).map(|_| Path::new()).collect(),
            requests: Slab::default(),
            ready: BTreeMap::new(),
            claims: Claims::default(),
            actions: VecDeque::new(),
            last_order: 0,
            turn: 0,
            is_written: false,
            reconnect_for,
            pathless_since: None,
            is_over: false,
            check_at: None,
        };
        for path in 0..paths {
            machine.connect(path);
        }
        machine
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The driver's part of a request.
    pub(super) fn payload(&mut self, request: Key) -> Option<&mut T> {
        self.requests.get_mut(request).map(|entry| &mut entry.payload)
    }

    /// Takes what is left of a request that an action has ended.
    pub(super) fn take(&mut self, request: Key) -> Option<T> {
        self.requests.remove(request).map(|entry| entry.payload)
    }

    /// The target port group and access state of a path, while it is up.
    pub(super) fn access(&self, path: usize) -> Option<(Option<u16>, AccessState)> {
        let path = &self.paths[path];
        path.is_up().then_some((path.found.port_group, path.found.access))
    }

    /// The number of a path's last login.
    pub(super) fn life(&self, path: usize) -> u64 {
        self.paths[path].life
    }

    /// The facts found behind a path when it was last there.
    pub(super) fn found(&self, path: usize) -> Found {
        self.paths[path].found
    }

    /// Gives all requests back: nothing moves any more.
    pub(super) fn end(&mut self) -> Vec<T> {
        self.is_over = true;
        self.ready.clear();
        self.claims = Claims::default();
        self.requests.drain().map(|entry| entry.payload).collect()
    }

    /// The best path.
    pub(super) fn best(&self) -> Option<usize> {
        let count = self.paths.len();
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let ranked = in_turn.filter_map(|path| Some((self.paths[path].rank()?, self.paths[path].in_flight, path)));
        // Of equal ones the first in turn.
        ranked.min_by_key(|(rank, in_flight, _)| (*rank, *in_flight)).map(|(_, _, path)| path)
    }

    /// Accepts a request. Gives it back when there are too many, or no path came back in time.
    pub(super) fn submit(
        &mut self,
        payload: T,
        changes: Option<&Range<u64>>,
        repeat: Repeat,
        timeout: Duration,
        now: Time,
    ) -> Result<Key, Refused<T>> {
        if self.is_over {
            return Err(Refused::NoPath(payload));
        }
        if self.requests.len() >= MAX_UNFINISHED_REQUESTS {
            return Err(Refused::TooMany(payload));
        }
        self.last_order += 1;
        let key = self.requests.next_key();
        let (order, deadline) = (self.last_order, now + timeout);
        self.is_written |= changes.is_some();
        let has_claim = changes.is_none_or(|blocks| self.claims.claim(order, key, blocks));
        let stage = if has_claim { Stage::Ready } else { Stage::Claiming };
        self.requests.insert(Entry { payload, repeat, deadline, stage, attempts: 0, order });
        if !has_claim || !self.route(key, now) {
            self.settle(now);
        }
        Ok(key)
    }

    /// Sends a request that has its claim. False when it waits for a path.
    fn route(&mut self, key: Key, now: Time) -> bool {
        let Some(entry) = self.requests.get_mut(key) else { return false };
        entry.stage = Stage::Ready;
        let order = entry.order;
        let path = self.best().filter(|_| self.ready.is_empty());
        match path {
            Some(path) => self.send(key, path, now),
            None => drop(self.ready.insert(order, key)),
        }
        path.is_some()
    }

    fn send(&mut self, key: Key, path: usize, now: Time) {
        let Some(entry) = self.requests.get_mut(key) else { return };
        let life = self.paths[path].life;
        entry.stage = Stage::Sent { path, life };
        entry.attempts += 1;
        self.actions.push_back(Action::Send { request: key, path, timeout: entry.deadline - now });
        let this = &mut self.paths[path];
        if this.in_flight == 0 {
            this.moved_at = now;
        }
        this.in_flight += 1;
        self.turn = (path + 1) % self.paths.len();
    }

    /// An attempt has ended.
    pub(super) fn ended(&mut self, request: Key, ended: Ended, now: Time) -> Fate<T> {
        let fate = self.decide(request, ended, now);
        self.settle(now);
        fate
    }

    fn decide(&mut self, request: Key, ended: Ended, now: Time) -> Fate<T> {
        let Some(entry) = self.requests.get_mut(request) else { return Fate::Stays };
        let Stage::Sent { path, life } = entry.stage else { return Fate::Stays };
        let may_go_on = entry.attempts <= MAX_REPEATS;
        let repeat = entry.repeat;
        let this = &mut self.paths[path];
        if this.life == life {
            (this.in_flight, this.moved_at) = (this.in_flight.saturating_sub(1), now);
            if matches!(ended, Ended::Answered | Ended::NotActive(_)) {
                this.failures = 0;
            }
        }
        match ended {
            Ended::Answered => Fate::Over(self.finish(request)),
            Ended::NotActive(state) => {
                if self.paths[path].life == life {
                    self.paths[path].found.access = state;
                    self.ask_states(path);
                }
                if repeat == Repeat::Never || !may_go_on {
                    return Fate::Over(self.finish(request));
                }
                self.route(request, now);
                Fate::Stays
            }
            Ended::Lost => {
                self.lost(path, life, now);
                self.strayed(request, path, life);
                if repeat == Repeat::Always && may_go_on {
                    self.route(request, now);
                    return Fate::Stays;
                }
                Fate::InDoubt(self.finish(request))
            }
            Ended::GivenUp => {
                let this = &mut self.paths[path];
                if this.life == life && this.is_up() {
                    (this.clear_at, this.lost_meanwhile) = (now, true);
                }
                self.strayed(request, path, life);
                Fate::Over(self.finish(request))
            }
        }
    }

    /// A copy of a request may be under way over a lost path.
    fn strayed(&mut self, request: Key, path: usize, life: u64) {
        if life >= self.paths[path].cleared_before
            && let Some(entry) = self.requests.get(request)
        {
            self.claims.strayed(entry.order, path);
        }
    }

    /// Takes a request that has ended out of all lists.
    fn finish(&mut self, request: Key) -> T {
        let entry = self.requests.remove(request).expect("the request is there");
        self.claims.end(entry.order);
        self.ready.remove(&entry.order);
        entry.payload
    }

    /// Ends a request that no path has. The driver takes its payload when it comes to the action.
    fn give_up(&mut self, request: Key, why: End) {
        let Some(entry) = self.requests.get_mut(request) else { return };
        self.claims.end(entry.order);
        self.ready.remove(&entry.order);
        entry.stage = Stage::Over;
        self.actions.push_back(Action::End { request, why });
    }

    fn connect(&mut self, path: usize) {
        let Path { link, life, .. } = &mut self.paths[path];
        *link = Link::Connecting;
        *life += 1;
        self.actions.push_back(Action::Connect { path, life: *life });
    }

    /// A path is logged in and checked.
    pub(super) fn connected(&mut self, path: usize, life: u64, found: Found, now: Time) {
        let this = &mut self.paths[path];
        if this.life != life || this.link != Link::Connecting {
            return;
        }
        if this.has_heard_power_on && self.is_written {
            self.paths[path].link = Link::Proving(found);
            return self.prove(path, 0, now);
        }
        let is_alone = !self.paths.iter().any(Path::is_up);
        self.come_up(path, found, is_alone, now);
    }

    /// Asks the next path, from `first` on, whether its nexus has outlived the power-on that a new nexus has heard of.
    fn prove(&mut self, path: usize, first: usize, now: Time) {
        let Link::Proving(found) = self.paths[path].link else { return };
        let witness = (first..self.paths.len()).find(|at| self.paths[*at].is_up());
        match witness {
            Some(witness) => {
                let life = self.paths[path].life;
                self.actions.push_back(Action::Testify { path, life, witness });
            }
            None => self.come_up(path, found, true, now),
        }
    }

    /// The disk has answered over `witness`, or has not.
    pub(super) fn testified(&mut self, path: usize, life: u64, witness: usize, has_answered: bool, now: Time) {
        let this = &self.paths[path];
        match this.link {
            Link::Proving(found) if this.life == life && has_answered => self.come_up(path, found, false, now),
            Link::Proving(_) if this.life == life => self.prove(path, witness + 1, now),
            _ => {}
        }
    }

    /// A path carries requests from now on. A power-on that it has heard of counts, or was shown to be none.
    fn come_up(&mut self, path: usize, found: Found, power_on_counts: bool, now: Time) {
        let this = &mut self.paths[path];
        if std::mem::take(&mut this.has_heard_power_on) && power_on_counts {
            self.actions.push_back(Action::PowerOn);
        }
        let is_first = this.cleared_before == 0;
        // Another portal group is another nexus: the target was redirected.
        this.has_moved |= !is_first && this.found.portal_group != found.portal_group;
        let is_reinstated = !this.has_moved;
        (this.link, this.up_since, this.in_flight, this.found) = (Link::Up, now, 0, found);
        (this.is_asking, this.ask_at) = (false, now + STATES_PAUSE);
        self.pathless_since = None;
        if is_reinstated {
            self.cleared_before(path, self.paths[path].life);
        }
        self.settle(now);
    }

    fn cleared_before(&mut self, path: usize, life: u64) {
        self.paths[path].cleared_before = life;
        self.claims.cleared(path);
    }

    /// A path could not be connected.
    pub(super) fn not_connected(&mut self, path: usize, life: u64, now: Time) {
        if self.paths[path].life == life && self.paths[path].link == Link::Connecting {
            self.down(path, now);
            self.settle(now);
        }
    }

    /// The session of a path was lost.
    pub(super) fn session_lost(&mut self, path: usize, life: u64, now: Time) {
        self.lost(path, life, now);
        self.settle(now);
    }

    fn lost(&mut self, path: usize, life: u64, now: Time) {
        let this = &mut self.paths[path];
        if this.life == life && (this.is_up() || matches!(this.link, Link::Proving(_))) {
            (this.clear_at, this.lost_meanwhile, this.is_not_reinstated) = (now + CLEAR_PAUSE, true, false);
            if this.is_up() && now - this.up_since >= PROVEN_AFTER {
                this.failures = 0;
            }
            self.down(path, now);
        }
    }

    fn down(&mut self, path: usize, now: Time) {
        let this = &mut self.paths[path];
        // The last attempt has to end before the disk waits no longer.
        let longest = MAX_RECONNECT_PAUSE.min(self.reconnect_for / 4).max(FIRST_RECONNECT_PAUSE);
        let pause = FIRST_RECONNECT_PAUSE.saturating_mul(1 << this.failures.min(16)).min(longest);
        this.failures += 1;
        this.in_flight = 0;
        this.link = Link::Down { until: now + pause };
        if !self.paths.iter().any(Path::is_up) {
            self.pathless_since.get_or_insert(now);
        }
    }

    /// A path has reported another access state, or a command was refused for one.
    pub(super) fn states_changed(&mut self, path: usize) {
        self.ask_states(path);
    }

    fn ask_states(&mut self, path: usize) {
        let this = &mut self.paths[path];
        if this.is_up() && !std::mem::replace(&mut this.is_asking, true) {
            self.actions.push_back(Action::AskStates { path });
        }
    }

    /// The answer about access states that came over a path, for all groups; `None` if there is none. A path whose
    /// state cannot be known is tried.
    pub(super) fn states(&mut self, path: usize, life: u64, groups: Option<&[PortGroup]>, now: Time) {
        if self.paths[path].life != life {
            return;
        }
        (self.paths[path].is_asking, self.paths[path].ask_at) = (false, now + STATES_PAUSE);
        for (at, path_at) in self.paths.iter_mut().enumerate() {
            let told = groups.unwrap_or_default().iter().find(|group| Some(group.group) == path_at.found.port_group);
            match told {
                Some(group) => path_at.found.access = group.state,
                None if at == path => path_at.found.access = AccessState::ActiveOptimized,
                None => {}
            }
        }
        self.leave_ports_without_disk(path, now);
        self.settle(now);
    }

    /// Closes paths that stand still and whose ports, as `witness` has told, do not have the disk any more. Without an
    /// active path they may yet answer.
    fn leave_ports_without_disk(&mut self, witness: usize, now: Time) {
        if self.best().is_none() {
            return;
        }
        for path in 0..self.paths.len() {
            let this = &self.paths[path];
            if path != witness && this.rank().is_none() && this.stands_still_at().is_some_and(|at| at <= now) {
                self.close(path, now);
            }
        }
    }

    /// A path gave no answer about access states. It is asked again, unless it is lost.
    pub(super) fn not_told(&mut self, path: usize, life: u64, now: Time) {
        let this = &mut self.paths[path];
        if this.life == life {
            (this.is_asking, this.ask_at) = (false, now + STATES_PAUSE);
            self.settle(now);
        }
    }

    /// A path was cleared, or could not be.
    pub(super) fn cleared(&mut self, path: usize, is_done: bool, now: Time) {
        let this = &mut self.paths[path];
        let way = this.clearing.take();
        this.clear_at = now + CLEAR_PAUSE;
        if is_done && !this.lost_meanwhile {
            this.has_moved = false;
            // What is sent by the next login, or by the one that is there or being made, is no stray.
            let is_down = matches!(this.link, Link::Down { .. });
            let life = this.life + u64::from(is_down);
            self.cleared_before(path, life);
        }
        match way {
            Some(Clearing::Reset { over }) if is_done => self.abort_beside(over),
            Some(Clearing::Reinstate { .. }) => self.paths[path].is_not_reinstated = !is_done,
            Some(Clearing::Abort) if !is_done => self.give_up_path(path, now),
            _ => {}
        }
        self.settle(now);
    }

    /// A reset over one path has ended what the others had, and their sessions do not know.
    fn abort_beside(&mut self, over: usize) {
        for path in 0..self.paths.len() {
            let this = &self.paths[path];
            if path != over && this.is_up() && this.in_flight > 0 && this.clearing.is_none() {
                self.clear(path, Clearing::Abort);
            }
        }
    }

    /// A path does not end its tasks. One that was lost since is another one.
    fn give_up_path(&mut self, path: usize, now: Time) {
        let this = &self.paths[path];
        if this.is_up() && !this.lost_meanwhile {
            self.close(path, now);
        }
    }

    fn close(&mut self, path: usize, now: Time) {
        self.actions.push_back(Action::Close { path });
        self.lost(path, self.paths[path].life, now);
    }

    /// A path has heard of a power-on.
    pub(super) fn power_on(&mut self, path: usize) {
        if self.paths[path].is_up() {
            self.actions.push_back(Action::PowerOn);
        } else {
            self.paths[path].has_heard_power_on = true;
        }
    }

    /// Does what an event has made possible.
    fn settle(&mut self, now: Time) {
        while let Some(key) = self.claims.next_free() {
            self.route(key, now);
        }
        while !self.ready.is_empty()
            && let Some(path) = self.best()
            && let Some((_, key)) = self.ready.pop_first()
        {
            self.send(key, path, now);
        }
        self.look_for_active_paths(now);
        self.clear_paths(now);
        let is_waiting = !self.ready.is_empty() || self.claims.has_waiting();
        self.check_at = is_waiting.then(|| self.check_at.unwrap_or(now + TIMEOUT_TICK));
    }

    /// Asks paths that are not active for their states: often while a request waits for one, another path stands still,
    /// or a group is in transition; seldom otherwise.
    fn look_for_active_paths(&mut self, now: Time) {
        for path in 0..self.paths.len() {
            if self.paths[path].is_up() && self.paths[path].rank().is_none() && self.ask_time(path) <= now {
                self.ask_states(path);
            }
        }
    }

    fn ask_time(&self, path: usize) -> Time {
        let Path { found, ask_at, .. } = &self.paths[path];
        if !self.ready.is_empty() || found.access == AccessState::Transitioning {
            return *ask_at;
        }
        let seldom = *ask_at + STATES_INTERVAL;
        let stands_still = self.paths.iter().filter_map(Path::stands_still_at).min();
        stands_still.map_or(seldom, |at| seldom.min(at.max(*ask_at)))
    }

    /// Clears paths whose strays hold up a write.
    fn clear_paths(&mut self, now: Time) {
        for path in 0..self.paths.len() {
            let this = &self.paths[path];
            if this.clear_at <= now
                && this.clearing.is_none()
                && self.claims.is_held_up_by(path)
                && let Some(way) = self.way_to_clear(path)
            {
                self.clear(path, way);
            }
        }
    }

    fn clear(&mut self, path: usize, way: Clearing) {
        (self.paths[path].clearing, self.paths[path].lost_meanwhile) = (Some(way), false);
        self.actions.push_back(Action::Clear { path, way });
    }

    fn way_to_clear(&self, path: usize) -> Option<Clearing> {
        let this = &self.paths[path];
        if this.is_up() && !this.has_moved {
            return Some(Clearing::Abort);
        }
        let nexus = |found: &Found| (found.portal_group, found.port_group);
        let up = || self.paths.iter().enumerate().filter(|(_, other)| other.is_up());
        let is_known = this.found.portal_group.is_some() && !this.has_moved && !this.is_not_reinstated;
        let sibling = up().find(|(at, other)| *at != path && is_known && nexus(&other.found) == nexus(&this.found));
        if let Some((portal_of, _)) = sibling {
            return Some(Clearing::Reinstate { portal_of });
        }
        self.best().or_else(|| up().next().map(|(at, _)| at)).map(|over| Clearing::Reset { over })
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let paths = self.paths.iter().enumerate().filter_map(|(at, path)| match path.link {
            Link::Down { until } if !self.is_over => Some(until),
            Link::Up if path.rank().is_none() && !path.is_asking => Some(self.ask_time(at)),
            _ => None,
        });
        let clearing = (0..self.paths.len()).filter_map(|path| {
            let this = &self.paths[path];
            let is_due =
                this.clearing.is_none() && self.claims.is_held_up_by(path) && self.way_to_clear(path).is_some();
            is_due.then_some(this.clear_at)
        });
        let over = self.pathless_since.map(|since| since + self.reconnect_for).filter(|_| !self.is_over);
        paths.chain(clearing).chain(over).chain(self.check_at).min()
    }

    pub(super) fn time_has_come(&mut self, now: Time) {
        for path in 0..self.paths.len() {
            if matches!(self.paths[path].link, Link::Down { until } if until <= now) && !self.is_over {
                self.connect(path);
            }
        }
        if self.pathless_since.is_some_and(|since| since + self.reconnect_for <= now) {
            self.is_over = true;
            self.end_waiting(End::NoPath, |_| true);
        }
        if self.check_at.take_if(|at| *at <= now).is_some() {
            self.end_waiting(End::TimedOut, |deadline| deadline <= now);
        }
        self.settle(now);
    }

    /// Ends requests that no path has.
    fn end_waiting(&mut self, why: End, is_due: impl Fn(Time) -> bool) {
        let waiting = self.requests.iter().filter(|(_, entry)| matches!(entry.stage, Stage::Claiming | Stage::Ready));
        let due: Vec<Key> = waiting.filter(|(_, entry)| is_due(entry.deadline)).map(|(key, _)| key).collect();
        for key in due {
            self.give_up(key, why);
        }
    }
}

/// A request that was not accepted.
#[derive(Debug)]
pub(super) enum Refused<T> {
    TooMany(T),
    NoPath(T),
}
