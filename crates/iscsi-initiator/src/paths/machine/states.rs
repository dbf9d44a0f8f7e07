//! Questions about the access states of target port groups (ALUA, SPC-6 5.18).

use lunette_scsi::answers::PortGroup;
use lunette_scsi::port_groups::AccessState;
use lunette_session::Time;

use super::Machine;
use super::action::{Action, PathAction};
use super::path::Path;
use crate::limits::STATES_INTERVAL;

impl<T> Machine<T> {
    /// A path has reported another access state, or a command was refused for one.
    pub(in crate::paths) fn states_changed(&mut self, path: usize) {
        if self.paths[path].ask() {
            self.actions.push_back(Action::OnPath(path, PathAction::AskStates));
        }
    }

    /// Asks paths that are not active for their states: often while a request waits for one, another path stands still,
    /// or a group is in transition; seldom otherwise.
    pub(super) fn ask_for_active_paths(&mut self, now: Time) {
        for path in 0..self.paths.len() {
            if self.ask_time(path).is_some_and(|at| at <= now) {
                self.states_changed(path);
            }
        }
    }

    /// When a path is asked that is up and not active.
    fn ask_time(&self, path: usize) -> Option<Time> {
        let ask_at = self.paths[path].ask_at()?;
        if !self.ready.is_empty() || self.paths[path].facts.access == AccessState::Transitioning {
            return Some(ask_at);
        }
        let seldom = ask_at + STATES_INTERVAL;
        let stands_still = self.paths.iter().filter_map(Path::stands_still_at).min();
        Some(stands_still.map_or(seldom, |at| seldom.min(at.max(ask_at))))
    }

    /// When the next path is asked.
    pub(super) fn next_question(&self) -> Option<Time> {
        let idle = (0..self.paths.len()).filter(|path| !self.paths[*path].is_asking());
        idle.filter_map(|path| self.ask_time(path)).min()
    }

    /// The answer about access states that came over a path, for all groups; `None` if there is none. A path whose
    /// state cannot be known is tried.
    pub(in crate::paths) fn states(&mut self, path: usize, generation: u64, groups: Option<&[PortGroup]>, now: Time) {
        if self.paths[path].generation() != generation {
            return;
        }
        self.paths[path].asked(now);
        for (at, path_at) in self.paths.iter_mut().enumerate() {
            let facts = &mut path_at.facts;
            match groups.unwrap_or_default().iter().find(|group| Some(group.group) == facts.port_group) {
                Some(group) => facts.access = group.state,
                None if at == path => facts.access = AccessState::ActiveOptimized,
                None => {}
            }
        }
        self.leave_ports_without_disk(path, now);
        self.settle(now);
    }

    /// A path gave no answer about access states. It is asked again, unless it is lost.
    pub(in crate::paths) fn states_unknown(&mut self, path: usize, generation: u64, now: Time) {
        if self.paths[path].generation() == generation {
            self.paths[path].asked(now);
            self.settle(now);
        }
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
}
