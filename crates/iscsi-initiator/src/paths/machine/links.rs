//! The sessions of the paths come and go.

use std::time::Duration;

use lunette_session::Time;

use super::Machine;
use super::action::{Action, PathAction};
use super::path::{Path, PathFacts};
use crate::limits::MAX_RECONNECT_PAUSE;

impl<T> Machine<T> {
    /// Begins a login.
    pub(super) fn connect(&mut self, path: usize) {
        let generation = self.paths[path].connect();
        self.actions.push_back(Action::OnPath(path, PathAction::Connect { generation }));
    }

    /// A path carries requests from now on. A power-on that it has heard of counts, or was shown to be none.
    pub(super) fn come_up(&mut self, path: usize, facts: PathFacts, power_on_counts: bool, now: Time) {
        let this = &mut self.paths[path];
        if this.has_heard_power_on() && power_on_counts {
            self.actions.push_back(Action::PowerOn);
        }
        if this.come_up(facts, now) {
            self.claims.cleared(path);
        }
        self.pathless_since = None;
        self.settle(now);
    }

    /// A path could not be connected.
    pub(in crate::paths) fn not_connected(&mut self, path: usize, generation: u64, now: Time) {
        if self.paths[path].is_connecting(generation) {
            let longest = self.longest_pause();
            self.paths[path].go_down(longest, now);
            self.path_is_down(now);
            self.settle(now);
        }
    }

    /// The session of a path was lost.
    pub(in crate::paths) fn session_lost(&mut self, path: usize, generation: u64, now: Time) {
        self.lost(path, generation, now);
        self.settle(now);
    }

    pub(super) fn lost(&mut self, path: usize, generation: u64, now: Time) {
        let longest = self.longest_pause();
        if self.paths[path].lose(generation, longest, now) {
            self.path_is_down(now);
        }
    }

    /// Closes the session of a path, which counts as lost.
    pub(super) fn close(&mut self, path: usize, now: Time) {
        self.actions.push_back(Action::OnPath(path, PathAction::Close));
        self.lost(path, self.paths[path].generation(), now);
    }

    /// The longest pause between two logins. The last attempt has to end before the disk waits no longer.
    fn longest_pause(&self) -> Duration {
        MAX_RECONNECT_PAUSE.min(self.reconnect_for / 4)
    }

    fn path_is_down(&mut self, now: Time) {
        if !self.paths.iter().any(Path::is_up) {
            self.pathless_since.get_or_insert(now);
        }
    }
}
