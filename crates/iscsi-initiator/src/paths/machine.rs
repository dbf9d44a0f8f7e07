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
//!   else the power-on counts ([`Action::PowerOn`](action::Action::PowerOn)). A disk that was not written has nothing
//!   to lose.
//! - A path on which no request ends for a while is closed when another path reports that its port does not have the
//!   disk any more: what stands between that port and the disk may be cut, while the port still answers pings.
//! - A path that is lost again before it has answered a request is made again later and later. Else a request that each
//!   path loses would be sent [`MAX_REPEATS`] times within a second.
//! - A request ends exactly once.

#[cfg(test)]
mod tests;

pub(super) mod action;
mod clearing;
mod links;
pub(super) mod path;
mod proving;
mod states;
mod strays;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use lunette_reactor::{Key, Slab};
use lunette_scsi::port_groups::AccessState;
use lunette_session::Time;

use self::action::{Action, AttemptResult, EndReason, Outcome, Refused};
use self::path::{Path, PathFacts};
use super::claims::Claims;
use crate::Repeat;
use crate::limits::{MAX_REPEATS, MAX_UNFINISHED_REQUESTS, TIMEOUT_TICK};

/// The paths of a disk and its requests, each with a `T` of the driver's.
pub(super) struct Machine<T> {
    paths: Vec<Path>,
    requests: Slab<RoutedRequest<T>>,
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
    /// No path came back in time, or the driver has ended.
    is_closed: bool,
    /// When the deadlines of requests that wait are checked next.
    check_at: Option<Time>,
}

struct RoutedRequest<T> {
    payload: T,
    repeat: Repeat,
    deadline: Time,
    stage: Stage,
    attempts: u32,
    /// The request's place among all, in the order of submission.
    order: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for its blocks.
    Claiming,
    /// Waits for a path.
    Ready,
    Sent {
        path: usize,
        generation: u64,
    },
    /// An action ends it.
    Ending,
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
            is_closed: false,
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

    /// Takes the driver's part of a request that an action has ended.
    pub(super) fn take(&mut self, request: Key) -> Option<T> {
        self.requests.remove(request).map(|entry| entry.payload)
    }

    /// The target port group and access state of a path, while it is up.
    pub(super) fn access(&self, path: usize) -> Option<(Option<u16>, AccessState)> {
        let path = &self.paths[path];
        path.is_up().then_some((path.facts.port_group, path.facts.access))
    }

    /// The number of a path's last login.
    pub(super) fn generation(&self, path: usize) -> u64 {
        self.paths[path].generation()
    }

    /// The facts found behind a path when it was last up.
    pub(super) fn facts(&self, path: usize) -> PathFacts {
        self.paths[path].facts
    }

    /// Gives all requests back: nothing moves any more.
    pub(super) fn close_all(&mut self) -> Vec<T> {
        self.is_closed = true;
        self.ready.clear();
        self.claims = Claims::default();
        self.requests.drain().map(|entry| entry.payload).collect()
    }

