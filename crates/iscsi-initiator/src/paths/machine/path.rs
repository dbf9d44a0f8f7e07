//! One path: its link, and the facts that outlast a session.

use std::time::Duration;

use lunette_scsi::port_groups::AccessState;
use lunette_session::Time;

use super::strays::Strays;
use crate::limits::{FIRST_RECONNECT_PAUSE, PATH_PING, PROVEN_AFTER, STATES_PAUSE};

/// The facts that the driver has found behind a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paths) struct PathFacts {
    /// The target portal group tag of the login.
    pub(in crate::paths) portal_group: Option<u16>,
    /// The target port group of the path, with ALUA.
    pub(in crate::paths) port_group: Option<u16>,
    pub(in crate::paths) access: AccessState,
}

pub(super) struct Path {
    link: Link,
    /// The number of the last login.
    generation: u64,
    /// Attempts to connect, and sessions, that have ended since the path last proved itself: by a request that was
    /// answered, or by a session of [`PROVEN_AFTER`].
    failures: u32,
    /// The facts of the last session.
    pub(super) facts: PathFacts,
    pub(super) strays: Strays,
}

enum Link {
    Down {
        login: Login,
        /// Whether it has heard of a power-on that was neither counted nor shown to be none.
        has_heard_power_on: bool,
    },
    /// The path carries requests.
    Up(Up),
}

/// The next session of a path that is down.
enum Login {
    /// The login begins at this time.
    Due(Time),
    Connecting,
    /// Logged in and checked. Another path is asked whether the power-on that this one has heard of is one.
    Proving(PathFacts),
}

/// A session that carries requests.
struct Up {
    since: Time,
    in_flight: usize,
    /// When a request ended last, or the first one was sent.
    moved_at: Time,
    is_asking: bool,
    /// When access states are asked for next, unless the path is active.
    ask_at: Time,
}

impl Path {
    /// A path that is to be connected at once.
    pub(super) fn new() -> Self {
        Self {
            link: Link::Down { login: Login::Due(Time::default()), has_heard_power_on: false },
            generation: 0,
            failures: 0,
            facts: PathFacts { portal_group: None, port_group: None, access: AccessState::Unavailable },
            strays: Strays::default(),
        }
    }

