//! Commands that concern the nexus by which they come, and go over each path.

use super::Multipath;
use crate::Session;
use crate::paths::attempt::attempt_result;
use crate::paths::machine::action::AttemptResult;
use crate::paths::registration;
use crate::request::{Outcome, Request};

impl Multipath {
    /// Sends a command over each path that is there, one after the other, up to the first that refuses it. A path that
    /// is lost meanwhile gets its registration when it is made again.
    pub(super) async fn on_each_path(&self, mut request: Request) -> Outcome {
        let timeout = request.timeout.unwrap_or(self.options.request_timeout);
        let (data_out, leaves) = (request.data_out.clone(), registration::registration(&request));
        let mut seen = vec![0; self.routes.len()];
        let mut last = None;
        while let Some((path, generation, session)) = self.next_up(&seen) {
            seen[path] = generation;
            request.data_out.clone_from(&data_out);
            let outcome = session.execute(request.send(timeout)).await;
            if attempt_result(&outcome.result) == AttemptResult::Lost {
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

    /// The first path that is up in a generation that is not `seen`, and its session.
    fn next_up(&self, seen: &[u64]) -> Option<(usize, u64, Session)> {
        let state = self.lock();
        seen.iter().enumerate().find_map(|(path, last)| {
            let generation = state.machine.generation(path);
            state.machine.access(path).filter(|_| generation != *last)?;
            Some((path, generation, state.sessions[path].clone()?))
        })
    }
}
