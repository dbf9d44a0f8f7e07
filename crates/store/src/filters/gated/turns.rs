//! Turns: which gate has pieces seen to that no change waits for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::WriteGate;

/// Lets one gate at a time have pieces seen to that no change waits for. So the changes that wait find the medium calm.
#[derive(Default)]
pub struct Turns(Mutex<VecDeque<Arc<WriteGate>>>);

/// The place of a gate among those that take turns, until it is dropped.
pub(super) struct Place<'t> {
    turns: &'t Turns,
    gate: &'t Arc<WriteGate>,
}

impl Turns {
    /// Adds a gate, behind all others.
    pub(super) fn enter<'t>(&'t self, gate: &'t Arc<WriteGate>) -> Place<'t> {
        self.lock().push_back(Arc::clone(gate));
        Place { turns: self, gate }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<WriteGate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, gate: &Arc<WriteGate>, comes_back: bool) {
        let next = {
            let mut queue = self.lock();
            let is_first = queue.front().is_some_and(|first| Arc::ptr_eq(first, gate));
            if comes_back && is_first {
                queue.rotate_left(1);
            } else if !comes_back {
                queue.retain(|other| !Arc::ptr_eq(other, gate));
            }
            queue.front().filter(|_| is_first).cloned()
        };
        if let Some(next) = next {
            next.has_turn();
        }
    }
}

impl Place<'_> {
    /// Whether it is the turn of this gate.
    pub(super) fn is_first(&self) -> bool {
        self.turns.lock().front().is_some_and(|first| Arc::ptr_eq(first, self.gate))
    }

    /// Gives the turn, if it is this gate's, to the next one.
    pub(super) fn pass(&self) {
        self.turns.leave(self.gate, true);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turns.leave(self.gate, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_take_turns_in_their_order() {
        let turns = Turns::default();
        let gates = [(); 3].map(|()| Arc::<WriteGate>::default());
        let mut places: Vec<_> = gates.iter().map(|gate| turns.enter(gate)).collect();
        let first = |places: &[Place<'_>]| places.iter().position(Place::is_first);
        assert_eq!(first(&places), Some(0));
        places[1].pass();
        assert_eq!(first(&places), Some(0), "it was not its turn");
        places[0].pass();
        assert_eq!(first(&places), Some(1));
        drop(places.remove(1));
        assert_eq!(first(&places), Some(1), "the third");
        places[1].pass();
        drop(places.remove(1));
        assert_eq!(first(&places), Some(0));
        places[0].pass();
        assert_eq!(first(&places), Some(0), "it is alone");
    }
}
