//! Whether a power-on that a new nexus has heard of is one.
//!
//! Many targets tell each new nexus of a power-on. Another path whose nexus has outlived it shows that it is none.

use lunette_session::Time;

use super::Machine;
use super::action::{Action, PathAction};
use super::path::{Path, PathFacts};

impl<T> Machine<T> {
    /// A path has heard of a power-on.
    pub(in crate::paths) fn power_on(&mut self, path: usize) {
        if self.paths[path].hear_power_on() {
            self.actions.push_back(Action::PowerOn);
        }
    }

    /// A path is logged in and checked.
    pub(in crate::paths) fn connected(&mut self, path: usize, generation: u64, facts: PathFacts, now: Time) {
        let this = &mut self.paths[path];
        if !this.is_connecting(generation) {
            return;
        }
        if this.has_heard_power_on() && self.is_written {
            this.prove(facts);
            return self.prove(path, 0, now);
        }
        let is_alone = !self.paths.iter().any(Path::is_up);
        self.come_up(path, facts, is_alone, now);
    }

    /// Asks the next path, from `first` on, whether its nexus has outlived the power-on that a new nexus has heard of.
    fn prove(&mut self, path: usize, first: usize, now: Time) {
        let Some(facts) = self.paths[path].proving() else { return };
        match (first..self.paths.len()).find(|at| self.paths[*at].is_up()) {
            Some(witness) => {
                let generation = self.paths[path].generation();
                self.actions.push_back(Action::OnPath(path, PathAction::CheckPowerOn { generation, witness }));
            }
            None => self.come_up(path, facts, true, now),
        }
    }

    /// The disk has answered over `witness`, or has not.
    pub(in crate::paths) fn power_on_checked(
        &mut self,
        path: usize,
        generation: u64,
        witness: usize,
        has_answered: bool,
        now: Time,
    ) {
        let this = &self.paths[path];
        match this.proving().filter(|_| this.generation() == generation) {
            Some(facts) if has_answered => self.come_up(path, facts, false, now),
            Some(_) => self.prove(path, witness + 1, now),
            None => {}
        }
    }
}
