//! How strays are ended that hold up a write: which action does it, and what follows from it.

use lunette_session::Time;

use super::Machine;
use super::action::{Action, Clearing, PathAction};
use super::path::PathFacts;

impl<T> Machine<T> {
    /// Clears paths whose strays hold up a write.
    pub(super) fn clear_paths(&mut self, now: Time) {
        for path in 0..self.paths.len() {
            if let Some((at, way)) = self.due_clearing(path)
                && at <= now
            {
                self.clear(path, way);
            }
        }
    }

    /// When the next path can be cleared.
    pub(super) fn next_clearing(&self) -> Option<Time> {
        (0..self.paths.len()).filter_map(|path| self.due_clearing(path)).map(|(at, _)| at).min()
    }

    /// When a path whose strays hold up a write is cleared, and how.
    fn due_clearing(&self, path: usize) -> Option<(Time, Clearing)> {
        let at = self.paths[path].strays.clear_at().filter(|_| self.claims.is_held_up_by(path))?;
        Some((at, self.way_to_clear(path)?))
    }

    fn way_to_clear(&self, path: usize) -> Option<Clearing> {
        let this = &self.paths[path];
        if this.is_up() && this.strays.is_nexus_present() {
            return Some(Clearing::Abort);
        }
        let nexus = |facts: &PathFacts| (facts.portal_group, facts.port_group);
        let up = || self.paths.iter().enumerate().filter(|(_, other)| other.is_up());
        let is_known = this.facts.portal_group.is_some() && this.strays.is_nexus_reinstatable();
        let sibling = up().find(|(at, other)| *at != path && is_known && nexus(&other.facts) == nexus(&this.facts));
        if let Some((portal_of, _)) = sibling {
            return Some(Clearing::Reinstate { portal_of });
        }
        self.best().or_else(|| up().next().map(|(at, _)| at)).map(|over| Clearing::Reset { over })
    }

    fn clear(&mut self, path: usize, way: Clearing) {
        self.paths[path].strays.begin(way);
        self.actions.push_back(Action::OnPath(path, PathAction::Clear(way)));
    }

    /// A path was cleared, or could not be.
    pub(in crate::paths) fn cleared(&mut self, path: usize, is_done: bool, now: Time) {
        let this = &mut self.paths[path];
        // What is sent by the next login, or by the one that is there or being made, is no stray.
        let generation = this.generation() + u64::from(this.connect_at().is_some());
        let Some(attempt) = this.strays.end(is_done, generation, now) else { return };
        if is_done && !attempt.is_overtaken {
            self.claims.cleared(path);
        }
        match attempt.way {
            Clearing::Reset { over } if is_done => self.abort_beside(over),
            // A path that was lost since is another one.
            Clearing::Abort if !is_done && !attempt.is_overtaken && this.is_up() => self.close(path, now),
            Clearing::Reset { .. } | Clearing::Reinstate { .. } | Clearing::Abort => {}
        }
        self.settle(now);
    }

    /// A reset over one path has ended what the others had, and their sessions do not know.
    fn abort_beside(&mut self, over: usize) {
        for path in 0..self.paths.len() {
            let this = &self.paths[path];
            if path != over && this.in_flight() > 0 && this.strays.clear_at().is_some() {
                self.clear(path, Clearing::Abort);
            }
        }
    }
}