    /// The best path.
    pub(super) fn best(&self) -> Option<usize> {
        let count = self.paths.len();
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let ranked = in_turn.filter_map(|path| Some((self.paths[path].rank()?, self.paths[path].in_flight(), path)));
        // Equal ones take turns, because the first of the smallest is taken.
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
        if self.is_closed {
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
        self.requests.insert(RoutedRequest { payload, repeat, deadline, stage, attempts: 0, order });
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
        entry.stage = Stage::Sent { path, generation: self.paths[path].generation() };
        entry.attempts += 1;
        self.actions.push_back(Action::Send { request: key, path, timeout: entry.deadline - now });
        self.paths[path].sent(now);
        self.turn = (path + 1) % self.paths.len();
    }

    /// An attempt has ended.
    pub(super) fn attempt_ended(&mut self, request: Key, result: AttemptResult, now: Time) -> Outcome<T> {
        let outcome = self.decide(request, result, now);
        self.settle(now);
        outcome
    }

    fn decide(&mut self, request: Key, result: AttemptResult, now: Time) -> Outcome<T> {
        let Some(entry) = self.requests.get_mut(request) else { return Outcome::Continues };
        let Stage::Sent { path, generation } = entry.stage else { return Outcome::Continues };
        let may_go_on = entry.attempts <= MAX_REPEATS;
        let repeat = entry.repeat;
        let this = &mut self.paths[path];
        let is_present = this.generation() == generation;
        if is_present {
            let is_answered = matches!(result, AttemptResult::Answered | AttemptResult::NotActive(_));
            this.request_ended(is_answered, now);
        }
        match result {
            AttemptResult::Answered => Outcome::Ended(self.finish(request)),
            AttemptResult::NotActive(state) => {
                if is_present {
                    this.facts.access = state;
                    self.states_changed(path);
                }
                if repeat == Repeat::Never || !may_go_on {
                    return Outcome::Ended(self.finish(request));
                }
                self.route(request, now);
                Outcome::Continues
            }
            AttemptResult::Lost => {
                self.lost(path, generation, now);
                self.strayed(request, path, generation);
                if repeat == Repeat::Always && may_go_on {
                    self.route(request, now);
                    return Outcome::Continues;
                }
                Outcome::InDoubt(self.finish(request))
            }
            AttemptResult::GivenUp => {
                if is_present && this.is_up() {
                    this.strays.given_up(now);
                }
                self.strayed(request, path, generation);
                Outcome::Ended(self.finish(request))
            }
        }
    }

    /// A copy of a request may be under way over a path on which nothing waits for it.
    fn strayed(&mut self, request: Key, path: usize, generation: u64) {
        if self.paths[path].strays.may_run(generation)
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
        self.ask_for_active_paths(now);
        self.clear_paths(now);
        let is_waiting = !self.ready.is_empty() || self.claims.has_waiting();
        self.check_at = is_waiting.then(|| self.check_at.unwrap_or(now + TIMEOUT_TICK));
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let connect_at = self.paths.iter().filter_map(Path::connect_at).min();
        let close_at = self.pathless_since.map(|since| since + self.reconnect_for);
        let until_closed = [connect_at, close_at].into_iter().flatten().filter(|_| !self.is_closed);
        let others = [self.next_question(), self.next_clearing(), self.check_at];
        until_closed.chain(others.into_iter().flatten()).min()
    }

    pub(super) fn time_has_come(&mut self, now: Time) {
        for path in 0..self.paths.len() {
            if self.paths[path].connect_at().is_some_and(|at| at <= now) && !self.is_closed {
                self.connect(path);
            }
        }
        if self.pathless_since.is_some_and(|since| since + self.reconnect_for <= now) {
            self.is_closed = true;
            self.give_up_waiting(EndReason::NoPath, |_| true);
        }
        if self.check_at.take_if(|at| *at <= now).is_some() {
            self.give_up_waiting(EndReason::TimedOut, |deadline| deadline <= now);
        }
        self.settle(now);
    }

    /// Ends requests that no path has.
    fn give_up_waiting(&mut self, why: EndReason, is_due: impl Fn(Time) -> bool) {
        let waiting = self.requests.iter().filter(|(_, entry)| matches!(entry.stage, Stage::Claiming | Stage::Ready));
        let due: Vec<Key> = waiting.filter(|(_, entry)| is_due(entry.deadline)).map(|(key, _)| key).collect();
        for key in due {
            self.give_up(key, why);
        }
    }

    /// Ends a request that no path has. The driver takes its payload when it comes to the action.
    fn give_up(&mut self, key: Key, why: EndReason) {
        let Some(entry) = self.requests.get_mut(key) else { return };
        self.claims.end(entry.order);
        self.ready.remove(&entry.order);
        entry.stage = Stage::Ending;
        self.actions.push_back(Action::End { request: key, why });
    }
}