    /// The number of the last login.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    fn up(&self) -> Option<&Up> {
        if let Link::Up(up) = &self.link { Some(up) } else { None }
    }

    fn up_mut(&mut self) -> Option<&mut Up> {
        if let Link::Up(up) = &mut self.link { Some(up) } else { None }
    }

    /// Begins a login. Returns its generation.
    pub(super) fn connect(&mut self) -> u64 {
        if let Link::Down { login, .. } = &mut self.link {
            *login = Login::Connecting;
        }
        self.generation += 1;
        self.generation
    }

    /// When the next login begins.
    pub(super) fn connect_at(&self) -> Option<Time> {
        if let Link::Down { login: Login::Due(at), .. } = self.link { Some(at) } else { None }
    }

    /// Whether the login of this generation is under way.
    pub(super) fn is_connecting(&self, generation: u64) -> bool {
        self.generation == generation && matches!(self.link, Link::Down { login: Login::Connecting, .. })
    }

    /// Keeps a power-on that the path has heard of. Returns whether it counts at once, because the path is up.
    pub(super) fn hear_power_on(&mut self) -> bool {
        match &mut self.link {
            Link::Down { has_heard_power_on, .. } => {
                *has_heard_power_on = true;
                false
            }
            Link::Up(_) => true,
        }
    }

    /// Whether the path has heard of a power-on that was neither counted nor shown to be none.
    pub(super) fn has_heard_power_on(&self) -> bool {
        matches!(self.link, Link::Down { has_heard_power_on: true, .. })
    }

    /// The path is logged in and checked, and waits for another one to be asked.
    pub(super) fn prove(&mut self, facts: PathFacts) {
        if let Link::Down { login, .. } = &mut self.link {
            *login = Login::Proving(facts);
        }
    }

    /// The facts of a path for which another one is asked.
    pub(super) fn proving(&self) -> Option<PathFacts> {
        if let Link::Down { login: Login::Proving(facts), .. } = self.link { Some(facts) } else { None }
    }

    /// The path carries requests from now on. Returns whether its login has ended what was sent before.
    pub(super) fn come_up(&mut self, facts: PathFacts, now: Time) -> bool {
        let is_same_group = self.facts.portal_group == facts.portal_group;
        let ask_at = now + STATES_PAUSE;
        self.link = Link::Up(Up { since: now, in_flight: 0, moved_at: now, is_asking: false, ask_at });
        self.facts = facts;
        self.strays.logged_in(self.generation, is_same_group)
    }

    /// The session of this generation is lost. Returns whether there was one.
    pub(super) fn lose(&mut self, generation: u64, longest: Duration, now: Time) -> bool {
        if self.generation != generation || !(self.is_up() || self.proving().is_some()) {
            return false;
        }
        self.strays.lost(now);
        if self.up().is_some_and(|up| now - up.since >= PROVEN_AFTER) {
            self.failures = 0;
        }
        self.go_down(longest, now);
        true
    }

    /// Sets the time of the next login. Each failure in a row doubles the pause before it, up to `longest`.
    pub(super) fn go_down(&mut self, longest: Duration, now: Time) {
        let longest = longest.max(FIRST_RECONNECT_PAUSE);
        let pause = FIRST_RECONNECT_PAUSE.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures += 1;
        let has_heard_power_on = self.has_heard_power_on();
        self.link = Link::Down { login: Login::Due(now + pause), has_heard_power_on };
    }

    /// The place of the path in the order of preference, when it takes commands.
    pub(super) fn rank(&self) -> Option<u8> {
        match self.facts.access {
            AccessState::ActiveOptimized if self.is_up() => Some(0),
            AccessState::ActiveNonOptimized if self.is_up() => Some(1),
            _ => None,
        }
    }

    /// Requests under way.
    pub(super) fn in_flight(&self) -> usize {
        self.up().map_or(0, |up| up.in_flight)
    }

    /// A request is sent.
    pub(super) fn sent(&mut self, now: Time) {
        let Some(up) = self.up_mut() else { return };
        if up.in_flight == 0 {
            up.moved_at = now;
        }
        up.in_flight += 1;
    }

    /// A request of the present generation has ended, and `is_answered` if the port has answered it.
    pub(super) fn request_ended(&mut self, is_answered: bool, now: Time) {
        if let Some(up) = self.up_mut() {
            (up.in_flight, up.moved_at) = (up.in_flight.saturating_sub(1), now);
        }
        if is_answered {
            self.failures = 0;
        }
    }

    /// When its requests under way have made no progress for too long.
    pub(super) fn stands_still_at(&self) -> Option<Time> {
        self.up().filter(|up| up.in_flight > 0).map(|up| up.moved_at + PATH_PING)
    }

    /// Begins a question about access states. Returns whether none is under way, and the path is up.
    pub(super) fn ask(&mut self) -> bool {
        self.up_mut().is_some_and(|up| !std::mem::replace(&mut up.is_asking, true))
    }

    /// A question about access states has ended.
    pub(super) fn asked(&mut self, now: Time) {
        if let Some(up) = self.up_mut() {
            (up.is_asking, up.ask_at) = (false, now + STATES_PAUSE);
        }
    }

    /// When the path may be asked for access states. It is up and takes no commands; `None` otherwise.
    pub(super) fn ask_at(&self) -> Option<Time> {
        self.up().filter(|_| self.rank().is_none()).map(|up| up.ask_at)
    }

    pub(super) fn is_asking(&self) -> bool {
        self.up().is_some_and(|up| up.is_asking)
    }
}
