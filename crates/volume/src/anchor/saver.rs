//! The thread that saves an anchor at flushes.
//!
//! It waits for the unit and for the file, which whoever submits a flush may not. Flushes that come while one is made
//! are answered together by the next one.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lunette_store::{Completion, Outcome, Store};

use super::Anchor;
use crate::failure::shared_failure;

/// The anchor of an open volume, and the way to its thread.
pub(crate) struct AnchorSaver {
    anchor: Arc<Anchor>,
    jobs: Sender<Job>,
}

/// A flush, or a write that counts as flushed when it is acknowledged.
struct Job {
    anchor: Arc<Anchor>,
    unit: Arc<dyn Store>,
    /// The outcome of the request, when the flush succeeds.
    outcome: Outcome,
    done: Completion,
}

impl AnchorSaver {
    pub(crate) fn start(anchor: Anchor) -> io::Result<Self> {
        let (jobs, todo) = channel();
        thread::Builder::new().name("anchor".to_owned()).spawn(move || run(&todo))?;
        Ok(Self { anchor: Arc::new(anchor), jobs })
    }

    pub(crate) fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// Flushes the unit, saves the anchor, and then ends a request with `outcome`, or with the failure.
    pub(crate) fn flush(&self, unit: &Arc<dyn Store>, outcome: Outcome, done: Completion) {
        let job = Job { anchor: Arc::clone(&self.anchor), unit: Arc::clone(unit), outcome, done };
        assert!(self.jobs.send(job).is_ok(), "the thread ends with the last sender");
    }
}

/// Between jobs the thread holds neither anchor nor unit.
fn run(todo: &Receiver<Job>) {
    while let Ok(first) = todo.recv() {
        let mut ends = Vec::new();
        let result = {
            let (anchor, unit) = (first.anchor, first.unit);
            ends.push((first.outcome, first.done));
            ends.extend(todo.try_iter().map(|job| (job.outcome, job.done)));
            anchor.save(&*unit)
        };
        let error = result.err().map(shared_failure);
        for (mut outcome, done) in ends {
            if let Some(error) = &error {
                outcome.result = Err(error());
            }
            done.complete(outcome);
        }
    }
}
