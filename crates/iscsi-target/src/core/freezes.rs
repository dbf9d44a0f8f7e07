//! Freezes: a caller learns when the stores of a logical unit have ended, on all cores, what they had begun.
//!
//! The unit is frozen before the first core hears of it. So the request that a core submits next finds it frozen, and
//! those that count are the ones that it has submitted when the question comes.

use std::sync::{Arc, Weak};

use lunette_device::LogicalUnit;

use super::Core;
use super::mesh::{CoreMessage, RemoteBarrier};
use super::quiesced::OnQuiesced;
use super::tasks::BarrierKey;
use crate::control::{Asker, FreezeQuestion};

impl Core {
    /// Asks all cores, and answers when the last one has.
    pub(super) fn ask_for_quiet(&mut self, FreezeQuestion { unit, asker, answer }: FreezeQuestion) {
        let barrier = self.barriers.open(OnQuiesced::Freeze(answer));
        for core in self.mesh.others() {
            self.barriers.one_more(barrier);
            let answer_to = self.mesh.remote(barrier);
            let (unit, asker) = (Arc::clone(&unit), asker.clone());
            self.mesh.send(core, CoreMessage::Freeze { answer_to, unit, asker });
        }
        self.await_requests(&unit, barrier, &asker);
    }

    /// Answers another core when the store has ended what it had begun for this one.
    pub(super) fn tell_when_quiet(&mut self, answer_to: RemoteBarrier, unit: &Arc<LogicalUnit>, asker: &Weak<Asker>) {
        let barrier = self.barriers.open(OnQuiesced::AnswerCore(answer_to));
        self.await_requests(unit, barrier, asker);
    }

    /// Lets the requests that are under way hold up the barrier, and closes it.
    fn await_requests(&mut self, unit: &Arc<LogicalUnit>, barrier: BarrierKey, asker: &Weak<Asker>) {
        for _ in 0..self.tasks.await_requests(unit, barrier, asker) {
            self.barriers.one_more(barrier);
        }
        self.barriers.close(barrier);
    }
}
